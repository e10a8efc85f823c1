"""The store's limits of time, stretched: on a machine that is slow for a moment tests take no other branch.

Tests of a limit set it themselves. Programs that tests start stretch theirs, too (``processes.PREAMBLE``).
"""

from __future__ import annotations

from hermes_state.engine import core, patience, registry, upkeep, wal

LONG_S = 600.0
"""How long a test may stand still, seconds."""
WHOLE_S = 60.0
"""How long a search waits for the whole index here; where another process keeps the lock, it then scans."""


def stretch() -> None:
    """Make every wait of the store, by default, longer than any standstill of a machine that tests run on."""
    patience.OTHER_PATIENCE_S = patience.MESSAGE_PATIENCE_S = wal._PATIENCE_S = LONG_S
    upkeep.SEARCH_WAIT_S = upkeep.SEARCH_FORGET_S = WHOLE_S
    upkeep.CLOSE_PATIENCE_S = upkeep.CLOSE_UPGRADE_S = upkeep.CLOSE_FORGET_S = LONG_S
    core.FORK_WAIT_S = registry.LOCK_WAIT_S = LONG_S
