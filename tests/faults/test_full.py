"""No room: a typed error, everything in step, and on it goes when there is room again."""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import sound

from hermes_state import SessionDB, errors

TEXT = "full " + "x" * 3000


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Sets how many pages a file may have, for connections opened from then on; None: no bound."""
    import apsw

    def set_limit(pages: int | None) -> None:
        hooks = [] if pages is None else [lambda conn: conn.execute(f"PRAGMA max_page_count={pages}")]
        monkeypatch.setattr(apsw, "connection_hooks", hooks)

    return set_limit


PAGES = 110
"""Room for the empty tables and indexes, and for some dozens of rows."""


@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_an_append_without_room_says_so_and_stores_nothing_of_itself(
    make_db: Any, db_path: Path, indexing: str, limit: Callable[[int | None], None]
) -> None:
    limit(PAGES)
    db = make_db(indexing=indexing)
    db.create_session("s", "cli")
    stored: list[int] = []
    with pytest.raises(errors.StoreFullError, match="full") as caught:
        for _ in range(200):
            stored.append(db.append_message("s", "user", TEXT))
    assert isinstance(caught.value, sqlite3.OperationalError)
    assert str(db_path) in str(caught.value)
    assert db.get_session("s")["message_count"] == len(stored) == db.message_count()
    assert [m["id"] for m in db.get_messages("s")] == stored
    db.close()
    limit(None)
    db = make_db(indexing=indexing)
    stored.append(db.append_message("s", "user", "room again"))
    assert {hit["id"] for hit in db.search_messages("full OR room", limit=-1)} == set(stored)
    db.close()
    assert sound(db_path) == set(stored)


def test_a_batch_and_a_replacement_without_room_leave_the_session_as_it_was(
    make_db: Any, db_path: Path, limit: Callable[[int | None], None]
) -> None:
    limit(PAGES)
    db = make_db()
    db.create_session("s", "cli")
    before = db.append_messages("s", [{"role": "user", "content": f"before {n}"} for n in range(5)])
    many = [{"role": "user", "content": TEXT} for _ in range(200)]
    with pytest.raises(errors.StoreFullError):
        db.append_messages("s", many)
    with pytest.raises(errors.StoreFullError):
        db.replace_messages("s", many)
    assert [m["id"] for m in db.get_messages("s")] == before
    assert db.get_session("s")["message_count"] == 5
    assert {hit["id"] for hit in db.search_messages("before")} == set(before)
    db.close()
    limit(None)
    db = make_db()
    db.append_messages("s", many)
    db.close()
    assert len(sound(db_path)) == 205


def test_threads_that_share_a_commit_without_room_each_learn_what_became_of_theirs(
    make_db: Any, db_path: Path, limit: Callable[[int | None], None]
) -> None:
    limit(PAGES)
    db = make_db()
    db.create_session("s", "cli")
    stored: list[int] = []
    refused: list[Exception] = []
    start = threading.Barrier(8)

    def write() -> None:
        start.wait(300)
        for _ in range(20):
            try:
                stored.append(db.append_message("s", "user", TEXT))
            except errors.StoreFullError as error:
                refused.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert len(stored) + len(refused) == 160
    assert refused
    assert [m["id"] for m in db.get_messages("s")] == sorted(stored)
    db.close()
    limit(None)
    make_db().close()
    assert sound(db_path) == set(stored)


def test_a_disk_that_fills_up_gives_a_typed_error_and_the_store_works_when_there_is_room(
    small_disk: Path | None,
) -> None:
    if small_disk is None:
        return  # this user may not mount a small file system; the tests above use SQLite's own limit
    path = small_disk / "state.db"
    ballast = small_disk / "ballast"
    db = SessionDB(path)
    db.create_session("s", "cli")
    ballast.write_bytes(b"b" * 1_000_000)
    stored: list[int] = []
    with pytest.raises((errors.StoreFullError, errors.StoreIOError)):
        for _ in range(2000):
            stored.append(db.append_message("s", "user", TEXT))
    assert [m["id"] for m in db.get_messages("s")] == stored
    db._engine._worker.stop()  # else it may take the room for the index first
    ballast.unlink()
    stored.append(db.append_message("s", "user", "room again"))
    assert [m["id"] for m in db.get_messages("s")] == stored
    db.close()
    with SessionDB(path) as again:
        assert [m["id"] for m in again.get_messages("s")] == stored
        assert again.get_session("s")["message_count"] == len(stored)


def test_rows_that_could_not_be_indexed_for_want_of_room_are_stored_and_found_later(
    make_db: Any, db_path: Path, limit: Callable[[int | None], None]
) -> None:
    limit(PAGES)
    db = make_db()
    db.create_session("s", "cli")
    stored: list[int] = []
    with pytest.raises(errors.StoreFullError):
        for number in range(2000):
            stored += db.append_messages(
                "s", [{"role": "user", "content": f"row {number} {number * 7919:x}"}] * 10
            )
    assert db.message_count() == len(stored)
    db.close()
    limit(None)
    db = make_db()
    assert {hit["id"] for hit in db.search_messages("row", limit=-1)} == set(stored)
    db.close()
    assert sound(db_path) == set(stored)


def _filled(path: Path) -> list[str]:
    """A store with some weight in every part; the texts of session ``kept``."""
    with SessionDB(path) as db:
        for name in ("kept", "other", "old"):
            db.create_session(name, "cli")
            db.append_messages(
                name,
                [{"role": "user", "content": f"{name} {n} 广西 " + f"{n * 7919:x} " * 60} for n in range(90)],
            )
        db.end_session("old", "done")
        db._conn.execute("UPDATE sessions SET started_at = 1 WHERE id = 'old'")
        db._conn.execute("UPDATE messages SET timestamp = 1 WHERE session_id = 'old'")
        return [m["content"] for m in db.get_messages("kept")]


def _import(db: SessionDB) -> None:
    lines = [f'{{"role": "user", "content": "imported {n} {"text " * 60}"}}' for n in range(120)]
    db.import_jsonl(io.BytesIO("\n".join(lines).encode()), session_id="imported")


LONG_WORK: dict[str, Callable[[SessionDB], object]] = {
    "prune": lambda db: db.prune_sessions(30),
    "delete": lambda db: db.delete_session("other"),
    "clear": lambda db: db.clear_messages("other"),
    "import": _import,
    "vacuum": lambda db: db.vacuum(),
    "vacuum in steps": lambda db: db.vacuum(incremental=True),
    "backup": lambda db: db.backup(db.db_path.with_name("copy.db")),
    "trigram mode": lambda db: db.set_trigram_mode("unspaced"),
    "rebuild": lambda db: db.rebuild_index(),
    "optimize": lambda db: db.optimize(),
    "sql of others": lambda db: db._conn.execute(
        "UPDATE messages SET content = content || '+' WHERE id > 90"
    ),
}


@pytest.mark.parametrize("room", [0, 40_000, 200_000])
@pytest.mark.parametrize("work", LONG_WORK)
def test_a_disk_that_fills_up_in_the_middle_of_long_work_costs_nothing_but_the_work(
    small_disk: Path | None, work: str, room: int
) -> None:
    if small_disk is None:
        return  # this user may not mount a small file system
    path, ballast = small_disk / "state.db", small_disk / "ballast"
    texts = _filled(path)
    with SessionDB(path) as db:
        db.append_message("other", "user", "opens the writer")
        db.search_messages("kept")
        db._engine._worker.stop()  # it takes room when it likes
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
        ballast.write_bytes(b"b" * max(0, free - room))
        with contextlib.suppress(errors.HermesStateError):  # it may also find room
            LONG_WORK[work](db)
        assert [m["content"] for m in db.get_messages("kept")] == texts
        ballast.unlink()
        LONG_WORK[work](db)
        db.append_message("kept", "user", "room again")
        assert len(db.search_messages("kept OR room", limit=-1)) == len(texts) + 1
    with SessionDB(path) as db:
        report = db.check()
        assert report["ok"], report["problems"]
        assert [m["content"] for m in db.get_messages("kept")] == [*texts, "room again"]
        db.set_trigram_mode("all")
    sound(path)


def test_reads_and_searches_work_on_a_full_disk_while_rows_wait_for_the_index(
    make_db: Any, db_path: Path, limit: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_state.engine import worker

    monkeypatch.setattr(worker.Worker, "_start", lambda self: None)
    limit(PAGES)
    db = make_db()
    db.create_session("s", "cli")
    stored: list[int] = []
    with pytest.raises(errors.StoreFullError):
        for number in range(2000):
            stored.append(db.append_message("s", "user", f"row {number} 桂林 {number * 7919:x} " * 20))
    assert db.store_info()["index_pending"]
    assert {hit["id"] for hit in db.search_messages("row", limit=-1)} == set(stored)
    assert {hit["id"] for hit in db.search_messages("桂林", limit=-1)} == set(stored)
    assert db._conn.execute("SELECT count(*) FROM messages").fetchone()[0] == len(stored)
    with pytest.raises(errors.StoreFullError):
        # Its answer would be wrong, so it must be an error.
        db._conn.execute("SELECT count(*) FROM messages_fts")
    assert db.list_sessions_rich()[0]["message_count"] == len(stored)
    db.close()
    limit(None)
    db = make_db()
    assert db._conn.execute("SELECT count(*) FROM messages_fts").fetchone()[0] == len(stored)
    db.close()
    assert sound(db_path) == set(stored)
