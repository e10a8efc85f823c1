"""kill -9 at any moment: what was acknowledged is there, found, counted, and the file is sound."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from processes import program, sound

from hermes_state import SessionDB

BEGIN = """
import random
chance = random.Random(int(args[1]))
db = SessionDB(path, indexing=args[0])
"""

APPEND = (
    BEGIN
    + """
db.ensure_session("s", "cli")
say(begun=True)
n = 0
while True:
    say(id=db.append_message("s", "user", f"kept {args[1]} {n} 广西 " + "x" * chance.randrange(3000)))
    n += 1
"""
)

BATCH = (
    BEGIN
    + """
db.ensure_session("s", "cli")
say(begun=True)
n = 0
while True:
    rows = [{"role": "user", "content": f"batch {args[1]} {n} {m} 桂林"} for m in range(50)]
    say(ids=db.append_messages("s", rows), batch=n)
    n += 1
"""
)

THREADS = (
    BEGIN
    + """
db.ensure_session("s", "cli")
say(begun=True)
speaking = threading.Lock()

def write():
    while True:
        new = db.append_message("s", "user", "threads 漓江")
        with speaking:
            say(id=new)

for _ in range(4):
    threading.Thread(target=write).start()
"""
)

INDEX = (
    BEGIN
    + """
db.ensure_session("s", "cli")
rows = [{"role": "user", "content": f"index {n} 广西 " + "y" * 200} for n in range(1500)]
ids = db.append_messages("s", rows)
say(begun=True, ids=ids)
while True:
    db.search_messages("index", limit=1)
    db.append_messages("s", [{"role": "user", "content": "index more"}] * 20)
"""
)

CHECKPOINT = (
    BEGIN
    + """
db.ensure_session("s", "cli")
say(begun=True)
while True:
    say(id=db.append_message("s", "user", "checkpoint " + "z" * 5000))
    db._engine.upkeep.checkpoint()
"""
)

REPLACE = (
    BEGIN
    + """
db.ensure_session("r", "cli")
db.replace_messages("r", [{"role": "user", "content": f"replaced 0 {m}"} for m in range(40)])
say(begun=True)
n = 1
while True:
    db.replace_messages("r", [{"role": "user", "content": f"replaced {n} {m}"} for m in range(40)])
    say(round=n)
    n += 1
"""
)

PRUNE = (
    BEGIN
    + """
from hermes_state.store import retention
for number in range(60):
    db.create_session(f"old{number}", "cli")
    db.append_messages(f"old{number}", [{"role": "user", "content": f"prunable {m} 广西"} for m in range(20)])
    db.end_session(f"old{number}", "done")
db.create_session("live", "cli")
say(begun=True, id=db.append_message("live", "user", "kept"))
db.prune_sessions(0)
say(done=True)
time.sleep(600)
"""
)


def _kill(code: str, path: Path, indexing: str, seed: int, longest: float, *, after: int = 1) -> list[Any]:
    """Run ``code`` and kill it at a random moment ``after`` so many answers; all that it acknowledged."""
    with program(code, path, indexing, seed) as running:
        said = [running.answer() for _ in range(after)]
        time.sleep(random.Random(seed).uniform(0, longest))
        return said + running.kill()


def _ids(said: list[Any]) -> set[int]:
    return {answer["id"] for answer in said if "id" in answer} | {
        i for answer in said for i in answer.get("ids", ())
    }


def _found(path: Path, query: str) -> set[int]:
    with SessionDB(path) as db:
        return {hit["id"] for hit in db.search_messages(query, limit=-1)}


@pytest.mark.slow
@pytest.mark.parametrize("indexing", ["background", "inline"])
@pytest.mark.parametrize(
    ("code", "word"),
    [(APPEND, "广西"), (BATCH, "桂林"), (THREADS, "漓江"), (CHECKPOINT, "checkpoint")],
    ids=["append", "batch", "threads", "checkpoint"],
)
def test_what_was_acknowledged_before_a_kill_is_there_and_found(
    tmp_path: Path, code: str, word: str, indexing: str
) -> None:
    path = tmp_path / "state.db"
    acknowledged: set[int] = set()
    for seed in range(4):
        acknowledged |= _ids(_kill(code, path, indexing, seed, 0.4, after=8))
        if seed % 2:
            found = _found(path, word)
            assert acknowledged <= found
    ids = sound(path)
    assert acknowledged <= ids
    assert len(acknowledged) > 20
    assert found == ids


def test_a_batch_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for seed in range(3):
        _kill(BATCH, path, "background", seed, 0.3, after=2)
    with SessionDB(path) as db:
        rows = db.get_messages("s")
    batches: dict[str, int] = {}
    for row in rows:
        key = " ".join(row["content"].split()[:3])
        batches[key] = batches.get(key, 0) + 1
    assert set(batches.values()) == {50}


@pytest.mark.slow
def test_a_kill_while_rows_are_indexed_leaves_the_rest_to_the_next_open(tmp_path: Path) -> None:
    for seed in range(4):
        path = tmp_path / f"{seed}.db"
        acknowledged = _ids(_kill(INDEX, path, "background", seed, 0.3))
        assert len(acknowledged) == 1500
        with SessionDB(path) as db:
            total = db.message_count()
            assert len(db.search_messages("index", limit=-1)) == total
            assert len(db.search_messages("广西", limit=-1)) == 1500
        assert len(sound(path)) == total


@pytest.mark.slow
@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_a_replacement_that_is_killed_is_the_old_history_or_the_new_one(
    tmp_path: Path, indexing: str
) -> None:
    for seed in range(4):
        path = tmp_path / f"{seed}.db"
        said = _kill(REPLACE, path, indexing, seed, 0.3)
        last = max((answer.get("round", 0) for answer in said), default=0)
        with SessionDB(path) as db:
            rows = [m["content"].split() for m in db.get_messages("r")]
            assert len(rows) == 40
            (round_,) = {int(row[1]) for row in rows}
            assert round_ in (last, last + 1)
            assert len(db.search_messages("replaced", limit=-1)) == 40
        assert len(sound(path)) == 40


@pytest.mark.slow
def test_a_prune_that_is_killed_leaves_whole_counters_and_can_be_done_again(tmp_path: Path) -> None:
    for seed in range(4):
        path = tmp_path / f"{seed}.db"
        said = _kill(PRUNE, path, "background", seed, 0.3)
        (kept,) = _ids(said[:1])
        ids = _after(path)
        assert kept in ids
        with SessionDB(path) as db:
            db.prune_sessions(0)
            assert db.search_messages("prunable") == []
            assert [m["id"] for m in db.get_messages("live")] == [kept]
        assert sound(path) == {kept}


def _after(path: Path) -> set[int]:
    """The ids once the next open has completed what the kill left."""
    with SessionDB(path):
        pass
    return sound(path)


@pytest.mark.slow
def test_readers_of_another_process_never_see_half_a_transaction_of_one_that_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        for seed in range(3):
            with program(BATCH, path, "background", seed) as running:
                running.answer()
                for _ in range(30):
                    session = db.get_session("s")
                    assert session["message_count"] % 50 == 0
                    assert db.message_count() % 50 == 0
                running.kill()
            assert len(db.search_messages("batch", limit=-1)) == db.message_count()
    sound(path)
