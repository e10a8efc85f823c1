"""Deletions go in short steps: other writers get in, all is durable at the end, a kill leaves it right."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from processes import program, sound, value

from hermes_state.api import stepping
from hermes_state.store import retention

APPEND_BESIDE = """
db = SessionDB(path)
db.create_session("beside", "cli")
left = lambda: db.session_count("old")
db.append_message("beside", "user", "first")
barrier()
done, worst, longest = 1, 0, 0.0
before = after = left()
while after and done < 5000:
    before = left()
    started = time.monotonic()
    db.append_message("beside", "user", f"appended {done}")
    longest = max(longest, time.monotonic() - started)
    after = left()
    worst = max(worst, before - after)
    done += 1
    if done == 4:
        say(met=True)
say(done=done, worst=worst, longest=longest)
db.close()
"""

CLEAR = """
db = SessionDB(path)
say(begun=True)
db.clear_messages("long")
say(done=True)
time.sleep(600)
"""


def fill_old(db: Any, sessions: int, messages: int) -> None:
    for number in range(sessions):
        db.create_session(f"old{number:04}", "old")
        db.append_messages(
            f"old{number:04}",
            [{"role": "user", "content": f"prunable {n} some words of it 广西"} for n in range(messages)],
        )
    db._conn.execute("UPDATE sessions SET started_at = 5.0, ended_at = 6.0")
    db._conn.execute("UPDATE messages SET timestamp = 5.5")


def steps_of(db: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """The steps that are taken from now on: whether each was durable, and PRAGMA synchronous in it."""
    taken: list[tuple[bool, int]] = []
    lazily = db._engine.upkeep.lazily

    def noted(fn: Any, operation: str, *, durable: bool) -> Any:
        def inside(conn: Any) -> Any:
            taken.append((durable, conn.execute("PRAGMA synchronous").fetchall()[0][0]))
            return fn(conn)

        return lazily(inside, operation, durable=durable)

    monkeypatch.setattr(db._engine.upkeep, "lazily", noted)
    return taken


@pytest.mark.slow
def test_another_process_appends_all_through_a_prune(
    make_db: Any, db_path: Path, record_property: Any
) -> None:
    """Several of its appends end while sessions are still to go (all would wait for one transaction)."""
    db = make_db()
    fill_old(db, 1600, 15)
    db.search_messages("prunable")
    with program(APPEND_BESIDE, db_path) as other:
        other.ready().go()
        met: list[Any] = []

        def after_a_step(done: int, total: int) -> None:
            """The prune stands between two of its steps until the other has appended in between."""
            if not met and 0 < done < total:
                met.append(other.answer())

        assert db.prune_sessions(90, progress=after_a_step) == 1600
        assert met == [{"met": True}]
        said = other.finish()[-1]
    record_property("worst append, seconds", said["longest"])
    record_property("sessions that went during one append", said["worst"])
    assert said["done"] > 3
    assert db.message_count() == said["done"]
    assert len(db.search_messages("appended OR first", limit=-1)) == said["done"]
    assert db.search_messages("prunable") == []
    db.close()
    assert len(sound(db_path)) == said["done"]


def test_a_deletion_of_many_steps_makes_one_fsync_at_the_end(
    make_db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make_db()
    fill_old(db, 3, 600)
    db.search_messages("prunable")
    taken = steps_of(db, monkeypatch)
    assert db.prune_sessions(90) == 3
    full, normal = 2, 1
    assert taken[0] == (True, full)
    assert set(taken[1:]) == {(False, normal)}
    sealed = float(db.get_meta(retention.DELETION_KEY))
    assert sealed > 0
    synchronous = db._engine._writer.conn.execute("PRAGMA synchronous").fetchall()
    assert synchronous == [(full,)]


def test_a_deletion_of_one_step_is_durable_by_itself(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "x")
    taken = steps_of(db, monkeypatch)
    assert db.delete_session("s") is True
    assert taken == [(True, 2)]
    assert db.get_meta(retention.DELETION_KEY) is None


def test_a_rest_comes_after_every_step_while_others_write_and_seldom_else(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(stepping, "sleep", rests.append)
    monkeypatch.setattr(stepping, "REST_EVERY_S", 1e9)

    def nothing(_conn: Any, _most: int) -> retention.Freed:
        return retention.Freed(0)

    alone = stepping.Steps(db._engine, "test")
    for _ in range(5):
        alone.run(nothing)
    assert rests == []
    beside = stepping.Steps(db._engine, "test")
    for number in range(5):
        beside.run(nothing)
        db._conn.execute("INSERT INTO state_meta(key, value) VALUES (?, 'x')", (f"k{number}",))
    assert rests == [stepping.REST_S] * 2, "none is known of in the first step of each connection"


def test_a_long_session_is_cleared_in_steps_and_what_comes_meanwhile_stays(
    make_db: Any, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make_db()
    db.create_session("long", "cli")
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    db.append_messages("long", [{"role": "assistant", "content": "old", "tool_calls": calls}] * 3000)
    taken = steps_of(db, monkeypatch)
    came: list[int] = []
    lazily = db._engine.upkeep.lazily

    def after_each(*args: Any, **options: Any) -> Any:
        result = lazily(*args, **options)
        came.append(db.append_message("long", "assistant", "new", tool_calls=calls))
        return result

    monkeypatch.setattr(db._engine.upkeep, "lazily", after_each)
    db.clear_messages("long")
    assert len(taken) > 2
    assert [row["id"] for row in db.get_messages("long")] == came
    session = db.get_session("long")
    assert (session["message_count"], session["tool_call_count"]) == (len(came), len(came))
    assert {hit["id"] for hit in db.search_messages("old OR new", limit=-1)} == set(came)
    db.close()
    assert sound(db_path) == set(came)


def test_clearing_an_empty_or_unknown_session_does_nothing_else(db: Any) -> None:
    db.create_session("s", "cli")
    db._conn.execute("UPDATE sessions SET message_count = 7, tool_call_count = NULL WHERE id = 's'")
    db.clear_messages("s")
    db.clear_messages("nobody")
    session = db.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (0, 0)
    assert db.session_count() == 1


@pytest.mark.slow
def test_a_clear_that_is_killed_leaves_right_counters_and_can_be_done_again(
    make_db: Any, db_path: Path
) -> None:
    db = make_db()
    db.create_session("long", "cli")
    db.append_messages("long", [{"role": "user", "content": f"word{n} of it"} for n in range(8000)])
    db.search_messages("word1")
    db.close()
    with program(CLEAR, db_path) as running:
        running.answer()
        while value(db_path, "SELECT count(*) FROM messages") == 8000:
            pass
        running.kill()
    with make_db() as again:
        left = again.message_count("long")
        assert left < 8000
        assert again.get_session("long")["message_count"] == left
        assert len(again.search_messages("it", limit=-1)) == left
        again.clear_messages("long")
        assert again.message_count() == 0
    assert sound(db_path) == set()


def test_free_pages_are_given_back_in_steps_once_the_file_is_made_for_it(
    make_db: Any, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make_db()
    fill_old(db, 1, 10)
    big = {"role": "assistant", "content": "large", "reasoning": "x" * 8000}
    db.append_messages("old0000", [big] * 800)
    db._conn.execute("UPDATE messages SET timestamp = 5.5")
    kept = db.append_message(db.create_session("kept", "cli"), "user", "kept 广西")
    db.vacuum(incremental=True)
    taken = steps_of(db, monkeypatch)
    db.prune_sessions(90, source="old")
    deleting = len(taken)
    free = db._conn.execute("PRAGMA freelist_count").fetchone()[0]
    assert free > 128
    stopped = threading.Event()
    stopped.set()
    db.vacuum(incremental=True, stop=stopped)
    assert len(taken) == deleting
    db.vacuum(incremental=True)
    assert len(taken) > deleting + 2
    assert db._conn.execute("PRAGMA freelist_count").fetchone()[0] == 0
    assert [hit["id"] for hit in db.search_messages("广西")] == [kept]
    db.close()
    assert sound(db_path) == {kept}


def test_ghosts_are_swept_in_steps(db: Any) -> None:
    db._conn.executemany(
        "INSERT INTO sessions(id, source, started_at, ended_at) VALUES (?, 'tui', 5.0, 6.0)",
        ((f"ghost{number:04}",) for number in range(1500)),
    )
    db.create_session("child", "tui", parent_session_id="ghost0700")
    assert db.prune_empty_ghost_sessions() == 1499
    assert db.session_count() == 2
