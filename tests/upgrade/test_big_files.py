"""A file of 20,000 messages at version 10: in use at once, indexed in steps, resumed after a kill."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from processes import fixtures, program, sound

from hermes_state import SessionDB
from hermes_state.engine import progress, upkeep, worker

pytestmark = pytest.mark.slow
MESSAGES = 20_000

KILLED_AT_STEP = """
steps = 0

def told(done, total):
    global steps
    steps += 1
    say(done=done, total=total)
    if steps == int(args[0]):
        os.kill(os.getpid(), signal.SIGKILL)

db = SessionDB(path, on_upgrade_progress=told)
say(opened=db.append_message("fx_0001", "user", "appended before the kill"))
db.search_messages("anything")
db.close()
"""


@pytest.fixture(scope="module")
def version_10(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The file, and what is in it."""
    path = tmp_path_factory.mktemp("version_10") / "state.db"
    return path, fixtures().make(path, 10, MESSAGES)


@pytest.fixture
def old(tmp_path: Path, version_10: tuple[Path, Any]) -> Path:
    """A copy of the file to be upgraded."""
    return Path(shutil.copy(version_10[0], tmp_path / "state.db"))


@pytest.fixture
def markers(version_10: tuple[Path, Any]) -> dict[str, int]:
    """A word -> the one message that has it."""
    return dict(version_10[1].markers)


def test_the_store_is_in_use_before_the_index_is_complete_and_tells_how_far_it_is(
    old: Path, markers: dict[str, int], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    monkeypatch.setattr(upkeep, "OPEN_INDEX_S", 0.0)
    monkeypatch.setattr(worker.Worker, "_start", lambda self: None)
    caplog.set_level(logging.INFO, "hermes_state")
    seen: list[tuple[int, int]] = []
    with SessionDB(old, on_upgrade_progress=lambda done, total: seen.append((done, total))) as db:
        first = db.append_message("fx_0001", "user", "appended during the upgrade")
        told = db.store_info()
        assert told["index_pending"] is True
        assert told["upgrade"]["done"] < told["upgrade"]["total"] == first
        for word, message_id in markers.items():
            assert [hit["id"] for hit in db.search_messages(word)] == [message_id], word
        assert [hit["id"] for hit in db.search_messages('"during the upgrade"')] == [first]
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[-1] == (first, first)
    lines = [record.getMessage() for record in caplog.records if "indexed up to" in record.getMessage()]
    assert len(lines) == len(seen)
    assert f"indexed up to message {first} of {first}" in lines[-1]
    with SessionDB(old, on_upgrade_progress=lambda *_: seen.clear()) as db:
        assert db.store_info()["upgrade"] is None
    assert seen, "nothing is told of a file that is complete"
    assert len(sound(old)) == MESSAGES + 1


@pytest.mark.parametrize("step", [1, 15])
def test_a_killed_upgrade_goes_on_from_the_step_that_it_had_reached(
    old: Path, markers: dict[str, int], step: int
) -> None:
    with program(KILLED_AT_STEP, old, step) as running:
        said = running.finish(status=-9)
    reached = [answer["done"] for answer in said if "done" in answer][-1]
    assert 0 < reached < MESSAGES
    appended = [answer["opened"] for answer in said if "opened" in answer]
    seen: list[int] = []
    with SessionDB(old, on_upgrade_progress=lambda done, _total: seen.append(done)) as db:
        for word, message_id in markers.items():
            assert [hit["id"] for hit in db.search_messages(word)] == [message_id], word
        assert {hit["id"] for hit in db.search_messages('"before the kill"')} >= set(appended)
    assert seen[0] > reached
    assert seen[-1] >= MESSAGES
    assert sound(old) >= set(appended)


def test_a_listener_that_fails_is_not_called_again_and_the_upgrade_goes_on(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def fail(done: int, _total: int) -> None:
        calls.append(done)
        raise RuntimeError("the listener's own")

    with SessionDB(old, on_upgrade_progress=fail) as db:
        db.search_messages("anything")
    assert len(calls) == 1
    assert [record for record in caplog.records if "on_upgrade_progress failed" in record.getMessage()]
    assert len(sound(old)) == MESSAGES
