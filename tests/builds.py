"""Which compiled modules the package under test has: those of an install without a compiler are pure.

``HERMES_STATE_NO_EXTENSIONS=1`` asks for none. With ``HERMES_STATE_REQUIRE_EXTENSIONS=1``, as `.ci/run` has
it, a module that is missing fails the run, so that nobody tests the pure package twice unawares.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from hermes_state._fastpath._mode import NO_EXTENSIONS, REQUIRE_EXTENSIONS


def compiled(name: str) -> bool:
    """Whether the compiled module ``hermes_state.<name>`` is there and is to be used."""
    there = find_spec(f"hermes_state.{name}") is not None
    if REQUIRE_EXTENSIONS:
        assert there, f"HERMES_STATE_REQUIRE_EXTENSIONS is set and {name} was not compiled"
    return there and not NO_EXTENSIONS


KERNELS = compiled("_fastpath._encode_c")
OFD_LOCKS = sys.platform == "linux" and compiled("engine._ofd_locks")
FETCH = compiled("engine._fetch")
