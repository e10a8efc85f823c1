"""Looking at the full-text tables: what they lack, hold too much, or hold in another form.

A page of rows at a time, in one snapshot a call. Rows above the watermark are pending, which is
no fault, so only rows up to it are judged.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import apsw

from hermes_state._fastpath import scripts, searchable
from hermes_state.store.rows import rows, scalar

from . import indexing, tables
from .forgetting import LISTED_IDS_SQL
from .tables import FTS, TRIGRAM, WORDS

PAGE_ROWS: Final = 500
PAGE_BYTES: Final = 1_000_000
"""Messages, and stored bytes of their text, that one call looks at (one message at least)."""
PAGE_INDEXED: Final = 5_000
"""Index rows that one call of ``surplus`` looks at."""

SHADOWS: Final = ("data", "idx", "content", "docsize", "config")
"""The tables that FTS5 keeps of a full-text table (https://www.sqlite.org/fts5.html, section 9)."""

_FIRST = {
    table: f"SELECT rowid FROM {table} LIMIT 1"  # noqa: S608 - a name of ours
    for table in (FTS, TRIGRAM, WORDS)
}
_MERGE = {
    table: f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)"  # noqa: S608 - a name of ours
    for table in (FTS, TRIGRAM, WORDS)
}
_NO_MESSAGE = """\
SELECT j.value FROM json_each(?) j WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = j.value)
"""
_INTEGRITY = "SELECT * FROM pragma_integrity_check(?)"


@dataclass(slots=True)
class Drift:
    """What a page of messages shows: for each table the ids that are wrong in it, by kind.

    ``missing``: not in the table; ``different``: in it with another text; ``unwanted``: in it though the
    table must not hold them (the trigram table in mode "unspaced", ``hs_fts_words``).
    """

    missing: dict[str, list[int]] = field(default_factory=dict)
    different: dict[str, list[int]] = field(default_factory=dict)
    unwanted: dict[str, list[int]] = field(default_factory=dict)

    def ids(self) -> list[int]:
        """Every id that is wrong somewhere."""
        kinds = (self.missing, self.different, self.unwanted)
        return sorted({row_id for kind in kinds for ids in kind.values() for row_id in ids})


def shadows(conn: apsw.Connection, table: str) -> list[str]:
    """The shadow tables of a full-text table that exist."""
    names = json.dumps([f"{table}_{part}" for part in SHADOWS])
    sql = "SELECT name FROM sqlite_master WHERE name IN (SELECT value FROM json_each(?)) AND type = 'table'"
    return [str(name) for (name,) in conn.execute(sql, (names,))]


def disagreement(conn: apsw.Connection, table: str) -> str | None:
    """FTS5's own word that the inverted index is not that of the table's rows, or None.

    Reads and tokenizes all of the table. Source: integrity-check command,
    https://www.sqlite.org/fts5.html, section 6.
    """
    try:
        # Opening a cursor lets this connection forget the structure of an earlier transaction, which
        # the check would compare the present pages with.
        conn.execute(_FIRST[table]).fetchall()
        found = [str(text) for (text,) in conn.execute(_INTEGRITY, (table,))]
    except (apsw.CorruptError, apsw.SQLError) as error:
        return str(error)
    wrong = [text for text in found if text != "ok"]
    return wrong[0] if wrong else None


def drift(conn: apsw.Connection, after: int, have: Collection[str]) -> tuple[int | None, int, Drift]:
    """The next messages above ``after`` up to the watermark, judged against the tables ``have``.

    Returns the last id looked at (None at the end), how many, and what is wrong with them.
    """
    upto = tables.watermark(conn)
    ids: list[int] = json.loads(scalar(conn, indexing.TAKE_SQL, (after, upto, PAGE_ROWS, PAGE_BYTES)))
    return (ids[-1] if ids else None), len(ids), drift_of(conn, ids, have)


def drift_of(conn: apsw.Connection, ids: Collection[int], have: Collection[str]) -> Drift:
    """These messages, all of them indexed, judged against the tables ``have``."""
    out = Drift()
    if ids and have:
        _judge(conn, json.dumps(list(ids)), frozenset(have), tables.trigram_mode(conn), out)
    return out


def surplus(conn: apsw.Connection, table: str, after: int) -> tuple[int | None, int, list[int]]:
    """The next rows of a full-text table above ``after``: last id (None at the end), how many, and those
    without a message.

    A row whose message was deleted and that is listed to be removed is no fault.
    """
    found = rows(conn, _surplus_sql(table), (after, PAGE_INDEXED))[1]
    last = found[-1][0] if found else None
    return last, len(found), [row_id for row_id, there in found if not there]


def indexed_page(conn: apsw.Connection, after: int) -> list[int]:
    """The ids of the next messages above ``after`` up to the watermark; empty at the end."""
    taken = scalar(conn, indexing.TAKE_SQL, (after, tables.watermark(conn), PAGE_ROWS, PAGE_BYTES))
    return list(json.loads(taken))


def forget_surplus(conn: apsw.Connection, ids: Collection[int]) -> int:
    """Take those of the ids that are no message out of every table; how many."""
    gone = [row_id for (row_id,) in conn.execute(_NO_MESSAGE, (json.dumps(list(ids)),))]
    indexing.forget(conn, gone)
    return len(gone)


