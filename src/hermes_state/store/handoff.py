"""Handing a session over to another platform: pending -> running -> completed or failed."""

from __future__ import annotations

from typing import Any

import apsw

from hermes_state._fastpath.text import fallback
from hermes_state.store.rows import dicts, one
from hermes_state.store.values import text

MAX_ERROR_LENGTH = 500
"""Characters kept of why a handoff failed."""


def request(conn: apsw.Connection, session_id: str, platform: str) -> bool:
    """Ask for a handoff to ``platform``; False if the session does not exist or one is under way."""
    conn.execute(
        """\
UPDATE sessions SET handoff_state = 'pending', handoff_platform = ?2, handoff_error = NULL
WHERE id = ?1 AND COALESCE(handoff_state, '') NOT IN ('pending', 'running')""",
        (text(session_id, "session_id"), text(platform, "platform")),
    )
    return conn.changes() > 0


def claim(conn: apsw.Connection, session_id: str) -> bool:
    """Take a pending handoff over: pending becomes running. True for the one caller that got it."""
    conn.execute(
        "UPDATE sessions SET handoff_state = 'running' WHERE id = ? AND handoff_state = 'pending'",
        (text(session_id, "session_id"),),
    )
    return conn.changes() > 0


def complete(conn: apsw.Connection, session_id: str) -> None:
    """The handoff is done."""
    conn.execute(
        "UPDATE sessions SET handoff_state = 'completed', handoff_error = NULL WHERE id = ?",
        (text(session_id, "session_id"),),
    )


def fail(conn: apsw.Connection, session_id: str, error: Any) -> None:
    """The handoff failed; the first 500 characters of ``error`` (as text) are kept."""
    conn.execute(
        "UPDATE sessions SET handoff_state = 'failed', handoff_error = ? WHERE id = ?",
        (None if error is None else fallback(error)[:MAX_ERROR_LENGTH], text(session_id, "session_id")),
    )


def state(conn: apsw.Connection, session_id: str) -> dict[str, Any] | None:
    """``{"state", "platform", "error"}``, or None where no handoff was ever asked for."""
    return one(
        conn,
        "SELECT handoff_state AS state, handoff_platform AS platform, handoff_error AS error "
        "FROM sessions WHERE id = ? AND handoff_state IS NOT NULL",
        (text(session_id, "session_id"),),
    )


def pending(conn: apsw.Connection) -> list[dict[str, Any]]:
    """The sessions (all columns) whose handoff waits to be claimed, oldest session first."""
    return dicts(conn, "SELECT * FROM sessions WHERE handoff_state = 'pending' ORDER BY started_at, id")
