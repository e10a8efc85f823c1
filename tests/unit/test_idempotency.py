"""A retry with the same key stores once."""

from __future__ import annotations

import threading
from typing import Any

import pytest


def test_a_retry_with_the_same_key_stores_once_and_gets_the_same_id(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    first = any_db.append_message("s", "user", "pay 5", idempotency_key="k1")
    again = any_db.append_message("s", "user", "pay 5", idempotency_key="k1")
    other = any_db.append_message("s", "user", "pay 5", idempotency_key="k2")
    assert first == again != other
    assert any_db.message_count("s") == 2
    assert any_db.get_session("s")["message_count"] == 2
    assert len(any_db.search_messages("pay")) == 2


def test_a_batch_has_one_key(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    batch = [{"role": "user", "content": str(number)} for number in range(40)]
    ids = any_db.append_messages("s", batch, idempotency_key="batch")
    assert any_db.append_messages("s", batch, idempotency_key="batch") == ids
    assert any_db.message_count("s") == 40


def test_a_key_belongs_to_its_session(db: Any) -> None:
    for session in ("a", "b"):
        db.create_session(session, "cli")
        db.append_message(session, "user", "x", idempotency_key="k")
    assert db.message_count() == 2


def test_threads_that_send_the_same_key_at_once_store_once(db: Any) -> None:
    db.create_session("s", "cli")
    barrier = threading.Barrier(8)
    ids: list[int] = []

    def send() -> None:
        barrier.wait(300)
        ids.append(db.append_message("s", "user", "x", idempotency_key="k"))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert db.message_count("s") == 1


def test_a_key_whose_messages_are_gone_stores_anew(db: Any) -> None:
    db.create_session("s", "cli")
    first = db.append_message("s", "user", "x", idempotency_key="k")
    db.clear_messages("s")
    second = db.append_message("s", "user", "x", idempotency_key="k")
    assert second != first
    assert db.message_count("s") == 1
    db.delete_session("s")
    assert db._conn.execute("SELECT COUNT(*) FROM hs_idempotency").fetchone()[0] == 0


def test_a_failed_append_leaves_no_key(db: Any) -> None:
    with pytest.raises(Exception, match="FOREIGN KEY"):
        db.append_message("nobody", "user", "x", idempotency_key="k")
    db.create_session("nobody", "cli")
    assert db.append_message("nobody", "user", "x", idempotency_key="k") == 1


def test_a_key_must_be_text(db: Any) -> None:
    db.create_session("s", "cli")
    with pytest.raises(TypeError, match="idempotency_key"):
        db.append_message("s", "user", "x", idempotency_key=5)
    assert db.message_count() == 0
