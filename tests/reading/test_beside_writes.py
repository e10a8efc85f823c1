"""Reads beside writes: nothing waits for the writer, nothing is kept between calls, nothing leaks."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest
from processes import elsewhere

import hermes_state
from hermes_state import SessionDB, errors

Read = Callable[[Any], Any]


def _broken_read(db: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        db._read(lambda conn: [1 // 0 for _ in conn.execute("SELECT id FROM messages")], "test")


def _half_stepped(db: Any) -> None:
    """A reader that leaves its statement where it stands."""
    db._read(lambda conn: next(conn.execute("SELECT id FROM messages")), "test")


def _half_read(stream: Callable[[Any], Any]) -> Read:
    def read(db: Any) -> None:
        iterator = stream(db)
        next(iterator)
        db.streams.append(iterator)  # still open while the check runs

    return read


READS: dict[str, Read] = {
    "get_session": lambda db: db.get_session("s"),
    "get_messages": lambda db: db.get_messages("s"),
    "conversation": lambda db: db.get_messages_as_conversation("s", include_ancestors=True),
    "anchored": lambda db: db.get_anchored_view("s", 3),
    "list": lambda db: db.list_sessions_rich(order_by_last_active=True),
    "search_sessions": lambda db: db.search_sessions(),
    "search": lambda db: db.search_messages("word"),
    "search short": lambda db: db.search_messages("词", sort="newest"),
    "substring": lambda db: db.search_messages("ord", match="substring"),
    "page": lambda db: db.search_page("word", limit=2),
    "export": lambda db: db.export_session("s"),
    "iter_messages": _half_read(lambda db: db.iter_messages("s", batch=2)),
    "iter_export": _half_read(lambda db: db.iter_export()),
    "records": _half_read(lambda db: db.iter_export_records()),
    "a read that raises": _broken_read,
    "a read left half": _half_stepped,
    "_conn": lambda db: db._conn.execute("SELECT * FROM messages").fetchone(),
}


@pytest.fixture
def store(make_db: Any) -> Any:
    db = make_db()
    db.streams = []
    for name in ("s", "t"):
        db.create_session(name, "cli")
        db.append_messages(name, [{"role": "user", "content": f"word 单词 {n}"} for n in range(10)])
    db.search_messages("word")
    return db


@pytest.mark.parametrize("name", READS)
def test_no_call_leaves_a_snapshot_behind(store: Any, name: str) -> None:
    READS[name](store)
    store.append_message("s", "user", "after the read")
    store._engine._worker.stop()  # it may be at a checkpoint just now
    # RESTART waits for every reader of the WAL; it answers busy=1 where one is left.
    [(busy, pages, copied)] = elsewhere(store.db_path, "PRAGMA wal_checkpoint(RESTART)")
    assert (busy, pages) == (0, copied)
    for stream in store.streams:
        stream.close()


@pytest.mark.parametrize("name", READS)
def test_a_read_goes_on_while_a_thread_holds_the_writer(store: Any, name: str) -> None:
    inside, done = threading.Event(), threading.Event()

    def hold(conn: Any) -> None:
        conn.execute("UPDATE sessions SET model = 'm'")
        inside.set()
        assert done.wait(300)

    writer = threading.Thread(target=lambda: store._write(hold, "test"))
    writer.start()
    assert inside.wait(300)
    try:
        READS[name](store)  # would wait for the writer, and time out with it, if it took its line
        assert not done.is_set()
        assert store.get_session("s")["model"] is None
    finally:
        done.set()
        writer.join(300)
        for stream in store.streams:
            stream.close()
    assert store.get_session("s")["model"] == "m"


def test_reads_of_any_kind_leave_no_descriptor_behind(store: Any) -> None:
    def all_of_them() -> None:
        for read in READS.values():
            read(store)
        for stream in store.streams:
            stream.close()
        store.streams.clear()
        with pytest.raises(errors.StoreInterruptedError):
            store.search_messages("word OR 词", match="substring", limit=-1, time_limit=1e-9)

    def count() -> int:
        return len(os.listdir("/dev/fd"))

    store.append_messages("s", [{"role": "user", "content": f"words {n}"} for n in range(3_000)])
    all_of_them()
    before = count()
    for _ in range(10):
        all_of_them()
    # The worker may have opened a connection of its own meanwhile: a file, its WAL, no more.
    assert count() <= before + 4
    threads = [threading.Thread(target=all_in_thread, args=(store,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    # Six readers at most, of a file and its WAL each.
    assert count() <= before + 4 + 2 * 6
    assert store._engine._readers.opened <= 6


def all_in_thread(db: Any) -> None:
    for name in ("get_messages", "list", "search", "search short"):
        READS[name](db)


class WithoutWal(sqlite3.Connection):
    """A connection that answers ``delete`` when it is asked for WAL."""

    def execute(self, sql: str, *given: Any) -> Any:
        if "journal_mode=wal" in sql.replace(" ", "").lower():
            return super().execute("SELECT 'delete'")
        return super().execute(sql, *given)


@pytest.fixture
def without_wal(make_db: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store in DELETE mode with a session."""
    real = sqlite3.connect
    monkeypatch.setattr(
        hermes_state.sqlite3, "connect", lambda *a, **given: real(*a, **{**given, "factory": WithoutWal})
    )
    hermes_state._wal_fallback_warned_paths.clear()
    db = make_db()
    hermes_state._wal_fallback_warned_paths.clear()
    db.streams = []
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"word 单词 {n}"} for n in range(10)])
    assert db.store_info()["journal_mode"] == "delete"
    return db