def size(conn: apsw.Connection, table: str) -> int:
    """How many rows a full-text table has."""
    return int(scalar(conn, f"SELECT count(*) FROM {table}_docsize"))  # noqa: S608 - a name of ours


def nul_rows(conn: apsw.Connection) -> bool:
    """Whether the trigram table holds text with a NUL, which SQLite versions tokenize differently."""
    sql = f"SELECT 1 FROM {TRIGRAM}_content WHERE instr(c0, char(0)) > 0 LIMIT 1"  # noqa: S608 - a name of ours
    return scalar(conn, sql) is not None


def merge_step(conn: apsw.Connection, table: str, pages: int, *, start: bool) -> bool:
    """Merge segments of a full-text table, writing about ``pages`` pages; False when nothing is left.

    ``start`` lets the merge take in segments of every level, as ``optimize`` would.
    Source: the merge command, https://www.sqlite.org/fts5.html, section 6.9.
    """
    before = conn.total_changes()
    conn.execute(_MERGE[table], (-pages if start else pages,))
    return conn.total_changes() - before >= 2


@cache
def _surplus_sql(table: str) -> str:
    return (
        "SELECT d.id, CASE WHEN EXISTS (SELECT 1 FROM messages m WHERE m.id = d.id) THEN 1"  # noqa: S608
        f" ELSE d.id IN ({LISTED_IDS_SQL}) END"
        f" FROM {table}_docsize d WHERE d.id > ? ORDER BY d.id LIMIT ?"
    )


@cache
def _judge_sql(have: frozenset[str]) -> str:
    """For the ids in ?1: id, plain ASCII, and a state a table: 0 absent, 1 there, 2 with another text."""

    def state(table: str) -> str:
        if table not in have:
            return "NULL"
        stands = f"EXISTS (SELECT 1 FROM {table}_docsize d WHERE d.id = m.id)"  # noqa: S608 - a name of ours
        if table == WORDS:
            return stands
        other = (
            f"(SELECT c.c0 FROM {table}_content c WHERE c.id = m.id)"  # noqa: S608 - a name of ours
            f" IS NOT {indexing.V11_TEXT}"
        )
        return f"CASE WHEN NOT {stands} THEN 0 WHEN {indexing.PLAIN} AND {other} THEN 2 ELSE 1 END"

    states = ", ".join(state(table) for table in (FTS, TRIGRAM, WORDS))
    return (
        f"SELECT m.id, {indexing.PLAIN}, {states}"  # noqa: S608 - constant parts
        " FROM json_each(?1) j CROSS JOIN messages m ON m.id = j.value"
    )


@cache
def _text_sql(have: frozenset[str]) -> str:
    """For the ids in ?1: id, the stored columns, and the text that each table has of the row."""
    texts = ", ".join(
        f"(SELECT c.c0 FROM {table}_content c WHERE c.id = m.id)" if table in have else "NULL"  # noqa: S608
        for table in (FTS, TRIGRAM, WORDS)
    )
    return (
        f"SELECT m.id, m.content, m.tool_name, m.tool_calls, {texts}"  # noqa: S608 - constant parts
        " FROM json_each(?1) j CROSS JOIN messages m ON m.id = j.value"
    )


def _judge(conn: apsw.Connection, taken: str, have: frozenset[str], mode: str, out: Drift) -> None:
    to_read: dict[int, tuple[int | None, int | None, int | None]] = {}
    for row_id, plain, *states in rows(conn, _judge_sql(have), (taken,))[1]:
        in_fts, in_trigram, in_words = states
        if not plain:
            to_read[row_id] = (in_fts, in_trigram, in_words)
            continue
        _note(out, FTS, row_id, in_fts, wanted=True)
        _note(out, TRIGRAM, row_id, in_trigram, wanted=mode == "all")
        _note(out, WORDS, row_id, in_words, wanted=False)
    if to_read:
        _judge_read(conn, to_read, have, mode, out)


def _judge_read(
    conn: apsw.Connection,
    states: dict[int, tuple[int | None, int | None, int | None]],
    have: frozenset[str],
    mode: str,
    out: Drift,
) -> None:
    """The rows whose text must be read to know what the tables must hold."""
    for row_id, content, name, calls, *held in rows(conn, _text_sql(have), (json.dumps(list(states)),))[1]:
        text = searchable.text(content, name, calls)
        in_trigram = mode == "all" or scripts.has_unspaced(text)
        mixed = scripts.has_mixed(text)
        wanted = {
            FTS: text,
            TRIGRAM: text if in_trigram else None,
            WORDS: scripts.split_mixed(text) if mixed else None,
        }
        for table, stands, has in zip((FTS, TRIGRAM, WORDS), states[row_id], held, strict=True):
            must = wanted[table]
            state = 2 if stands and must is not None and has != must else stands
            _note(out, table, row_id, state, wanted=must is not None)


def _note(out: Drift, table: str, row_id: int, state: int | None, *, wanted: bool) -> None:
    """Enter the row where its state (None: the table is not judged) is not what it must be."""
    if state is None:
        return
    if not wanted:
        if state:
            out.unwanted.setdefault(table, []).append(row_id)
    elif state == 0:
        out.missing.setdefault(table, []).append(row_id)
    elif state == 2:
        out.different.setdefault(table, []).append(row_id)
