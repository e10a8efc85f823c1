"""Entries of the full-text tables whose messages are deleted: listed with the deletion, removed later.

FTS5 takes a row out of an index by tokenizing its text again, which is nineteen twentieths of the work
of deleting a message. So a deletion that somebody waits for only lists the ids, in its own transaction,
and whoever indexes removes the entries in short steps. Nobody sees them meanwhile: every search,
v11's too, joins the messages. A kill leaves the list and the deletion together or neither, and
a step takes the entries away and the ids off the list together or neither.

The list is rows of ``state_meta`` (docs/file-format.md): every file has that table, and asking whether
anything is listed is one look into its index.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

import apsw

from hermes_state.store.rows import column, rows

from . import indexing, nul_rows, tables
from .row_text import NEWEST, WATERMARK
from .tables import FTS, META_FORGET, TRIGRAM, WORDS

LIST_IDS: Final = 256
"""Ids in one row of the list: a step writes the rest of a row anew."""
STEP_BYTES: Final = 250_000
"""Bytes of indexed text after which a step takes no further entry (it always takes one)."""

_LISTED = "m.key >= '{}' AND m.key < '{}'".format(*tables.FORGET_ENDS)
# A value that another program broke counts as an empty list.
_SOUND = "CASE WHEN json_valid({0}.value) THEN {0}.value ELSE '[]' END"
_LISTED_IDS = (
    f"state_meta m CROSS JOIN json_each({_SOUND.format('m')}) e"
    f" WHERE {_LISTED} AND typeof(e.value) = 'integer'"
)
_DEFER_SQL = f"""
INSERT INTO state_meta(key, value)
SELECT '{META_FORGET}' || min(id), json_group_array(id) FROM (
    SELECT value AS id, (row_number() OVER (ORDER BY value) - 1) / ?2 AS part FROM json_each(?1)
) WHERE 1 GROUP BY part
ON CONFLICT(key) DO UPDATE SET value = (
    SELECT json_group_array(value) FROM (
        SELECT value FROM json_each({_SOUND.format("state_meta")})
        UNION SELECT value FROM json_each(excluded.value)
    )
)
"""  # noqa: S608 - constant text
_ANYTHING_SQL = f"EXISTS (SELECT 1 FROM state_meta m WHERE {_LISTED})"  # noqa: S608 - constant text
_UNFINISHED_SQL = f"SELECT {NEWEST} > {WATERMARK}, {_ANYTHING_SQL}"
_NEXT_SQL = f"""
SELECT m.key, e.value,
    COALESCE((SELECT octet_length(c.c0) FROM messages_fts_content c WHERE c.id = e.value), 0),
    EXISTS (SELECT 1 FROM messages t WHERE t.id = e.value)
