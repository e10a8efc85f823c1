"""Looking at the tables of a file, and mending what can be counted anew.

Every function does one bounded piece of work on the connection given to it: the structure of
one table, or a page of its rows. The readers need one snapshot a call, the menders one write
transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import apsw

from hermes_state._fastpath import encode
from hermes_state.store.rows import column, rows, scalar

TABLES: Final = ("schema_version", "sessions", "messages", "state_meta", "hs_idempotency")
"""The tables whose rows are data; everything else can be made anew from them."""

PAGE_SESSIONS: Final = 200
PAGE_MESSAGES: Final = 500

# What PRAGMA integrity_check says (pragma.html#pragma_integrity_check, and checkTreePage in
# SQLite's btree.c): a b-tree by the number of its root page, an index by its name.
_TREE = re.compile(r"(?:On tree|Tree) (?:page )?(\d+)\b")
_INDEX = re.compile(r"(?:missing from|entries in|entry in|order for) index (.+)$")
_CONTENT = ("NULL value in ", "NUMERIC value in ", "TEXT value in ", "CHECK constraint failed")

_ROOTS = "SELECT rootpage, name, type FROM sqlite_master WHERE tbl_name = ? AND rootpage > 0"
_INTEGRITY = "SELECT * FROM pragma_integrity_check(?)"

_ORPHANS = """\
SELECT m.id, NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id)
FROM messages m WHERE m.id > ?1 ORDER BY m.id LIMIT ?2
"""

_ORPHANS_OF = """\
SELECT m.id FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value
WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id)
"""

# What is stored and what the rows say. A list counts its items; text that SQLite does not take for
# JSON is counted in Python (the last column), where more is accepted.
_COUNTED = """\
SELECT s.rowid, s.id, s.message_count, s.tool_call_count, count(m.id),
    COALESCE(sum(CASE
        WHEN m.tool_calls IS NULL OR m.tool_calls = '' THEN 0
        WHEN NOT json_valid(m.tool_calls) THEN 0
        WHEN json_type(m.tool_calls) = 'array' THEN json_array_length(m.tool_calls)
        ELSE 1 END), 0),
    COALESCE(sum(m.tool_calls IS NOT NULL AND m.tool_calls <> '' AND NOT json_valid(m.tool_calls)), 0),
    s.parent_session_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id)
FROM json_each(?1) j CROSS JOIN sessions s ON s.rowid = j.value
LEFT JOIN messages m ON m.session_id = s.id
GROUP BY s.rowid ORDER BY s.rowid
"""
_ODD_CALLS = """\
SELECT tool_calls FROM messages
WHERE session_id = ? AND tool_calls IS NOT NULL AND tool_calls <> '' AND NOT json_valid(tool_calls)
"""
_SET_COUNTERS = "UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE rowid = ?"
_NO_PARENT = """\
UPDATE sessions SET parent_session_id = NULL WHERE rowid IN (SELECT value FROM json_each(?))
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One damaged b-tree: ``where``, of ``kind`` "table" or "index", and SQLite's words."""

    kind: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True)
class Session:
    """A session whose row is not what its messages say.

    ``counters``: what message_count and tool_call_count must be, or None where they are right.
    """

    rowid: int
    id: Any
    counters: tuple[int, int] | None
    orphan: bool


def structure(conn: apsw.Connection, table: str) -> list[Fault]:
    """The damaged b-trees of ``table`` and its indexes, each once; reads every page of them."""
    trees = {root: (kind, name) for root, name, kind in conn.execute(_ROOTS, (table,))}
    named = {name for _, name in trees.values()}
    found: dict[str, Fault] = {}
    try:
        for (text,) in conn.execute(_INTEGRITY, (table,)):
            for line in str(text).splitlines():
                kind, where = _place(line, trees, table)
                if kind and where in named:
                    found.setdefault(where, Fault(kind, where, line))
    except apsw.CorruptError as error:
        # The check itself gives up at a page it cannot read; it has said which tree before.
        if not found:
            found[table] = Fault("table", table, str(error))
    if table in found:
        # Where rows are lost, every index seems to hold too much.
        return [fault for fault in found.values() if fault.where == table or "Tree" in fault.detail]
    return list(found.values())


