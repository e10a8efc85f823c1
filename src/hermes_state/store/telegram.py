"""Telegram topic mode: which chats use topics, and which topic belongs to which session.

Ids of chats, threads, users and sessions are stored as text; numbers are taken
as well. Writers make the tables when they are needed, readers answer "none"
without them.
"""

from __future__ import annotations

import time
from typing import Any

import apsw

from hermes_state.store import telegram_schema as schema
from hermes_state.store.listing import LAST_ACTIVE, with_preview
from hermes_state.store.rows import dicts, one
from hermes_state.store.values import bound, has_table, required_text, text

_ENABLE = """\
INSERT INTO telegram_dm_topic_mode(chat_id, user_id, enabled, activated_at, updated_at,
    has_topics_enabled, allows_users_to_create_topics, capability_checked_at)
VALUES (?1, ?2, 1, ?3, ?3, ?4, ?5, ?6)
ON CONFLICT(chat_id) DO UPDATE SET
    user_id = excluded.user_id,
    activated_at = CASE WHEN enabled THEN activated_at ELSE excluded.activated_at END,
    enabled = 1,
    updated_at = excluded.updated_at,
    has_topics_enabled = COALESCE(excluded.has_topics_enabled, has_topics_enabled),
    allows_users_to_create_topics =
        COALESCE(excluded.allows_users_to_create_topics, allows_users_to_create_topics),
    capability_checked_at = COALESCE(excluded.capability_checked_at, capability_checked_at)
"""

_BIND = """\
INSERT INTO telegram_dm_topic_bindings
    (chat_id, thread_id, user_id, session_key, session_id, managed_mode, linked_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
ON CONFLICT(chat_id, thread_id) DO UPDATE SET
    user_id = excluded.user_id,
    session_key = excluded.session_key,
    linked_at = CASE session_id WHEN excluded.session_id THEN linked_at ELSE excluded.linked_at END,
    session_id = excluded.session_id,
    managed_mode = excluded.managed_mode,
    updated_at = excluded.updated_at
"""

# A child is offered if it is a conversation of its own: a branch, or what a
# compression continued (see lineage); the sub-agents' sessions are not.
_UNLINKED = f"""\
SELECT s.*, {LAST_ACTIVE} AS last_active FROM sessions s
WHERE s.source = 'telegram' AND s.user_id = ?1
  AND (s.parent_session_id IS NULL OR EXISTS (
      SELECT 1 FROM sessions p
      WHERE p.id = s.parent_session_id AND p.end_reason IN ('branched', 'compression')
        AND s.started_at >= p.ended_at - 1.0))
"""  # noqa: S608 -- constant SQL
_NOT_BOUND = "  AND NOT EXISTS (SELECT 1 FROM telegram_dm_topic_bindings b WHERE b.session_id = s.id)\n"
_PAGE = "ORDER BY last_active DESC, s.started_at DESC, s.id DESC LIMIT ?2"

apply = schema.apply


def enable(
    conn: apsw.Connection,
    *,
    chat_id: str | int,
    user_id: str | int,
    has_topics_enabled: bool | None = None,
    allows_users_to_create_topics: bool | None = None,
    now: float | None = None,
) -> None:
    """Switch topic mode on for a chat; a chat that has it keeps the time at which it was switched on.

    A capability that is not given keeps its value; when either is given, it was checked now.
    """
    schema.apply(conn)
    moment = time.time() if now is None else now
    given = has_topics_enabled is not None or allows_users_to_create_topics is not None
    conn.execute(
        _ENABLE,
        (
            _id(chat_id, "chat_id"),
            _id(user_id, "user_id"),
            moment,
            _flag(has_topics_enabled),
            _flag(allows_users_to_create_topics),
            moment if given else None,
        ),
    )


def disable(
    conn: apsw.Connection, *, chat_id: str | int, clear_bindings: bool = True, now: float | None = None
) -> None:
    """Switch topic mode off for a chat and, unless told otherwise, forget its topics' sessions."""
    chat = _id(chat_id, "chat_id")
    if has_table(conn, schema.MODE):
        conn.execute(
            "UPDATE telegram_dm_topic_mode SET enabled = 0, updated_at = ? WHERE chat_id = ?",
            (time.time() if now is None else now, chat),
        )
    if clear_bindings and has_table(conn, schema.BINDINGS):
        conn.execute("DELETE FROM telegram_dm_topic_bindings WHERE chat_id = ?", (chat,))