FROM {_LISTED_IDS} LIMIT ?
"""  # noqa: S608 - constant text
_AMONG_SQL = f"""
SELECT DISTINCT m.key, e.value FROM {_LISTED_IDS} AND e.value IN (SELECT value FROM json_each(?))
"""  # noqa: S608 - constant text
_CROSS_OFF_SQL = """
UPDATE state_meta SET value = (
    SELECT json_group_array(e.value) FROM json_each(state_meta.value) e
    WHERE typeof(e.value) = 'integer' AND e.value NOT IN (SELECT value FROM json_each(?1))
) WHERE key IN (SELECT value FROM json_each(?2))
"""
_DROP_EMPTY_SQL = "DELETE FROM state_meta WHERE key IN (SELECT value FROM json_each(?)) AND value = '[]'"
_COUNT_SQL = f"SELECT count(*) FROM {_LISTED_IDS}"  # noqa: S608 - constant text
LISTED_IDS_SQL: Final = f"SELECT e.value FROM {_LISTED_IDS}"  # noqa: S608 - constant text
"""A query for the ids of the list."""


def defer(conn: apsw.Connection, ids: Collection[int]) -> None:
    """List messages that the open transaction deletes, so that their entries are removed later.

    Where this SQLite cannot use every full-text table of the file, ``indexing.forget`` does what it can.
    """
    if not ids:
        return
    if FTS in tables.present(conn) and not tables.unusable(conn):
        conn.execute(_DEFER_SQL, (json.dumps(list(ids)), LIST_IDS))
    else:
        indexing.forget(conn, ids)


def anything(conn: apsw.Connection) -> bool:
    """Whether anything is listed."""
    return bool(column(conn, f"SELECT {_ANYTHING_SQL}")[0])


def complete(conn: apsw.Connection) -> bool:
    """True if no message waits to be indexed and no entry to be removed, or it cannot be done here."""
    row: tuple[Any, ...] | None = conn.execute(_UNFINISHED_SQL).fetchone()
    behind, listed = row or (None, None)
    if listed and _removable(conn):
        return False
    return not behind or not indexing.pending(conn)


def count(conn: apsw.Connection) -> int:
    """How many deleted messages are on the list."""
    return int(column(conn, _COUNT_SQL)[0])


def step(conn: apsw.Connection, max_rows: int) -> int:
    """Remove the entries of the next deleted messages; how many ids left the list, 0 = none left.

    Takes at most ``max_rows`` ids and about STEP_BYTES of indexed text. An id under which a message stands
    again (another program gave it) is indexed anew instead.
    """
    if not _removable(conn):
        return 0
    found = rows(conn, _NEXT_SQL, (max(1, max_rows),))[1]
    taken, size = 0, 0
    while taken < len(found) and (not taken or size + found[taken][2] <= STEP_BYTES):
        size += found[taken][2]
        taken += 1
    part = found[:taken]
    indexing.forget(conn, [row_id for _, row_id, _, stands in part if not stands])
    indexing.index_rows(conn, [row_id for _, row_id, _, stands in part if stands])
    if part:
        _cross_off(conn, {key for key, *_ in part}, [row_id for _, row_id, *_ in part])
    else:
        tables.clear_forget(conn)  # what is left of it are no ids
    return taken


def settle(conn: apsw.Connection, ids: Collection[int]) -> None:
    """Remove the entries of those of ``ids`` that are listed, now that messages get these ids.

    For rows that are stored with an id of their own: the text of a deleted message would stand under it.
    """
    if not ids or not _removable(conn):
        return
    found = rows(conn, _AMONG_SQL, (json.dumps(list(ids)),))[1]
    if found:
        listed = sorted({row_id for _, row_id in found})
        indexing.forget(conn, listed)
        _cross_off(conn, {key for key, _ in found}, listed)


_GUARD_SQL = """
CREATE TEMP TRIGGER IF NOT EXISTS hs_settle_{name} BEFORE {event} ON main.messages
WHEN new.id <> -1 AND new.id IN ({listed}) BEGIN
    {agree}
    {removals}
END;
"""
# SQLite's update hook names the new id only.
_MOVED_SQL = f"""
CREATE TEMP TRIGGER IF NOT EXISTS hs_moved BEFORE UPDATE OF id ON main.messages WHEN new.id <> old.id BEGIN
    DELETE FROM {WORDS} WHERE rowid = old.id;
END
"""  # noqa: S608 - constant text


def guard(conn: apsw.Connection) -> None:
    """Let statements of others give a message an id of their own, and a listed one: no old entries stay.

    By TEMP triggers, which only this connection has, after ``nul_rows.guard``. The id stays on the
    list, and a later step indexes the message anew. (-1 stands for an id that SQLite has still to choose.)
    """
    have = tables.present(conn)
    if TRIGRAM not in have:
        return
    removals = " ".join(f"DELETE FROM {table} WHERE rowid = new.id;" for table in sorted(have))  # noqa: S608
    agree = nul_rows.agree_sql("new")
    for name, event in (("insert", "INSERT"), ("update", "UPDATE OF id")):
        conn.execute(
            _GUARD_SQL.format(name=name, event=event, listed=LISTED_IDS_SQL, agree=agree, removals=removals)
        )
    if WORDS in have:
        conn.execute(_MOVED_SQL)


def _removable(conn: apsw.Connection) -> bool:
    """Whether anything is listed, and this SQLite can remove it from every full-text table of the file."""
    return anything(conn) and FTS in tables.present(conn) and not tables.unusable(conn)


def _cross_off(conn: apsw.Connection, keys: Collection[str], ids: Collection[int]) -> None:
    """Take ``ids`` off the rows ``keys`` of the list."""
    listed = json.dumps(sorted(keys))
    conn.execute(_CROSS_OFF_SQL, (json.dumps(list(ids)), listed))
    conn.execute(_DROP_EMPTY_SQL, (listed,))
