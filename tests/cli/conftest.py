"""A small store for each test, in a Hermes home of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import command_line


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hermes home with the small store in it; commands without ``--db`` find it there."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HERMES_HOME", str(folder))
    # Times as the table shows them, and a width that cuts nothing.
    monkeypatch.delenv("COLUMNS", raising=False)
    command_line.fill(folder / "state.db")
    return folder


@pytest.fixture
def store(home: Path) -> Path:
    """The small store's file."""
    return home / "state.db"
