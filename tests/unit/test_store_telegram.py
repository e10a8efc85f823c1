"""store.telegram: topic mode, bindings, the tables' two versions."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest
from store_helpers import NOW, add_message, add_session, connect, value

from hermes_state.store import meta, telegram, telegram_schema

CHAT, USER = 100, 7


@pytest.fixture
def conn() -> Iterator[apsw.Connection]:
    connection = connect()
    for number, session_id in enumerate(("a", "b", "c")):
        add_session(connection, session_id, NOW + number, source="telegram", user_id=str(USER))
    yield connection
    connection.close()


def tables(conn: apsw.Connection) -> set[str]:
    return {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE name LIKE 'telegram%'")}


def bind(
    conn: apsw.Connection, session_id: str, thread_id: int | str = 1, now: float = NOW, **fields: str
) -> None:
    telegram.bind(
        conn,
        chat_id=CHAT,
        thread_id=thread_id,
        user_id=USER,
        session_key="key",
        session_id=session_id,
        now=now,
        **fields,
    )


def test_readers_answer_none_and_make_no_tables(conn: apsw.Connection) -> None:
    assert telegram.is_enabled(conn, chat_id=CHAT, user_id=USER) is False
    assert telegram.binding(conn, chat_id=CHAT, thread_id=1) is None
    assert telegram.binding_by_session(conn, session_id="a") is None
    assert telegram.bindings_for_chat(conn, chat_id=CHAT) == []
    assert telegram.is_linked(conn, session_id="a") is False
    telegram.disable(conn, chat_id=CHAT)
    assert len(telegram.unlinked_sessions(conn, chat_id=CHAT, user_id=USER)) == 3
    assert tables(conn) == set()
    assert meta.get(conn, telegram_schema.VERSION_KEY) is None


def test_apply_makes_both_tables_and_their_indexes_once(conn: apsw.Connection) -> None:
    telegram.apply(conn)
    assert tables(conn) == {"telegram_dm_topic_mode", "telegram_dm_topic_bindings"}
    assert (
        value(conn, "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'idx_telegram_dm_topic_bindings_%'")
        == 2
    )
    assert meta.get(conn, "telegram_dm_topic_schema_version") == "2"
    before = conn.total_changes()
    telegram.apply(conn)
    assert conn.total_changes() == before
    assert telegram_schema.is_current(conn) is True


def test_enable_and_disable(conn: apsw.Connection) -> None:
    telegram.enable(conn, chat_id=CHAT, user_id=USER, now=NOW)
    assert telegram.is_enabled(conn, chat_id=str(CHAT), user_id=str(USER)) is True
    assert telegram.is_enabled(conn, chat_id=CHAT, user_id=8) is False
    assert telegram.is_enabled(conn, chat_id=101, user_id=USER) is False
    telegram.disable(conn, chat_id=CHAT, now=NOW + 5)
    assert telegram.is_enabled(conn, chat_id=CHAT, user_id=USER) is False
    assert value(conn, "SELECT updated_at FROM telegram_dm_topic_mode") == NOW + 5


def mode(conn: apsw.Connection) -> tuple[object, ...]:
    return conn.execute(
        "SELECT activated_at, updated_at, has_topics_enabled, allows_users_to_create_topics, "
        "capability_checked_at FROM telegram_dm_topic_mode"
    ).fetchone()  # type: ignore[return-value]


def test_enabling_again_keeps_the_activation_and_the_capabilities_not_given(conn: apsw.Connection) -> None:
    telegram.enable(conn, chat_id=CHAT, user_id=USER, has_topics_enabled=True, now=NOW)
    assert mode(conn) == (NOW, NOW, 1, None, NOW)
    telegram.enable(conn, chat_id=CHAT, user_id=USER, now=NOW + 1)
    assert mode(conn) == (NOW, NOW + 1, 1, None, NOW)
    telegram.enable(conn, chat_id=CHAT, user_id=USER, allows_users_to_create_topics=False, now=NOW + 2)
    assert mode(conn) == (NOW, NOW + 2, 1, 0, NOW + 2)
    telegram.disable(conn, chat_id=CHAT)
    telegram.enable(conn, chat_id=CHAT, user_id=USER, now=NOW + 3)
    assert mode(conn) == (NOW + 3, NOW + 3, 1, 0, NOW + 2)


def test_a_topic_is_bound_and_read_back(conn: apsw.Connection) -> None:
    bind(conn, "a", thread_id=5)
    expected = {
        "chat_id": "100", "thread_id": "5", "user_id": "7", "session_key": "key", "session_id": "a",
        "managed_mode": "auto", "linked_at": NOW, "updated_at": NOW,
    }  # fmt: skip
    assert telegram.binding(conn, chat_id=CHAT, thread_id="5") == expected
    assert telegram.binding_by_session(conn, session_id="a") == expected
    assert telegram.is_linked(conn, session_id="a") is True
    assert telegram.is_linked(conn, session_id="b") is False


def test_the_same_pair_again_is_fine_and_keeps_the_time_it_was_linked(conn: apsw.Connection) -> None:
    bind(conn, "a")
    bind(conn, "a", now=NOW + 5, managed_mode="manual")
    found = telegram.binding(conn, chat_id=CHAT, thread_id=1)
    assert found is not None
    assert (found["linked_at"], found["updated_at"], found["managed_mode"]) == (NOW, NOW + 5, "manual")


def test_one_session_has_one_topic(conn: apsw.Connection) -> None:
    bind(conn, "a", thread_id=1)
    with pytest.raises(ValueError, match="Session a is already linked to another topic"):
        bind(conn, "a", thread_id=2)
    assert telegram.binding(conn, chat_id=CHAT, thread_id=2) is None


def test_a_topic_moves_to_a_new_session(conn: apsw.Connection) -> None:
    bind(conn, "a")
    bind(conn, "b", now=NOW + 9)
    assert telegram.is_linked(conn, session_id="a") is False
    found = telegram.binding(conn, chat_id=CHAT, thread_id=1)
    assert found is not None
    assert (found["session_id"], found["linked_at"]) == ("b", NOW + 9)


def test_an_unknown_session_cannot_be_bound(conn: apsw.Connection) -> None:
    with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY"):
        bind(conn, "nobody")


def test_bindings_of_a_chat_come_newest_update_first_and_go_when_asked(conn: apsw.Connection) -> None:
    bind(conn, "a", 1, NOW)
    bind(conn, "b", 2, NOW + 2)
    bind(conn, "c", 3, NOW + 1)
    listed = telegram.bindings_for_chat(conn, chat_id=CHAT)
    assert [row["session_id"] for row in listed] == ["b", "c", "a"]
    telegram.disable(conn, chat_id=CHAT, clear_bindings=False)
    assert len(telegram.bindings_for_chat(conn, chat_id=CHAT)) == 3
    telegram.disable(conn, chat_id=CHAT)
    assert telegram.bindings_for_chat(conn, chat_id=CHAT) == []


def test_unlinked_sessions_are_the_users_own_by_activity_with_previews(conn: apsw.Connection) -> None:
    add_session(conn, "other-user", source="telegram", user_id="8")
    add_session(conn, "other-source", user_id=str(USER))
    add_session(conn, "sub", NOW + 9, source="telegram", user_id=str(USER), parent_session_id="a")
    add_message(conn, "a", "hello there", timestamp=NOW + 50)
    bind(conn, "b")
    rows = telegram.unlinked_sessions(conn, chat_id=CHAT, user_id=USER)
    assert [(row["id"], row["preview"], row["last_active"]) for row in rows] == [
        ("a", "hello there", NOW + 50), ("c", "", NOW + 2),
    ]  # fmt: skip
    assert rows[0]["source"] == "telegram"
    assert len(telegram.unlinked_sessions(conn, chat_id=CHAT, user_id=USER, limit=1)) == 1


def test_a_compressed_sessions_continuation_is_offered(conn: apsw.Connection) -> None:
    conn.execute("UPDATE sessions SET ended_at = ?, end_reason = 'compression' WHERE id = 'a'", (NOW + 5,))
    add_session(conn, "tip", NOW + 5, source="telegram", user_id=str(USER), parent_session_id="a")
    assert telegram.unlinked_sessions(conn, chat_id=CHAT, user_id=USER)[0]["id"] == "tip"


def test_a_version_1_table_is_rebuilt_with_its_rows(conn: apsw.Connection) -> None:
    telegram.apply(conn)
    sql = value(conn, "SELECT sql FROM sqlite_master WHERE name = 'telegram_dm_topic_bindings'")
    conn.execute("DROP TABLE telegram_dm_topic_bindings")
    conn.execute(sql.replace(" ON DELETE CASCADE", ""))
    conn.execute("PRAGMA foreign_keys = 0")
    for thread, session_id, updated in (
        ("1", "a", NOW),
        ("2", "a", NOW + 1),
        ("3", "b", NOW),
        ("4", "gone", NOW),
    ):
        conn.execute(
            "INSERT INTO telegram_dm_topic_bindings VALUES ('100', ?, '7', 'key', ?, 'auto', ?, ?)",
            (thread, session_id, updated, updated),
        )
    conn.execute("PRAGMA foreign_keys = 1")
    meta.set(conn, telegram_schema.VERSION_KEY, "1")
    assert telegram_schema.is_current(conn) is False
    conn.execute("BEGIN IMMEDIATE")
    telegram.apply(conn)
    conn.execute("COMMIT")
    assert telegram_schema.is_current(conn) is True
    kept = {row["thread_id"]: row["session_id"] for row in telegram.bindings_for_chat(conn, chat_id=CHAT)}
    assert kept == {"2": "a", "3": "b"}
    conn.execute("DELETE FROM sessions WHERE id = 'a'")
    assert telegram.is_linked(conn, session_id="a") is False
    assert value(conn, "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'hs_telegram%'") == 0


def test_ids_may_be_numbers_but_not_none(conn: apsw.Connection) -> None:
    with pytest.raises(TypeError, match="user_id"):
        telegram.enable(conn, chat_id=1, user_id=None)  # type: ignore[arg-type]
    telegram.enable(conn, chat_id=-1001234567890, user_id=5)
    assert telegram.is_enabled(conn, chat_id="-1001234567890", user_id="5") is True