def test_in_delete_mode_reads_go_through_the_writer_and_limits_hold_there_too(without_wal: Any) -> None:
    db = without_wal
    for name, read in READS.items():
        if name not in ("anchored", "_conn"):
            read(db)
    for stream in db.streams:
        stream.close()
    assert db._engine._readers.opened == 0
    db.append_messages("s", [{"role": "user", "content": f"words {n}"} for n in range(3_000)])
    with pytest.raises(errors.StoreInterruptedError):
        db.search_messages("word OR 词", match="substring", limit=-1, time_limit=1e-9)
    assert db._engine._readers.opened == 0
    # The writer that was interrupted writes on, without a limit.
    assert db.append_message("s", "user", "words and more") > 0
    assert len(db.search_messages("words", limit=-1)) == 3_001


def test_in_delete_mode_readers_and_writers_of_many_threads_get_on(without_wal: Any) -> None:
    db = without_wal
    start = threading.Barrier(8)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            start.wait(300)
            for n in range(10):
                if number % 2:
                    db.append_message("s", "user", f"thread{number} {n}")
                else:
                    assert len(db.get_messages("s")) >= 10
                    assert len(db.search_messages("word", limit=-1)) == 10
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failed
    assert db.message_count() == 50
    assert db.search_messages("thread1", limit=-1)


def test_a_long_read_sees_one_moment_and_each_page_of_a_stream_its_own(store: Any) -> None:
    stream = store.iter_messages("s", batch=2)
    first = next(stream)
    store.append_message("s", "user", "later")
    contents = [first["content"], *(message["content"] for message in stream)]
    assert contents[:10] == [f"word 单词 {n}" for n in range(10)]
    assert len(contents) in (10, 11)


def test_more_readers_than_connections_wait_for_one_another_and_all_are_served(store: Any) -> None:
    inside = threading.Semaphore(0)
    done = threading.Event()
    answers: list[int] = []

    def long_read(conn: Any) -> int:
        found = int(conn.execute("SELECT count(*) FROM messages").fetchone()[0])
        inside.release()
        assert done.wait(300)
        return found

    threads = [
        threading.Thread(target=lambda: answers.append(store._read(long_read, "test"))) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for _ in range(6):
        assert inside.acquire(timeout=300)
    assert store._engine._readers.opened == 6
    store.append_message("s", "user", "while all are lent")  # the writer waits for none of them
    done.set()
    for thread in threads:
        thread.join(300)
    assert sorted(answers) == [20] * 6 + [21] * 4
    assert store._engine._readers.opened == 6


def test_a_second_handle_reads_what_the_first_has_written_at_once(store: Any) -> None:
    with SessionDB(store.db_path) as other:
        for n in range(20):
            new = store.append_message("s", "user", f"fresh{n} 新")
            assert other.get_messages("s")[-1]["id"] == new
            assert [hit["id"] for hit in other.search_messages(f"fresh{n}")] == [new]
            assert other.search_messages("新", sort="newest", limit=1)[0]["id"] == new
            assert other.list_sessions_rich(order_by_last_active=True)[0]["id"] == "s"