def is_enabled(conn: apsw.Connection, *, chat_id: str | int, user_id: str | int) -> bool:
    """True if this user switched topic mode on for this chat."""
    if not has_table(conn, schema.MODE):
        return False
    sql = "SELECT 1 FROM telegram_dm_topic_mode WHERE chat_id = ? AND user_id = ? AND enabled"
    return conn.execute(sql, (_id(chat_id, "chat_id"), _id(user_id, "user_id"))).fetchone() is not None


def bind(
    conn: apsw.Connection,
    *,
    chat_id: str | int,
    thread_id: str | int,
    user_id: str | int,
    session_key: str,
    session_id: str,
    managed_mode: str = "auto",
    now: float | None = None,
) -> None:
    """Let a topic (chat and thread) belong to a session; a topic that had another session moves to this one.

    Raises:
        ValueError: the session belongs to another topic ("... already linked ...").
        apsw.ConstraintError: there is no such session.
    """
    schema.apply(conn)
    chat, thread = _id(chat_id, "chat_id"), _id(thread_id, "thread_id")
    session = required_text(session_id, "session_id")
    other = binding_by_session(conn, session_id=session)
    if other is not None and (other["chat_id"], other["thread_id"]) != (chat, thread):
        raise ValueError(f"Session {session} is already linked to another topic: {other['thread_id']}")
    user, key = _id(user_id, "user_id"), _id(session_key, "session_key")
    mode = required_text(managed_mode, "managed_mode")
    conn.execute(_BIND, (chat, thread, user, key, session, mode, time.time() if now is None else now))


def binding(conn: apsw.Connection, *, chat_id: str | int, thread_id: str | int) -> dict[str, Any] | None:
    """All columns of the topic's binding, or None."""
    if not has_table(conn, schema.BINDINGS):
        return None
    sql = "SELECT * FROM telegram_dm_topic_bindings WHERE chat_id = ? AND thread_id = ?"
    return one(conn, sql, (_id(chat_id, "chat_id"), _id(thread_id, "thread_id")))


def binding_by_session(conn: apsw.Connection, *, session_id: str) -> dict[str, Any] | None:
    """All columns of the session's binding, or None."""
    if not has_table(conn, schema.BINDINGS):
        return None
    sql = "SELECT * FROM telegram_dm_topic_bindings WHERE session_id = ?"
    return one(conn, sql, (text(session_id, "session_id"),))


def bindings_for_chat(conn: apsw.Connection, *, chat_id: str | int) -> list[dict[str, Any]]:
    """The bindings of a chat's topics, newest update first."""
    if not has_table(conn, schema.BINDINGS):
        return []
    sql = "SELECT * FROM telegram_dm_topic_bindings WHERE chat_id = ? ORDER BY updated_at DESC, thread_id"
    return dicts(conn, sql, (_id(chat_id, "chat_id"),))


def is_linked(conn: apsw.Connection, *, session_id: str) -> bool:
    """True if the session belongs to a topic."""
    return binding_by_session(conn, session_id=session_id) is not None


def unlinked_sessions(
    conn: apsw.Connection, *, chat_id: str | int, user_id: str | int, limit: int = 10
) -> list[dict[str, Any]]:
    """The user's Telegram sessions that no topic holds, newest activity first.

    All session columns with ``preview`` and ``last_active``. A session that any
    chat's topic holds is linked, so ``chat_id`` does not narrow the list.
    """
    _id(chat_id, "chat_id")
    sql = _UNLINKED + (_NOT_BOUND if has_table(conn, schema.BINDINGS) else "") + _PAGE
    return with_preview(conn, dicts(conn, sql, (_id(user_id, "user_id"), bound(limit))))


def _id(value: str | int, name: str) -> str:
    found = text(value, name)
    if found is None:
        raise TypeError(f"{name} must be a str or an int, not None")
    return found


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(bool(value))
