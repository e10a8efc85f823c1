"""Fixtures that all kinds of tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
# tests/corpus.py, tests/matcher.py and the like are imported by their plain names.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import limits  # noqa: E402

limits.stretch()

# How long an example takes says nothing where other programs use the machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A shell gives what it starts in the background an ignored SIGINT, which programs that are started from
# here would inherit: they could not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MODES = [
    pytest.param(("background", "all"), id="background-all"),
    pytest.param(("inline", "all"), id="inline-all"),
    pytest.param(("background", "unspaced"), id="background-unspaced"),
    pytest.param(("inline", "unspaced"), id="inline-unspaced"),
]


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
def make_db(db_path: Path) -> Iterator[Callable[..., object]]:
    """Opens stores (by default on ``db_path``) and closes them at the end of the test."""
    from hermes_state import SessionDB

    opened = []

    def make(path: Path | None = None, **options: object) -> object:
        store = SessionDB(path or db_path, **options)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def db(make_db: Callable[..., object]) -> object:
    """A fresh store in the default modes."""
    return make_db()


@pytest.fixture(params=MODES)
def any_db(request: pytest.FixtureRequest, make_db: Callable[..., object]) -> object:
    """A fresh store, once in every pair of indexing and trigram mode."""
    indexing, trigram = request.param
    return make_db(indexing=indexing, trigram=trigram)
