"""Keeping the full-text tables: what is pending, one bounded step of indexing, single rows.

Every function runs on a connection whose triggers are switched off, inside the caller's write
transaction, except ``pending`` (any reader) and ``touch`` (the trigger connection).
What a row's text is: ``_fastpath.searchable``. What the watermark means: docs/design.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, Final

import apsw

from hermes_state._fastpath import scripts, searchable
from hermes_state.store.rows import rows, scalar

from . import nul_rows, row_text, tables
from .tables import FTS, TRIGRAM, WORDS, trigram_mode

__all__ = [
    "forget", "index_rows", "index_step", "pending", "reached", "reindex", "reset", "set_trigram_mode",
    "touch", "trigram_mode",
]  # fmt: skip

STEP_BYTES: Final = 250_000
"""Stored bytes of text after which a step takes no further row (it always takes one)."""

V11_TEXT = row_text.v11_text("m")
PLAIN = row_text.plain("m")

_BULK_SQL = {
    table: f"INSERT INTO {table}(rowid, content) SELECT m.id, {V11_TEXT}"  # noqa: S608 - constant text
    " FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value"
    for table in (FTS, TRIGRAM)
}
# One statement for many texts, of a few constant sizes, filled up with NULLs that are left out.
_TEXTS_A_STATEMENT = (1, 8, 32)
_TEXTS_SQL = {
    (table, size): f"INSERT INTO {table}(rowid, content) SELECT * FROM"  # noqa: S608 - constant text
    f" (VALUES {', '.join(['(?, ?)'] * size)}) WHERE column1 IS NOT NULL"
    for table in (FTS, TRIGRAM, WORDS)
    for size in _TEXTS_A_STATEMENT
}
_DELETE_SQL = {
    table: f"DELETE FROM {table} WHERE rowid IN (SELECT value FROM json_each(?))"  # noqa: S608 - constant text
    for table in (FTS, TRIGRAM, WORDS)
}

TAKE_SQL = f"SELECT json_group_array(id) FROM ({row_text.taken('?1', '?2', '?3', '?4')})"  # noqa: S608
"""A JSON list of the ids above ?1 up to ?2, bounded by ?3 and ?4 as ``row_text.taken``."""


@dataclass(slots=True)
class _Work:
    """What one call does to the tables: ids to remove, ids to add from SQL, texts to add."""

    gone: dict[str, list[int]] = field(default_factory=lambda: {FTS: [], TRIGRAM: [], WORDS: []})
    bulk: dict[str, list[int]] = field(default_factory=lambda: {FTS: [], TRIGRAM: []})
    texts: dict[str, list[tuple[int | None, str | None]]] = field(
        default_factory=lambda: {FTS: [], TRIGRAM: [], WORDS: []}
    )

    def apply(self, conn: apsw.Connection) -> None:
        for table, ids in self.gone.items():
            if ids:
                _delete(conn, table, json.dumps(ids))
        for table, ids in self.bulk.items():
            if ids:
                conn.execute(_BULK_SQL[table], (json.dumps(ids),))
        for table, texts in self.texts.items():
            most = _TEXTS_A_STATEMENT[-1]
            for start in range(0, len(texts), most):
                part = texts[start : start + most]
                size = next(size for size in _TEXTS_A_STATEMENT if size >= len(part))
                part += [(None, None)] * (size - len(part))
                conn.execute(_TEXTS_SQL[table, size], tuple(chain.from_iterable(part)))


_BEHIND_SQL = f"SELECT {row_text.NEWEST} - {row_text.WATERMARK}"


def pending(conn: apsw.Connection, more_than: int = 0) -> bool:
    """True when a message stands above the watermark and there is an index to put it in.

    ``more_than``: only when the newest message stands so many ids above it.
    """
    row: tuple[Any, ...] | None = conn.execute(_BEHIND_SQL).fetchone()
    return row is not None and (row[0] or 0) > more_than and FTS in tables.present(conn)


def reached(conn: apsw.Connection) -> tuple[int, int]:
    """(the id through which every message is indexed, the newest message's id); two point reads."""
    newest = int(scalar(conn, "SELECT max(id) FROM messages") or 0)
    return min(tables.watermark(conn), newest), newest


def index_step(conn: apsw.Connection, max_rows: int, trigram: str | None = None) -> int:
    """Bring the next rows above the watermark into the indexes; how many were looked at, 0 = none left.

    Takes at most ``max_rows`` rows in id order and about STEP_BYTES of text, and moves the watermark behind
    them. Rows that a v11 program indexed by trigger are left alone where its text is ours.
    ``trigram`` overrides the file's mode. Without a usable ``messages_fts`` nothing is done.
    """
    have = tables.present(conn)
    if FTS not in have or tables.unusable(conn):
        return 0
    given = (max(1, max_rows), STEP_BYTES)
    newest, after, mode, states = _json(conn, _look_sql(TRIGRAM in have, WORDS in have), given)
    if states:
        _treat(conn, states, have, trigram or mode, renew=False)
        tables.set_meta(conn, tables.META_WATERMARK, str(max(state[0] for state in states)))
    elif newest is not None and after < newest:
        tables.set_meta(conn, tables.META_WATERMARK, str(newest))
    return len(states)


def index_rows(conn: apsw.Connection, ids: Iterable[int]) -> None:
    """Index exactly these messages now, anew where they are indexed already.

    The watermark moves over them when no other message stands between it and them.
    """
    wanted = sorted(set(ids))
    have = tables.present(conn)
    partly = bool(tables.unusable(conn))
    after = tables.watermark(conn)
    if partly:
        tables.owe(conn, json.dumps([i for i in wanted if i <= after]))
    if not wanted or FTS not in have:
        return
    _treat(conn, _states(conn, wanted, have), have, trigram_mode(conn), renew=True)
    if partly:
        return
    above = sum(1 for i in wanted if i > after)
    between = scalar(
        conn,
        "SELECT count(*) FROM (SELECT 1 FROM messages WHERE id > ? AND id <= ? LIMIT ?)",
        (after, wanted[-1], above + 1),
    )
    if above and between <= above:
        tables.set_meta(conn, tables.META_WATERMARK, str(wanted[-1]))


def all_plain(values: Iterable[Any]) -> bool:
    """Whether these contents, tool names and tool calls are plain beyond doubt, as ``at_once`` needs them."""
    return all(
        value is None
        or (
            type(value) is str
            and value.isascii()
            and "\x00" not in value
            and "\\u" not in value
            and len(value) < searchable.MAX_INDEXED_CHARS // 4
        )
        for value in values
    )


def touch(conn: apsw.Connection, ids: Iterable[int]) -> None:
    """Bring our part of the index of these rows up to date after the triggers wrote v11's part.

    The rows may have been inserted, updated or deleted through a connection with triggers.
    """
    wanted = sorted(set(ids))
    have = tables.present(conn)
    # Triggers are off where they would write a table that cannot be used here.
    partly = bool(tables.unusable(conn))
    if partly:
        tables.owe(conn, json.dumps(wanted))
    if wanted and FTS in have:
        _treat(conn, _states(conn, wanted, have), have, trigram_mode(conn), renew=partly)


def forget(conn: apsw.Connection, ids: Iterable[int]) -> None:
    """Take these messages out of every full-text table; call it before they are deleted or updated."""
    wanted = json.dumps(list(ids))
    if wanted == "[]":
        return
    tables.owe(conn, wanted)
    for table in tables.present(conn):
        _delete(conn, table, wanted)


def _delete(conn: apsw.Connection, table: str, ids_json: str) -> None:
    if table == TRIGRAM:
        nul_rows.agree(conn, ids_json)
    conn.execute(_DELETE_SQL[table], (ids_json,))


def set_trigram_mode(conn: apsw.Connection, mode: str) -> None:
    """Store which rows the trigram index is to hold; ``reindex`` and the steps then make it so.

    Searches are right at every moment between: they ask the trigram index for rows with unspaced
    letters only, and both modes hold those. ValueError for an unknown mode.
    """
    if mode not in tables.TRIGRAM_MODES:
        raise ValueError(f"trigram mode must be one of {', '.join(tables.TRIGRAM_MODES)}, not {mode!r}")
    tables.set_meta(conn, tables.META_TRIGRAM, mode)


def reindex(conn: apsw.Connection) -> None:
    """Let ``index_step`` look at every row again: adds what is missing, removes what must not be there."""
    tables.set_meta(conn, tables.META_WATERMARK, "0")


def reset(conn: apsw.Connection) -> None:
    """Empty the full-text tables and let ``index_step`` fill them anew."""
    for table in sorted(tables.present(conn)):
        indexed = f"SELECT json_group_array(id) FROM {table}_docsize"  # noqa: S608 - a name of ours
        _delete(conn, table, scalar(conn, indexed))
    tables.clear_forget(conn)
    reindex(conn)


def _json(conn: apsw.Connection, sql: str, params: tuple[Any, ...]) -> Any:
    """The one value of ``sql``, which is JSON; the row is not followed to the statement's end."""
    found: Any = conn.execute(sql, params).fetchone()
    return json.loads(found[0])


def _state(row_id: str, trigram: bool, words: bool) -> str:
    """SQL for [id, plain, in fts, in trigram, in words, is there] of the message ``m``."""

    def stands(table: str, there: bool) -> str:
        return row_text.stands(table, row_id) if there else "0"

    flags = f"{stands(FTS, True)}, {stands(TRIGRAM, trigram)}, {stands(WORDS, words)}"
    return f"json_array({row_id}, {PLAIN}, {flags}, m.id IS NOT NULL)"


@cache
def _states_sql(trigram: bool, words: bool) -> str:
    """One JSON row of the states of the ids in ?1, which is JSON."""
    return (
        f"SELECT json_group_array({_state('j.value', trigram, words)})"  # noqa: S608 - constant text
        " FROM json_each(?1) j LEFT JOIN messages m ON m.id = j.value"
    )


@cache
def _look_sql(trigram: bool, words: bool) -> str:
    """One JSON row [newest id, watermark, trigram mode, states of the next ?1 rows up to ?2 bytes]."""
    taken = row_text.taken(row_text.WATERMARK, row_text.NEWEST, "?1", "?2")
    return f"""
        SELECT json_array({row_text.NEWEST}, {row_text.WATERMARK},
            CASE WHEN {row_text.ALL_TRIGRAM} THEN 'all' ELSE 'unspaced' END,
            json((SELECT json_group_array({_state("t.id", trigram, words)})
            FROM ({taken}) t CROSS JOIN messages m ON m.id = t.id)))
    """  # noqa: S608 - constant text


def _states(conn: apsw.Connection, ids: list[int], have: frozenset[str]) -> list[list[int]]:
    found: list[list[int]] = _json(conn, _states_sql(TRIGRAM in have, WORDS in have), (json.dumps(ids),))
    return found


def _treat(
    conn: apsw.Connection, states: list[list[int]], have: frozenset[str], mode: str, *, renew: bool
) -> None:
    """Make every table hold what it must for these messages.

    ``renew``: plain rows that are indexed already are written again, too.
    """
    work = _Work()
    read: dict[int, tuple[bool, bool, bool]] = {}
    for row_id, ascii_plain, in_fts, in_trigram, in_words, there in states:
        if not there:
            _remove(work, row_id, in_fts, in_trigram, in_words)
        elif ascii_plain:
            if in_words:
                work.gone[WORDS].append(row_id)
            _put(work, FTS, row_id, bool(in_fts), renew, None)
            if TRIGRAM in have:
                _put_trigram(work, row_id, bool(in_trigram), renew, None, wanted=mode == "all")
        else:
            read[row_id] = (bool(in_fts), bool(in_trigram), bool(in_words))
    if read:
        _treat_read(conn, work, read, have, mode, renew)
    work.apply(conn)


def _treat_read(
    conn: apsw.Connection,
    work: _Work,
    states: dict[int, tuple[bool, bool, bool]],
    have: frozenset[str],
    mode: str,
    renew: bool,
) -> None:
    """The rows that must be read to know their text: not ASCII, structured, escaped, very long."""
    for row_id, content, tool_name, tool_calls in _read(conn, list(states)):
        in_fts, in_trigram, in_words = states[row_id]
        text = searchable.text(content, tool_name, tool_calls)
        own = None if searchable.is_plain(content, tool_name, tool_calls) else text
        _put(work, FTS, row_id, in_fts, renew, own)
        if TRIGRAM in have:
            wanted = mode == "all" or scripts.has_unspaced(text)
            _put_trigram(work, row_id, in_trigram, renew, own, wanted=wanted)
        if in_words:
            work.gone[WORDS].append(row_id)
        if WORDS in have and scripts.has_mixed(text):
            work.texts[WORDS].append((row_id, scripts.split_mixed(text)))


_VALUES = "m.id, m.content, m.tool_name, m.tool_calls"
_FROM_IDS = "FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value"


def _read(conn: apsw.Connection, ids: list[int]) -> Iterable[Sequence[Any]]:
    """(id, content, tool_name, tool_calls) of the messages; as one row where JSON can hold them all."""
    given = (json.dumps(ids),)
    try:
        found: list[list[Any]] = _json(
            conn,
            f"SELECT json_group_array(json_array({_VALUES})) {_FROM_IDS}",
            given,
        )
    except (UnicodeDecodeError, apsw.SQLError, apsw.TooBigError):
        # Bad UTF-8, a BLOB, or more than a value may hold.
        return rows(conn, f"SELECT {_VALUES} {_FROM_IDS}", given)[1]
    return found


def _put(work: _Work, table: str, row_id: int, stands: bool, renew: bool, text: str | None) -> None:
    """Note that ``table`` must hold the row: v11's text where ``text`` is None, else ``text``."""
    if stands:
        if text is None and not renew:
            return
        work.gone[table].append(row_id)
    if text is None:
        work.bulk[table].append(row_id)
    else:
        work.texts[table].append((row_id, text))


def _put_trigram(
    work: _Work, row_id: int, stands: bool, renew: bool, text: str | None, *, wanted: bool
) -> None:
    if wanted:
        _put(work, TRIGRAM, row_id, stands, renew, text)
    elif stands:
        work.gone[TRIGRAM].append(row_id)


def _remove(work: _Work, row_id: int, in_fts: int, in_trigram: int, in_words: int) -> None:
    """A message that is gone leaves every table (its delete trigger did so for v11's two)."""
    for table, stands in ((FTS, in_fts), (TRIGRAM, in_trigram), (WORDS, in_words)):
        if stands:
            work.gone[table].append(row_id)
