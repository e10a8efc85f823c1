"""Sessions and messages a page at a time, by key, for readers that must not hold everything.

A page is one short read. The next begins behind the last key of the one
before, so no snapshot lives between pages. Keys of sessions are the bytes of
their ids: an id that is not UTF-8 is still a place in the order.
"""

from __future__ import annotations

from typing import Any

import apsw

from hermes_state._fastpath import encode

from .rows import Row, rows, scalar

SessionKey = tuple[Any, ...]
"""A session's start and its id as UTF-8."""

PAGE_BYTES = 4_000_000
"""Stored bytes after which a page of messages takes no further one (it always takes one)."""

STORED_COLUMNS = ("id", *encode.COLUMNS)
"""Order of the values in the rows of ``stored_messages``."""

_KEYS = (
    "SELECT started_at, CAST(id AS BLOB) FROM sessions"
    " WHERE typeof(id) = 'text' AND (?1 IS NULL OR +source = ?1)"
)
_FIRST_KEYS = _KEYS + " ORDER BY started_at, id DESC LIMIT ?2"
_NEXT_KEYS = (
    _KEYS + " AND started_at >= ?3 AND (started_at > ?3 OR id < CAST(?4 AS TEXT))"
    " ORDER BY started_at, id DESC LIMIT ?2"
)

_SESSION = "SELECT * FROM sessions WHERE id = CAST(? AS TEXT)"
_NEWEST = "SELECT MAX(id) FROM messages WHERE session_id = CAST(? AS TEXT)"
_COUNT = (
    "SELECT COUNT(*) FROM messages"
    " WHERE ?1 IS NULL OR session_id IN (SELECT id FROM sessions WHERE source = ?1)"
)

_SIZE = " + ".join(f"COALESCE(octet_length({name}), 0)" for name in encode.COLUMNS[2:])
_LAST_OF_PAGE = f"""
SELECT MAX(id) FROM (
    SELECT id, bytes, SUM(bytes) OVER (ORDER BY id) AS total FROM (
        SELECT id, {_SIZE} AS bytes FROM messages
        WHERE session_id = CAST(?1 AS TEXT) AND id > ?2 AND id <= ?3 ORDER BY id LIMIT ?4
    )
) WHERE total - bytes < ?5
"""  # noqa: S608 - column names of ours
_PAGE = "SELECT * FROM messages WHERE session_id = CAST(?1 AS TEXT) AND id > ?2 AND id <= ?3 ORDER BY id"
_STORED_PAGE = (
    f"SELECT {','.join(STORED_COLUMNS)} FROM messages"  # noqa: S608 - column names of ours
    " WHERE session_id = CAST(?1 AS TEXT) AND id > ?2 AND id <= ?3 ORDER BY id"
)

NO_ID = 2**63 - 1


def session_keys(
    conn: apsw.Connection, after: SessionKey | None, limit: int, source: str | None = None
) -> list[SessionKey]:
    """The next sessions by their start, of equal starts the highest id first; ``after`` None begins.

    Chronological, because message ids are so, nearly: what is stored again in
    this order goes into the indexes in the order that costs them least.
    """
    if after is None:
        return rows(conn, _FIRST_KEYS, (source, limit))[1]
    return rows(conn, _NEXT_KEYS, (source, limit, *after))[1]


def session(conn: apsw.Connection, key: bytes) -> tuple[dict[str, Any] | None, int]:
    """All columns of the session, other programs' too, or None if it is gone; and its highest message id."""
    names, found = rows(conn, _SESSION, (key,))
    row = dict(zip(names, found[0], strict=True)) if found else None
    return row, int(scalar(conn, _NEWEST, (key,)) or 0)


def message_count(conn: apsw.Connection, source: str | None = None) -> int:
    """How many messages there are in sessions of ``source``, or in all."""
    return int(scalar(conn, _COUNT, (source,)))


def message_page(
    conn: apsw.Connection, key: bytes, after: int, through: int, limit: int
) -> tuple[tuple[str, ...], list[Row]]:
    """Column names and stored rows of the next messages above ``after``, up to ``through``.

    At most ``limit`` of them and, beyond the first, PAGE_BYTES; none at the end.
    """
    last = _last_of_page(conn, key, after, through, limit)
    return ((), []) if last is None else rows(conn, _PAGE, (key, after, last))


def stored_messages(conn: apsw.Connection, key: bytes, after: int, limit: int) -> list[Row]:
    """The same as rows of STORED_COLUMNS, to compare with."""
    last = _last_of_page(conn, key, after, NO_ID, limit)
    return [] if last is None else rows(conn, _STORED_PAGE, (key, after, last))[1]


def _last_of_page(conn: apsw.Connection, key: bytes, after: int, through: int, limit: int) -> int | None:
    last: int | None = scalar(conn, _LAST_OF_PAGE, (key, after, through, max(1, limit), PAGE_BYTES))
    return last
