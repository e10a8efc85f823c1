"""Who waits for whom: write locks of other processes, long reads, patience, open readers."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from processes import peer, sound

from hermes_state import SessionDB, errors


@pytest.fixture
def store(make_db: Any) -> Any:
    db = make_db(patience=0.3)
    db.create_session("s", "cli")
    db.append_message("s", "user", "first")
    db.search_messages("first")
    db._engine._worker.stop()  # else it may merge when somebody has little patience
    return db


@pytest.mark.slow
def test_a_write_waits_for_a_lock_that_another_process_holds_for_three_seconds(
    make_db: Any, db_path: Path
) -> None:
    db = make_db()
    db.create_session("s", "cli")
    with peer(db_path, "hold-lock", "--seconds", 3) as holder:
        holder.ready()
        new = db.append_message("s", "user", "waited for")
        db.set_meta("waited", "too")
        holder.finish()
    assert [hit["id"] for hit in db.search_messages("waited")] == [new]


WRITES = {
    "append_message": lambda db: db.append_message("s", "user", "x"),
    "append_messages": lambda db: db.append_messages("s", [{"role": "user", "content": "x"}]),
    "replace_messages": lambda db: db.replace_messages("s", []),
    "set_meta": lambda db: db.set_meta("a", "b"),
    "create_session": lambda db: db.create_session("t", "cli"),
    "_conn.execute": lambda db: db._conn.execute("UPDATE sessions SET title = 't'"),
    "_execute_write": lambda db: db._execute_write(lambda conn: None),
    "vacuum": lambda db: db.vacuum(),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_patience_ends_says_how_long_it_waited(
    store: Any, db_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with peer(db_path, "hold-lock") as holder:
        holder.ready()
        with pytest.raises(errors.StoreBusyError, match="locked") as caught:
            WRITES[name](store)
        holder.go().finish()
    assert isinstance(caught.value, sqlite3.OperationalError)
    assert caught.value.waited > 0.25
    assert f"waited {caught.value.waited:.1f} s" in str(caught.value)
    assert store.message_count() == 1
    assert store.append_message("s", "user", "and it goes on") > 0


def test_reads_go_on_while_writes_wait(make_db: Any, db_path: Path) -> None:
    db = make_db()
    db.create_session("s", "cli")
    db.append_message("s", "user", "first words")
    db.search_messages("first")
    written: list[int] = []
    with peer(db_path, "hold-lock") as holder:
        holder.ready()
        writers = [
            threading.Thread(target=lambda: written.append(db.append_message("s", "user", "second")))
            for _ in range(4)
        ]
        for writer in writers:
            writer.start()
        for _ in range(20):
            assert [m["content"] for m in db.get_messages("s")] == ["first words"]
            assert len(db.search_messages("words")) == 1
            assert db.session_count() == 1
            assert db._conn.execute("SELECT count(*) FROM messages").fetchone()[0] == 1
        assert written == []
        holder.go().finish()
        for writer in writers:
            writer.join(300)
    assert len(written) == 4


def test_writes_go_on_while_a_reader_of_another_process_keeps_its_snapshot(
    make_db: Any, db_path: Path
) -> None:
    db = make_db()
    db.create_session("s", "cli")
    with peer(db_path, "hold-read") as reader:
        reader.ready()
        for n in range(60):
            db.append_message("s", "user", f"row {n}")
        assert len(db.search_messages("row", limit=-1)) == 60
        said = reader.go().finish()[-1]
    assert said["before"] == said["after"] == 0


def test_writes_go_on_while_a_thread_is_inside_a_long_read(make_db: Any) -> None:
    db = make_db()
    db.create_session("s", "cli")
    inside, done = threading.Event(), threading.Event()

    def long_read(conn: Any) -> int:
        before = conn.execute("SELECT count(*) FROM messages").fetchone()[0]
        inside.set()
        assert done.wait(300)
        return conn.execute("SELECT count(*) FROM messages").fetchone()[0] - before

    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.append(db._read(long_read, "test")))
    reader.start()
    assert inside.wait(300)
    for n in range(30):
        db.append_message("s", "user", f"row {n}")
    assert db.message_count() == 30
    done.set()
    reader.join(300)
    assert seen == [0], "the long read saw one snapshot"


def test_the_wal_is_bounded_again_once_a_reader_that_pinned_it_has_left(make_db: Any, db_path: Path) -> None:
    wal = Path(f"{db_path}-wal")
    db = make_db()
    db.create_session("s", "cli")
    big = "x" * 100_000
    with peer(db_path, "hold-read") as reader:
        reader.ready()
        for _ in range(220):
            db.append_message("s", "assistant", None, reasoning=big)
        pinned = wal.stat().st_size
        assert pinned > 20_000_000
        reader.go().finish()
    for n in range(300):
        db.append_message("s", "user", f"small {n}")
        db._engine.upkeep.checkpoint()
    assert wal.stat().st_size <= 17_000_000
    db.close()
    assert not wal.exists() or wal.stat().st_size == 0
    sound(db_path)


def test_a_lock_that_is_freed_in_time_costs_no_error_in_any_of_many_threads(
    make_db: Any, db_path: Path
) -> None:
    db = make_db(patience=300.0)
    db.create_session("s", "cli")
    results: list[Any] = []
    start = threading.Barrier(13)

    def write(number: int) -> None:
        start.wait()
        try:
            if number % 3:
                results.append(db.append_message("s", "user", f"row {number}"))
            else:
                db.set_meta(f"key {number}", "value")
        except errors.HermesStateError as error:
            results.append(error)

    with peer(db_path, "hold-lock", "--seconds", 1) as holder:
        holder.ready()
        threads = [threading.Thread(target=write, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        start.wait()
        for thread in threads:
            thread.join(300)
        holder.finish()
    assert sorted(results) == sorted(m["id"] for m in db.get_messages("s"))
    assert len(results) == 8


def test_a_search_while_another_process_holds_the_lock_misses_nothing_committed(
    db_path: Path,
) -> None:
    with SessionDB(db_path) as db:
        db.create_session("s", "cli")
        ids = db.append_messages("s", [{"role": "user", "content": f"row {n}"} for n in range(50)])
        with peer(db_path, "hold-lock", "--seconds", 1) as holder:
            holder.ready()
            assert {hit["id"] for hit in db.search_messages("row", limit=-1)} == set(ids)
            holder.finish()
