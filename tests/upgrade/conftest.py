"""A close completes an upgrade here, however busy the machine is (else the next open goes on with it)."""

from __future__ import annotations

import pytest

from hermes_state.engine import upkeep


@pytest.fixture(autouse=True)
def _a_close_completes_the_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "CLOSE_UPGRADE_S", 120.0)
