"""No room: a typed error, everything in step, and on it goes when there is room again."""

from __future__ import annotations

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
        start.wait(30)
        for _ in range(20):
            try:
                stored.append(db.append_message("s", "user", TEXT))
            except errors.StoreFullError as error:
                refused.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
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
