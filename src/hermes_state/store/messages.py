"""Messages: reading a session, a window of it, a conversation for replay; and writing, see message_writes.

Every reader gives messages in the order of their ids. Functions of more than
one statement want one snapshot, which the caller opens.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from hermes_state._fastpath import decode, json_text

from .message_writes import INSERT_COLUMNS, Forget, Row, bound_id, clear, insert_group, insert_one, replace
from .rows import rows, scalar

__all__ = [
    "INSERT_COLUMNS",
    "Forget",
    "Row",
    "anchored_view",
    "around",
    "clear",
    "conversation",
    "count",
    "get",
    "insert_group",
    "insert_one",
    "replace",
]

Message = dict[str, Any]

_MOST = 2**31
_ALL = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
_BETWEEN = "SELECT * FROM messages WHERE session_id = ? AND id > ? AND id < ? ORDER BY id LIMIT ?"
_BEFORE = "SELECT * FROM messages WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
_FROM = "SELECT * FROM messages WHERE session_id = ? AND id >= ? ORDER BY id LIMIT ?"
_OF_ROLES = "(?3 IS NULL OR role IN (SELECT value FROM json_each(?3)))"
_FIRST_OF_ROLES = (
    f"SELECT * FROM messages WHERE session_id = ?1 AND id < ?2 AND {_OF_ROLES} ORDER BY id LIMIT ?4"  # noqa: S608
)
_LAST_OF_ROLES = (
    f"SELECT * FROM messages WHERE session_id = ?1 AND id > ?2 AND {_OF_ROLES} ORDER BY id DESC LIMIT ?4"  # noqa: S608
)
_CONVERSATION = (
    f"SELECT {','.join(decode.CONVERSATION_COLUMNS)} FROM messages WHERE session_id = ? ORDER BY id"  # noqa: S608
)


def get(
    conn: apsw.Connection,
    session_id: str,
    *,
    limit: int | None = None,
    before_id: int | None = None,
    after_id: int | None = None,
) -> list[Message]:
    """Return the session's messages with all columns, ``content`` and ``tool_calls`` decoded.

    ``after_id`` and ``before_id`` leave out that message and those on its far
    side. ``limit`` (None or negative: no limit) takes the first messages, but
    with ``before_id`` alone the last ones before it, so that a caller can page
    in both directions; the order is that of ids in both.
    """
    session_id = bound_id(session_id)
    if limit is None and before_id is None and after_id is None:
        return _messages(conn, _ALL, (session_id,))
    number = -1 if limit is None else min(operator.index(limit), _MOST)
    if after_id is None and before_id is not None:
        return _messages(conn, _BEFORE, (session_id, before_id, number))[::-1]
    low = -(2**63) if after_id is None else after_id
    high = 2**63 - 1 if before_id is None else before_id
    return _messages(conn, _BETWEEN, (session_id, low, high, number))


def conversation(conn: apsw.Connection, session_ids: Sequence[str]) -> list[Message]:
    """Return the messages of one session, or of several in the order given, for replay to a model.

    The form is that of ``decode.rows_to_conversation``. Where a session's
    first user message has the same content as the last user message of the
    sessions before it, it is left out: it was carried over when the session
    was split. Equal messages inside one session all stay.
    """
    replay: list[Message] = []
    last_user: Any = None
    for session_id in session_ids:
        found = decode.rows_to_conversation(rows(conn, _CONVERSATION, (bound_id(session_id),))[1])
        users = [index for index, message in enumerate(found) if message["role"] == "user"]
        if users:
            carried_over = last_user and found[users[0]]["content"] == last_user
            last_user = found[users[-1]]["content"]
            if carried_over:
                del found[users[0]]
        replay += found
    return replay


def around(conn: apsw.Connection, session_id: str, message_id: int, window: int) -> dict[str, Any]:
    """Return the message ``message_id`` with up to ``window`` messages on each side of it.

    The result is ``{"window": [messages], "messages_before": n, "messages_after": n}``,
    the numbers being those of the messages in the window before and after the
    anchor. A negative ``window`` is 0. An id that is not in the session gives
    an empty window.
    """
    before, rest = _sides(conn, bound_id(session_id), message_id, window)
    return {
        "window": before + rest,
        "messages_before": len(before),
        "messages_after": max(0, len(rest) - 1),
    }


def anchored_view(
    conn: apsw.Connection,
    session_id: str,
    message_id: int,
    window: int,
    bookend: int,
    keep_roles: Iterable[str] | None,
) -> dict[str, Any]:
    """Return the window of ``around`` with the beginning and the end of the session.

    The window keeps messages of ``keep_roles`` (None: of every role) and the
    anchor itself; the numbers are still those of ``around``.
    ``bookend_start`` and ``bookend_end`` hold the first and the last
    ``bookend`` messages of those roles that stand before and after the window.
    """
    session_id = bound_id(session_id)
    before, rest = _sides(conn, session_id, message_id, window)
    view: dict[str, Any] = {
        "window": before + rest,
        "messages_before": len(before),
        "messages_after": max(0, len(rest) - 1),
        "bookend_start": [],
        "bookend_end": [],
    }
    if not rest:
        return view
    first, anchor, last = (before or rest)[0]["id"], rest[0]["id"], rest[-1]["id"]
    roles = None
    if keep_roles is not None:
        kept = set(keep_roles)
        roles = json_text.dumps(list(kept))
        view["window"] = [m for m in view["window"] if m["role"] in kept or m["id"] == anchor]
    number = _bounded(bookend)
    view["bookend_start"] = _messages(conn, _FIRST_OF_ROLES, (session_id, first, roles, number))
    view["bookend_end"] = _messages(conn, _LAST_OF_ROLES, (session_id, last, roles, number))[::-1]
    return view


def count(conn: apsw.Connection, session_id: str | None = None) -> int:
    """Return the number of messages of one session, or of all."""
    if session_id is None:
        return int(scalar(conn, "SELECT COUNT(*) FROM messages"))
    return int(scalar(conn, "SELECT COUNT(*) FROM messages WHERE session_id = ?", (bound_id(session_id),)))


def _messages(conn: apsw.Connection, sql: str, params: tuple[Any, ...]) -> list[Message]:
    names, found = rows(conn, sql, params)
    return decode.rows_to_messages(names, found)


def _sides(
    conn: apsw.Connection, session_id: str, message_id: int, window: int
) -> tuple[list[Message], list[Message]]:
    """The messages before the anchor, and the anchor with those after it; two empty lists without one."""
    number = _bounded(window)
    if isinstance(message_id, int) and not -(2**63) <= message_id < 2**63:
        return [], []
    anchor = scalar(conn, "SELECT id FROM messages WHERE id = ? AND session_id = ?", (message_id, session_id))
    if anchor is None:
        return [], []
    before = _messages(conn, _BEFORE, (session_id, anchor, number))[::-1]
    return before, _messages(conn, _FROM, (session_id, anchor, number + 1))


def _bounded(number: int) -> int:
    return max(0, min(operator.index(number), _MOST))
