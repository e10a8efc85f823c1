"""Rows of ``sessions``: begin, end, look up."""

from __future__ import annotations

import time
from typing import Any

import apsw

from hermes_state._fastpath.encode import encode_json_column
from hermes_state.store.rows import column, one, scalar
from hermes_state.store.values import json_list, required_text, text

UNKNOWN_SOURCE = "unknown"
"""Source of a row that was made before its session was announced."""

_CREATE = """\
INSERT INTO sessions(id, source, user_id, model, model_config, system_prompt, parent_session_id, started_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(id) DO UPDATE SET
    source = CASE sessions.source WHEN 'unknown' THEN excluded.source ELSE sessions.source END,
    user_id = COALESCE(sessions.user_id, excluded.user_id),
    model = COALESCE(sessions.model, excluded.model),
    model_config = COALESCE(sessions.model_config, excluded.model_config),
    system_prompt = COALESCE(sessions.system_prompt, excluded.system_prompt),
    parent_session_id = COALESCE(sessions.parent_session_id, excluded.parent_session_id)
WHERE (sessions.source = 'unknown' AND excluded.source <> 'unknown')
    OR (sessions.user_id IS NULL AND excluded.user_id IS NOT NULL)
    OR (sessions.model IS NULL AND excluded.model IS NOT NULL)
    OR (sessions.model_config IS NULL AND excluded.model_config IS NOT NULL)
    OR (sessions.system_prompt IS NULL AND excluded.system_prompt IS NOT NULL)
    OR (sessions.parent_session_id IS NULL AND excluded.parent_session_id IS NOT NULL)
"""


def create(
    conn: apsw.Connection,
    session_id: str,
    source: str,
    *,
    model: str | None = None,
    model_config: Any = None,
    system_prompt: str | None = None,
    user_id: str | None = None,
    parent_session_id: str | None = None,
    now: float | None = None,
) -> str:
    """Make the session, or fill in what an existing row lacks; returns ``session_id``.

    A row that is there already keeps every value it has; only its NULL columns
    and a source of ``unknown`` take the values given here.

    Args:
        model_config: a dict, or JSON text of one; anything falsy is stored as NULL.
        now: start of a new session, Unix seconds; the clock when None.

    Raises:
        TypeError: ``session_id`` or ``source`` is not a str; nothing was written.
        apsw.ConstraintError: ``parent_session_id`` names no session; nothing was written.
    """
    conn.execute(
        _CREATE,
        (
            required_text(session_id, "session_id"),
            required_text(source, "source"),
            text(user_id, "user_id"),
            text(model, "model"),
            encode_json_column(model_config),
            text(system_prompt, "system_prompt"),
            text(parent_session_id, "parent_session_id"),
            time.time() if now is None else now,
        ),
    )
    return session_id


def ensure(
    conn: apsw.Connection,
    session_id: str,
    source: str = UNKNOWN_SOURCE,
    model: str | None = None,
    **kwargs: Any,
) -> str:
    """``create`` with a source that may come later; an unknown keyword is a TypeError that names it."""
    return create(conn, session_id, source, model=model, **kwargs)


def end(conn: apsw.Connection, session_id: str, end_reason: str | None, *, now: float | None = None) -> None:
    """End the session now, with ``end_reason``; a session that has ended keeps its first reason."""
    conn.execute(
        "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL",
        (time.time() if now is None else now, text(end_reason, "end_reason"), text(session_id, "session_id")),
    )


def reopen(conn: apsw.Connection, session_id: str) -> None:
    """Take back the session's end and its reason."""
    key = text(session_id, "session_id")
    conn.execute("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", (key,))


def update_system_prompt(conn: apsw.Connection, session_id: str, system_prompt: str | None) -> None:
    """Store the system prompt that the session runs with."""
    conn.execute(
        "UPDATE sessions SET system_prompt = ? WHERE id = ?",
        (text(system_prompt, "system_prompt"), text(session_id, "session_id")),
    )


def get(conn: apsw.Connection, session_id: str) -> dict[str, Any] | None:
    """All columns of the session, those of other programs too; None if there is none."""
    return one(conn, "SELECT * FROM sessions WHERE id = ?", (text(session_id, "session_id"),))


def exists(conn: apsw.Connection, session_id: str) -> bool:
    """True if there is such a session."""
    sql = "SELECT 1 FROM sessions WHERE id = ?"
    return conn.execute(sql, (text(session_id, "session_id"),)).fetchone() is not None


def existing(conn: apsw.Connection, ids: list[str]) -> set[str]:
    """Those of ``ids`` that are sessions."""
    sql = "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
    return set(column(conn, sql, (json_list(ids),)))


def resolve_prefix(conn: apsw.Connection, session_id_or_prefix: str) -> str | None:
    """The session of that very id, else the only one whose id begins so, else None.

    Every character is itself: the prefix is a range of ids, not a pattern.
    """
    prefix = text(session_id_or_prefix, "session_id_or_prefix")
    if not prefix:
        return None
    if exists(conn, prefix):
        return prefix
    sql = "SELECT id FROM sessions WHERE id >= ? AND id < ? LIMIT 2"
    found = column(conn, sql, (prefix, end_of_prefix(prefix)))
    return found[0] if len(found) == 1 else None


def end_of_prefix(prefix: str) -> str | bytes:
    """The least value above every text that begins with ``prefix`` in SQLite's BINARY order.

    SQLite compares UTF-8 bytes, which is the order of code points; any BLOB
    stands above all text, so an empty one ends a prefix of U+10FFFF alone.
    """
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return b""
    following = ord(stem[-1]) + 1
    if following == 0xD800:  # the surrogates are no characters of UTF-8
        following = 0xE000
    return stem[:-1] + chr(following)


def count(conn: apsw.Connection, source: str | None = None) -> int:
    """How many sessions there are, of ``source`` if one is given."""
    if source:
        return int(scalar(conn, "SELECT COUNT(*) FROM sessions WHERE source = ?", (text(source, "source"),)))
    return int(scalar(conn, "SELECT COUNT(*) FROM sessions"))
