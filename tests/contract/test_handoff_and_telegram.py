"""Handing a session over, and Telegram topic mode (sections 4 and 5 of the contract)."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

TABLES = "SELECT name FROM sqlite_master WHERE name LIKE 'telegram%' AND type = 'table' ORDER BY name"


def tables(db: Any) -> list[str]:
    return [row[0] for row in db._conn.execute(TABLES)]


def bind(db: Any, chat: Any, thread: Any, session: str, **more: Any) -> None:
    db.bind_telegram_topic(
        chat_id=chat, thread_id=thread, user_id="u", session_key=f"key-{session}", session_id=session, **more
    )


@pytest.fixture
def three(db: Any) -> Any:
    """A store with three telegram sessions of user ``u``, each with a message."""
    for name in ("a", "b", "c"):
        db.create_session(name, "telegram", user_id="u")
        db.append_message(name, "user", f"hello {name}")
    return db


def test_a_handoff_goes_from_pending_to_running_to_completed(db: Any) -> None:
    db.create_session("s", "cli")
    assert db.get_handoff_state("s") is None
    assert db.list_pending_handoffs() == []
    assert db.claim_handoff("s") is False
    assert db.request_handoff("s", "telegram") is True
    assert db.get_handoff_state("s") == {"state": "pending", "platform": "telegram", "error": None}
    assert db.request_handoff("s", "discord") is False
    (pending,) = db.list_pending_handoffs()
    assert (pending["id"], pending["handoff_platform"], pending["source"]) == ("s", "telegram", "cli")
    assert db.claim_handoff("s") is True
    assert db.claim_handoff("s") is False
    assert db.list_pending_handoffs() == []
    assert db.request_handoff("s", "discord") is False
    assert db.complete_handoff("s") is None
    assert db.get_handoff_state("s")["state"] == "completed"
    assert db.request_handoff("s", "discord") is True


def test_a_failed_handoff_keeps_its_reason_until_the_next(db: Any) -> None:
    db.create_session("s", "cli")
    db.request_handoff("s", "telegram")
    db.claim_handoff("s")
    db.fail_handoff("s", "no route")
    assert db.get_handoff_state("s") == {"state": "failed", "platform": "telegram", "error": "no route"}
    db.request_handoff("s", "discord")
    assert db.get_handoff_state("s") == {"state": "pending", "platform": "discord", "error": None}
    assert db.request_handoff("nobody", "x") is False
    assert db.get_handoff_state("nobody") is None


def test_a_v11_file_has_no_telegram_tables_until_they_are_asked_for(three: Any) -> None:
    assert three.is_telegram_topic_mode_enabled(chat_id="1", user_id="u") is False
    assert three.get_telegram_topic_binding(chat_id="1", thread_id="2") is None
    assert three.get_telegram_topic_binding_by_session(session_id="a") is None
    assert three.list_telegram_topic_bindings_for_chat(chat_id="1") == []
    assert three.is_telegram_session_linked_to_topic(session_id="a") is False
    assert len(three.list_unlinked_telegram_sessions_for_user(chat_id="1", user_id="u")) == 3
    three.disable_telegram_topic_mode(chat_id="1")
    assert tables(three) == []
    assert three.get_meta("telegram_dm_topic_schema_version") is None


@pytest.mark.parametrize(
    "how",
    [
        lambda db: db.apply_telegram_topic_migration(),
        lambda db: db.enable_telegram_topic_mode(chat_id="1", user_id="u"),
        lambda db: bind(db, "1", "2", "a"),
    ],
)
def test_the_tables_are_made_by_apply_enable_and_bind(three: Any, how: Any) -> None:
    for _ in range(2):
        how(three)
        assert tables(three) == ["telegram_dm_topic_bindings", "telegram_dm_topic_mode"]
        assert three.get_meta("telegram_dm_topic_schema_version") == "2"
    columns = {
        row["name"]: row["type"] for row in three._conn.execute("PRAGMA table_info(telegram_dm_topic_mode)")
    }
    assert list(columns) == [
        "chat_id", "user_id", "enabled", "activated_at", "updated_at", "has_topics_enabled",
        "allows_users_to_create_topics", "capability_checked_at", "intro_message_id", "pinned_message_id",
    ]  # fmt: skip
    names = [row["name"] for row in three._conn.execute("PRAGMA table_info(telegram_dm_topic_bindings)")]
    assert names == [
        "chat_id", "thread_id", "user_id", "session_key", "session_id", "managed_mode", "linked_at",
        "updated_at",
    ]  # fmt: skip
    indexes = {
        row["name"]: row["unique"]
        for row in three._conn.execute("PRAGMA index_list(telegram_dm_topic_bindings)")
    }
    assert indexes["idx_telegram_dm_topic_bindings_session"] == 1
    assert indexes["idx_telegram_dm_topic_bindings_user"] == 0
    (key,) = three._conn.execute("PRAGMA foreign_key_list(telegram_dm_topic_bindings)").fetchall()
    assert key["on_delete"] == "CASCADE"


def test_topic_mode_is_of_a_chat_and_its_user(db: Any) -> None:
    db.enable_telegram_topic_mode(chat_id=100, user_id=7, has_topics_enabled=True)
    assert db.is_telegram_topic_mode_enabled(chat_id="100", user_id="7") is True
    assert db.is_telegram_topic_mode_enabled(chat_id=100, user_id=7) is True
    assert db.is_telegram_topic_mode_enabled(chat_id="100", user_id="8") is False
    assert db.is_telegram_topic_mode_enabled(chat_id="101", user_id="7") is False
    db.disable_telegram_topic_mode(chat_id=100)
    assert db.is_telegram_topic_mode_enabled(chat_id="100", user_id="7") is False


def test_one_session_has_one_topic_and_the_same_pair_again_is_fine(three: Any) -> None:
    bind(three, "1", "10", "a")
    bind(three, "1", "10", "a", managed_mode="manual")
    binding = three.get_telegram_topic_binding(chat_id="1", thread_id="10")
    assert (binding["session_id"], binding["session_key"], binding["managed_mode"]) == (
        "a",
        "key-a",
        "manual",
    )
    assert three.get_telegram_topic_binding_by_session(session_id="a") == binding
    for chat, thread in (("1", "11"), ("2", "10")):
        with pytest.raises(ValueError, match="already linked"):
            bind(three, chat, thread, "a")
    bind(three, "1", "10", "b")
    assert three.get_telegram_topic_binding_by_session(session_id="a") is None
    assert three.is_telegram_session_linked_to_topic(session_id="b") is True
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        bind(three, "1", "12", "nobody")


def test_bindings_are_listed_by_their_newest_update(three: Any) -> None:
    for thread, session in (("10", "a"), ("11", "b"), ("12", "c")):
        bind(three, "1", thread, session)
    bind(three, "1", "10", "a")
    assert [row["session_id"] for row in three.list_telegram_topic_bindings_for_chat(chat_id="1")] == [
        "a",
        "c",
        "b",
    ]
    three.disable_telegram_topic_mode(chat_id="1", clear_bindings=False)
    assert len(three.list_telegram_topic_bindings_for_chat(chat_id="1")) == 3
    three.disable_telegram_topic_mode(chat_id="1")
    assert three.list_telegram_topic_bindings_for_chat(chat_id="1") == []


def test_unlinked_sessions_are_those_of_the_user_without_a_topic(three: Any) -> None:
    bind(three, "1", "10", "b")
    three.create_session("other", "telegram", user_id="v")
    three.create_session("cli", "cli", user_id="u")
    rows = three.list_unlinked_telegram_sessions_for_user(chat_id="1", user_id="u")
    assert [row["id"] for row in rows] == ["c", "a"]
    assert rows[0]["preview"] == "hello c"
    assert rows[0]["last_active"] == three.get_messages("c")[0]["timestamp"]
    assert len(three.list_unlinked_telegram_sessions_for_user(chat_id="1", user_id="u", limit=1)) == 1


def test_a_deleted_session_frees_its_topic(three: Any) -> None:
    bind(three, "1", "10", "a")
    assert three.delete_session("a") is True
    assert three.get_telegram_topic_binding(chat_id="1", thread_id="10") is None


def test_a_table_of_version_one_is_rebuilt_with_its_rows(three: Any) -> None:
    three._conn.executescript(
        """
        CREATE TABLE telegram_dm_topic_bindings (
            chat_id TEXT NOT NULL, thread_id TEXT NOT NULL, user_id TEXT NOT NULL, session_key TEXT NOT NULL,
            session_id TEXT NOT NULL REFERENCES sessions(id), managed_mode TEXT NOT NULL DEFAULT 'auto',
            linked_at REAL NOT NULL, updated_at REAL NOT NULL, PRIMARY KEY (chat_id, thread_id));
        INSERT INTO telegram_dm_topic_bindings VALUES ('1', '10', 'u', 'k', 'a', 'auto', 5.0, 6.0);
        """
    )
    three.set_meta("telegram_dm_topic_schema_version", "1")
    three.apply_telegram_topic_migration()
    assert three.get_meta("telegram_dm_topic_schema_version") == "2"
    binding = three.get_telegram_topic_binding(chat_id="1", thread_id="10")
    assert (binding["session_id"], binding["linked_at"], binding["updated_at"]) == ("a", 5.0, 6.0)
    three.delete_session("a")
    assert three.list_telegram_topic_bindings_for_chat(chat_id="1") == []
