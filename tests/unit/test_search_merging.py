"""Merging the index's segments while nobody writes: what it leaves, what it leaves alone, when it happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from search_store import add, hits, index, store

from hermes_state import SessionDB
from hermes_state.engine import worker
from hermes_state.search import merging, segments, tables

QUERIES = ("docker", "word7", "修改", "考勤记录", "youer", "docker NOT word7", "dock*")
TABLES = (tables.FTS, tables.TRIGRAM, tables.WORDS)


def in_pieces(conn: apsw.Connection, first: int, last: int) -> None:
    """Messages that are indexed one by one, so that each leaves a segment."""
    for number in range(first, last):
        add(conn, f"docker word{number % 11} " + f"filler{number} " * 40 + "修改youer服务 考勤记录")
        index(conn)


def counts(conn: apsw.Connection) -> list[int]:
    return [len(segments.pages(conn, table)) for table in TABLES]


def finish(conn: apsw.Connection, pages: int = 8) -> int:
    for steps in range(10_000):
        if not merging.step(conn, pages):
            return steps
    raise AssertionError("merging comes to no end")


def test_every_step_leaves_every_answer_and_in_the_end_there_is_one_segment() -> None:
    conn = store()
    in_pieces(conn, 0, 70)
    wanted = {query: hits(conn, query, limit=-1) for query in QUERIES}
    assert all(wanted.values())
    assert min(counts(conn)) > 2
    steps = 0
    while merging.step(conn, 1):
        steps += 1
        assert {query: hits(conn, query, limit=-1) for query in QUERIES} == wanted
    assert steps > len(TABLES)
    assert counts(conn) == [1, 1, 1]
    for table in TABLES:
        conn.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 0)")


def test_a_step_writes_about_as_many_pages_as_it_may() -> None:
    conn = store()
    in_pieces(conn, 0, 300)
    whole = sum(sum(segments.pages(conn, table)) for table in TABLES)
    assert whole > 60
    assert finish(conn, 2) > whole // 8


def test_what_is_merged_is_not_written_again() -> None:
    conn = store()
    in_pieces(conn, 0, 40)
    finish(conn)
    before = conn.total_changes()
    assert not merging.step(conn, 8)
    assert conn.total_changes() == before


def test_a_few_new_rows_do_not_make_the_whole_index_be_written_anew() -> None:
    conn = store()
    in_pieces(conn, 0, 200)
    finish(conn)
    whole = {table: max(segments.pages(conn, table)) for table in TABLES}
    in_pieces(conn, 200, 202)
    finish(conn)
    assert {table: max(segments.pages(conn, table)) for table in TABLES} == whole
    in_pieces(conn, 202, 300)
    finish(conn)
    assert len(segments.pages(conn, tables.TRIGRAM)) == 1


def test_a_merge_that_another_program_began_is_brought_to_its_end() -> None:
    conn = store()
    in_pieces(conn, 0, 200)
    conn.execute("INSERT INTO messages_fts_trigram(messages_fts_trigram, rank) VALUES ('merge', -2)")
    assert any(merging for merging, _ in segments.levels(conn, tables.TRIGRAM))
    finish(conn)
    assert counts(conn) == [1, 1, 1]


def test_without_full_text_tables_or_rows_there_is_nothing_to_do() -> None:
    conn = store()
    assert not merging.step(conn, 8)
    in_pieces(conn, 0, 40)
    for table in TABLES:
        conn.execute(f"DROP TABLE {table}")
    assert not merging.step(conn, 8)


# The worker


class Steps:
    """A worker with a merge step that gives the outcomes in turn, and tells of each call."""

    def __init__(self, *outcomes: bool | None, then: Callable[[], object] = lambda: None) -> None:
        self.outcomes = list(outcomes)
        self.called = threading.Semaphore(0)
        self.then = then
        self.calls = 0
        self.worker = worker.Worker(lambda rows: (0, 0.0), lambda: None, lambda: False, self.step)

    def step(self) -> bool | None:
        self.calls += 1
        outcome = self.outcomes.pop(0)
        self.then()
        self.called.release()
        return outcome


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle after a moment."""
    for name in ("IDLE_S", "MERGE_REST_S", "CHECKPOINT_AFTER_S"):
        monkeypatch.setattr(worker, name, 0.01)


@pytest.mark.usefixtures("at_once")
def test_an_idle_worker_merges_to_the_end_and_again_after_the_next_write() -> None:
    steps = Steps(True, False, True, None, None)
    steps.worker.written(0)
    for _ in range(4):
        assert steps.called.acquire(timeout=30)
    while steps.worker._unmerged:
        threading.Event().wait(0.001)
    steps.worker.written(0)
    assert steps.called.acquire(timeout=30)
    steps.worker.stop()
    assert steps.calls == 5


@pytest.mark.usefixtures("at_once")
def test_a_write_ends_the_merging_until_the_store_is_idle_again() -> None:
    turns: list[str] = []
    steps = Steps(True, None, then=lambda: written())
    steps.worker._index_step = lambda rows: (turns.append("index"), (0, 0.0))[1]

    def written() -> None:
        turns.append("merge")
        if steps.calls == 1:
            steps.worker.written(1)

    steps.worker.written(0)
    for _ in range(2):
        assert steps.called.acquire(timeout=30)
    steps.worker.stop()
    assert turns == ["index", "merge", "index", "merge"]


# A whole store


def fill(db: SessionDB, count: int) -> None:
    for number in range(count):
        db.append_message("s", "user", f"docker word{number} " + f"filler{number} " * 40 + "修改youer服务")
        db.search_messages("docker", limit=1)  # which indexes it: a segment


def segments_of(path: Path) -> list[int]:
    conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return counts(conn)
    finally:
        conn.close()


def test_a_store_that_is_idle_merges_and_one_that_others_write_to_waits(db_path: Path) -> None:
    db: Any = SessionDB(db_path)
    db._engine._worker.stop()  # it would merge, too
    db.create_session("s", "cli")
    fill(db, 40)
    upkeep = db._engine.upkeep
    assert upkeep.merge_step() is False, "others' commits are looked at first"
    other = apsw.Connection(str(db_path))
    other.execute("INSERT INTO state_meta VALUES ('other', '1')")
    assert upkeep.merge_step() is False
    other.execute("BEGIN IMMEDIATE")
    assert upkeep.merge_step() is False, "another process has the write lock"
    other.execute("ROLLBACK")
    other.close()
    assert upkeep.merge_step() is True
    while upkeep.merge_step():
        pass
    assert upkeep.merge_step() is None
    assert segments_of(db_path) == [1, 1, 1]
    assert len(db.search_messages("docker", limit=-1)) == 40
    assert db.check()["ok"]
    db.close()


def test_on_a_full_disk_nothing_is_merged_until_something_new_is_written(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db: Any = SessionDB(db_path)
    db._engine._worker.stop()  # it would merge, too
    db.create_session("s", "cli")
    fill(db, 10)
    upkeep = db._engine.upkeep
    upkeep.merge_step()

    def full(*_: object) -> bool:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(merging, "step", full)
        assert upkeep.merge_step() is None
    assert upkeep.merge_step() is True
    db.close()


def test_a_store_that_is_opened_read_and_closed_writes_nothing(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = SessionDB(db_path)
    db.create_session("s", "cli")
    fill(db, 40)
    db.close()
    before = db_path.read_bytes()
    monkeypatch.setattr(worker, "IDLE_S", 0.0)
    again: Any = SessionDB(db_path)
    again.search_messages("docker")
    assert again._engine._worker._thread is None
    again.close()
    assert db_path.read_bytes() == before