def _place(line: str, trees: dict[int, tuple[str, str]], table: str) -> tuple[str, str]:
    """Kind and name of what a line of the integrity check is about; no kind where nothing is damaged."""
    if line in ("ok", "") or line.startswith(("***", *_CONTENT)):
        return "", ""
    if (tree := _TREE.search(line)) is not None:
        return trees.get(int(tree[1]), ("", ""))
    if (index := _INDEX.search(line)) is not None:
        return "index", index[1]
    return "table", table


def still_orphans(conn: apsw.Connection, ids: Iterable[int]) -> list[int]:
    """Those of the messages whose session does not exist."""
    return column(conn, _ORPHANS_OF, (json.dumps(list(ids)),))


def delete_messages(conn: apsw.Connection, ids: Iterable[int]) -> None:
    """Delete these messages, which are in no index any more."""
    conn.execute(
        "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
    )


def orphan_messages(conn: apsw.Connection, after: int) -> tuple[int | None, int, list[int]]:
    """The next messages above ``after``: the last id looked at (None at the end), how many, and those
    whose session does not exist."""
    found = rows(conn, _ORPHANS, (after, PAGE_MESSAGES))[1]
    last = found[-1][0] if found else None
    return last, len(found), [row_id for row_id, lost in found if lost]


def session_page(conn: apsw.Connection, after: int) -> list[int]:
    """The rowids of the next sessions above ``after``; empty at the end."""
    return column(
        conn, "SELECT rowid FROM sessions WHERE rowid > ? ORDER BY rowid LIMIT ?", (after, PAGE_SESSIONS)
    )


def wrong_sessions(conn: apsw.Connection, rowids: Iterable[int]) -> list[Session]:
    """Those of the sessions whose counters or parent are wrong. A counter that is NULL counts as 0."""
    wrong = []
    found = rows(conn, _COUNTED, (json.dumps(list(rowids)),))[1]
    for rowid, session_id, messages, calls, real_messages, real_calls, odd, orphan in found:
        if odd:
            texts = rows(conn, _ODD_CALLS, (session_id,))[1]
            real_calls += sum(encode.count_tool_calls(text) for (text,) in texts)
        right = (real_messages, real_calls)
        same = (messages or 0, calls or 0) == right
        if not same or orphan:
            wrong.append(Session(rowid, session_id, None if same else right, bool(orphan)))
    return wrong


def set_counters(conn: apsw.Connection, sessions: Iterable[Session]) -> int:
    """Write the right counters; how many sessions had wrong ones."""
    wrong = [(*s.counters, s.rowid) for s in sessions if s.counters is not None]
    if wrong:
        conn.executemany(_SET_COUNTERS, wrong)
    return len(wrong)


def drop_parents(conn: apsw.Connection, sessions: Iterable[Session]) -> int:
    """Take the parent from sessions whose parent does not exist; how many."""
    orphans = [s.rowid for s in sessions if s.orphan]
    if orphans:
        conn.execute(_NO_PARENT, (json.dumps(orphans),))
    return len(orphans)


def highest_id(conn: apsw.Connection) -> int:
    """The highest message id ever given, by AUTOINCREMENT's own record and the rows."""
    given = scalar(conn, "SELECT max(seq) FROM sqlite_sequence WHERE name = 'messages'")
    newest = scalar(conn, "SELECT max(id) FROM messages")
    return max(given if isinstance(given, int) else 0, newest or 0)


def message_total(conn: apsw.Connection) -> int:
    """How many messages there are."""
    return int(scalar(conn, "SELECT count(*) FROM messages"))
