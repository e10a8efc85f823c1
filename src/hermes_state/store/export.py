"""Sessions with their messages, as values that ``json.dumps`` takes."""

from __future__ import annotations

from typing import Any

import apsw

from hermes_state.store import messages
from hermes_state.store import sessions as session_rows
from hermes_state.store.rows import column
from hermes_state.store.values import text

_IDS = """\
SELECT s.id FROM sessions s WHERE ?1 IS NULL OR s.source = ?1
ORDER BY COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at) DESC,
         s.started_at DESC, s.id DESC
"""


def session(conn: apsw.Connection, session_id: str) -> dict[str, Any] | None:
    """All columns of the session, and ``messages``: what ``get_messages`` gives. None if there is none."""
    found = session_rows.get(conn, session_id)
    if found is None:
        return None
    exported = _plain(found)
    exported["messages"] = [_plain(message) for message in messages.get(conn, session_id)]
    return exported


def sessions(conn: apsw.Connection, source: str | None = None) -> list[dict[str, Any]]:
    """``session`` of every session, of ``source`` if one is given; newest activity first."""
    exported = (session(conn, session_id) for session_id in ids(conn, source))
    return [found for found in exported if found is not None]


def ids(conn: apsw.Connection, source: str | None = None) -> list[str]:
    """Ids in the order of an export, for callers that take one session at a time."""
    return column(conn, _IDS, (text(source, "source") or None,))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` with the BLOBs that another program may have stored as text."""
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in row.items()
    }
