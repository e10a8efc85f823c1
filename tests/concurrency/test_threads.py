"""Many threads on one store: nothing lost, order kept, one bad append fails alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import sound

from hermes_state import SessionDB, errors


def _together(number: int, work: Callable[[int], None]) -> None:
    """Run ``work(0)`` to ``work(number - 1)`` in threads that begin at one moment; raises what one raised."""
    start = threading.Barrier(number)
    raised: list[BaseException] = []

    def run(index: int) -> None:
        try:
            start.wait(300)
            work(index)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


@pytest.mark.parametrize(("threads", "each"), [(16, 100), (64, 20)])
@pytest.mark.parametrize("one_handle", [True, False], ids=["one-handle", "handle-each"])
def test_no_message_of_any_thread_is_lost_and_each_thread_sees_rising_ids(
    make_db: Any, db_path: Path, threads: int, each: int, one_handle: bool
) -> None:
    db = make_db()
    for index in range(4):
        db.create_session(f"s{index}", "cli")
    ids: dict[int, list[int]] = {}

    def work(index: int) -> None:
        mine = db if one_handle else SessionDB(db_path)
        session = f"s{index % 4}"
        ids[index] = [mine.append_message(session, "user", f"thread{index} {n}") for n in range(each)]
        if not one_handle:
            mine.close()

    _together(threads, work)
    for index, mine in ids.items():
        assert mine == sorted(set(mine))
        assert len(db.search_messages(f"thread{index}", limit=-1)) == each
    everyone = [i for mine in ids.values() for i in mine]
    assert len(set(everyone)) == threads * each == db.message_count()
    assert sum(db.get_session(f"s{n}")["message_count"] for n in range(4)) == threads * each
    for index, mine in ids.items():
        wanted = {i: f"thread{index} {n}" for n, i in enumerate(mine)}
        found = {m["id"]: m["content"] for m in db.get_messages(f"s{index % 4}") if m["id"] in wanted}
        assert found == wanted
    db.close()
    assert sound(db_path) == set(everyone)


def test_one_bad_append_among_sixteen_at_once_fails_alone(make_db: Any, db_path: Path) -> None:
    db = make_db()
    db.create_session("s", "cli")
    failed: list[str] = []
    stored: list[int] = []

    def work(index: int) -> None:
        for n in range(20):
            try:
                if index == 7:
                    db.append_message("no such session", "user", f"bad {n}")
                elif index == 8:
                    db.append_messages("s", [{"role": "user", "content": f"pair {n}"}] * 2)
                else:
                    stored.append(db.append_message("s", "user", f"good {n}"))
            except errors.UnknownSessionError as error:
                failed.append(str(error))

    _together(16, work)
    assert len(failed) == 20
    assert all("FOREIGN KEY constraint failed" in text for text in failed)
    assert len(set(stored)) == 14 * 20
    db.close()
    assert set(stored) <= sound(db_path)


def test_readers_writers_searchers_and_replacers_at_once_keep_everything_in_step(
    make_db: Any, db_path: Path
) -> None:
    db = make_db()
    db.create_session("s", "cli")
    db.create_session("r", "cli")

    def work(index: int) -> None:
        for n in range(15):
            kind = index % 5
            if kind == 0:
                db.append_message("s", "user", f"needle {index} {n} 针")
            elif kind == 1:
                hits = db.search_messages("needle", limit=-1)
                assert all(hit["session_id"] == "s" for hit in hits)
            elif kind == 2:
                counted = db.get_session("s")["message_count"]
                assert len(db.get_messages("s")) >= counted
            elif kind == 3:
                db.replace_messages(
                    "r", [{"role": "user", "content": f"r {index} {n} {m}"} for m in range(5)]
                )
                assert len(db.get_messages("r")) == 5
            else:
                db._conn.execute("INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (f"k{index}", str(n)))
                assert db._conn.execute("SELECT count(*) FROM messages").fetchone()[0] >= 0

    _together(10, work)
    assert len(db.search_messages("needle", limit=-1)) == 30
    db.close()
    assert len(sound(db_path)) == 35


def test_idle_threads_that_once_read_hold_no_connection(make_db: Any) -> None:
    db = make_db()
    db.create_session("s", "cli")
    db.append_message("s", "user", "words")
    read, done = threading.Semaphore(0), threading.Event()

    def idle() -> None:
        db.get_messages("s")
        db.search_messages("words")
        read.release()
        done.wait(300)

    threads = [threading.Thread(target=idle) for _ in range(200)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert read.acquire(timeout=300)
    assert db._engine._readers.opened <= 6
    done.set()
    for thread in threads:
        thread.join(300)


def test_a_store_in_inline_mode_has_every_row_indexed_by_its_commit(make_db: Any, db_path: Path) -> None:
    db = make_db(indexing="inline")
    db.create_session("s", "cli")

    def work(index: int) -> None:
        for n in range(10):
            assert _indexed(db, db.append_message("s", "user", f"inline {index} {n}"))

    _together(8, work)


def _indexed(db: Any, message_id: int) -> bool:
    sql = "SELECT count(*) FROM messages_fts_docsize WHERE id = ?"
    return bool(db._read(lambda conn: conn.execute(sql, (message_id,)).fetchone()[0], "test"))
