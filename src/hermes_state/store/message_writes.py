"""Writing messages: one, a group of many callers', a whole session anew.

A row is what ``_fastpath.encode.encode_message`` makes: the values of
``encode.COLUMNS`` and, after them, the number of tool calls it adds to the
session's counter. All functions run inside the caller's transaction. They
leave the search indexes alone, but for rows that go: those are handed to
``forget`` first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import apsw

from hermes_state._fastpath import encode, text

from .rows import column, rows

Row = tuple[Any, ...]
Forget = Callable[[apsw.Connection, list[int]], None]

INSERT_COLUMNS = encode.COLUMNS
_WIDTH = len(INSERT_COLUMNS)
_TIMESTAMP = INSERT_COLUMNS.index("timestamp")
_SESSION = INSERT_COLUMNS.index("session_id")
_TEXTS = tuple(INSERT_COLUMNS.index(name) for name in ("content", "tool_name", "tool_calls"))

# Errors that say something about one row, and leave the transaction as it was
# before the statement. Everything else (I/O, FULL, NOMEM, CORRUPT, BUSY) is
# about the file or the process, and goes to the caller.
_ROW_ERRORS = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.BindingsError,
    TypeError,
    ValueError,
    OverflowError,
)


# One statement for many rows: the GIL changes hands once a statement, and with
# many threads beside it each time may wait for all of them. A few constant
# sizes, so that the statement cache holds them all; what a part lacks of its
# size is filled up with rows of NULLs that the statement leaves out.
_SIZES = (1, 4, 16, 64)


def _insert_sql(size: int) -> str:
    one = f"({','.join('?' * _WIDTH)})"
    head = f"INSERT INTO messages({','.join(INSERT_COLUMNS)})"
    if size == 1:
        return f"{head} VALUES {one}"
    return f"{head} SELECT * FROM (VALUES {','.join([one] * size)}) WHERE column1 IS NOT NULL"  # noqa: S608


def _count_sql(size: int) -> str:
    return (
        f"WITH added(id, messages, calls) AS (VALUES {','.join(['(?,?,?)'] * size)}) "  # noqa: S608
        "UPDATE sessions SET message_count = COALESCE(message_count, 0) + added.messages, "
        "tool_call_count = COALESCE(tool_call_count, 0) + added.calls FROM added WHERE sessions.id = added.id"
    )


_INSERT = {size: _insert_sql(size) for size in _SIZES}
_COUNT = {size: _count_sql(size) for size in _SIZES[1:]}
_NO_ROW = (None,) * _WIDTH
_NO_COUNT: tuple[Any, int, int] = (None, 0, 0)

_ADD_TO_COUNTERS = (
    "UPDATE sessions SET message_count = COALESCE(message_count, 0) + ?, "
    "tool_call_count = COALESCE(tool_call_count, 0) + ? WHERE id = ?"
)
_SET_COUNTERS = (
    "UPDATE sessions SET message_count = ?1, tool_call_count = ?2 "
    "WHERE id = ?3 AND (message_count IS NOT ?1 OR tool_call_count IS NOT ?2)"
)
_STORED = f"SELECT id,{','.join(INSERT_COLUMNS)} FROM messages WHERE session_id = ? ORDER BY id"  # noqa: S608
_IDS = "SELECT id FROM messages WHERE session_id = ? ORDER BY id"
_IDS_FROM = "SELECT id FROM messages WHERE session_id = ? AND id >= ? ORDER BY id"
_DELETE_FROM = "DELETE FROM messages WHERE session_id = ? AND id >= ?"


# For a connection that does nothing but append: the counters move inside the INSERT itself, so that
# one statement in autocommit is the whole transaction. A TEMP trigger is this connection's alone, and
# fires although the file's own triggers are switched off there. The rule of the calls is
# ``encode.count_tool_calls`` on what is stored.
_COUNT_TRIGGER = """\
CREATE TEMP TRIGGER IF NOT EXISTS hs_count AFTER INSERT ON main.messages BEGIN
    UPDATE sessions SET
        message_count = COALESCE(message_count, 0) + 1,
        tool_call_count = COALESCE(tool_call_count, 0) + CASE
            WHEN new.tool_calls IS NULL THEN 0
            WHEN NOT json_valid(new.tool_calls) THEN 1
            WHEN json_type(new.tool_calls) = 'array' THEN json_array_length(new.tool_calls)
            ELSE 1 END
    WHERE id = new.session_id;
END
"""


def prepare_appender(conn: apsw.Connection) -> None:
    """Make ``conn`` count what it inserts; from then on it serves ``append_at_once`` only."""
    conn.execute(_COUNT_TRIGGER)


def append_at_once(conn: apsw.Connection, groups: Sequence[Sequence[Row]]) -> list[list[int]] | None:
    """Store the groups in one statement that is its own transaction; the ids of each group's rows.

    ``conn`` is in autocommit and was given to ``prepare_appender``. The GIL is let go once for lock,
    rows, counters, COMMIT and fsync together. None where one statement cannot hold all rows; any error
    leaves nothing stored, and the caller finds out by ``insert_group`` whose it was.
    """
    rows_of_all = [row for group in groups for row in group]
    if not rows_of_all or len(rows_of_all) > _SIZES[-1]:
        return None
    ids = iter(_insert_part(conn, rows_of_all))
    return [[next(ids) for _ in group] for group in groups]


def all_texts(groups: Sequence[Sequence[Row]], test: Callable[[Iterable[Any]], bool]) -> bool:
    """Whether ``test`` holds for what the indexes read of each row."""
    return all(test(map(row.__getitem__, _TEXTS)) for group in groups for row in group)


def insert_one(conn: apsw.Connection, row: Row) -> int:
    """Insert ``row``, count it in its session, and return its id.

    Raises apsw.ConstraintError ("FOREIGN KEY constraint failed") where the
    session is unknown; nothing is written then.
    """
    conn.execute(_INSERT[1], row[:_WIDTH])
    message_id = conn.last_insert_rowid()
    conn.execute(_ADD_TO_COUNTERS, (1, row[_WIDTH], row[_SESSION]))
    return message_id


def insert_group(conn: apsw.Connection, groups: Sequence[Sequence[Row]]) -> list[list[int] | BaseException]:
    """Insert the rows of several callers, each caller's all or not at all.

    Returns for each group the ids of its rows in order, or the exception that
    one of its rows met (unknown session, a value that cannot be bound); such a
    group leaves nothing, and the others are unharmed. Errors of the file or
    the process are raised, and the caller rolls back.
    """
    if len(groups) == 1 and len(groups[0]) == 1:
        try:
            return [[insert_one(conn, groups[0][0])]]
        except _ROW_ERRORS as error:
            return [error]
    outcomes: list[list[int] | BaseException] = []
    singles: list[Row] = []
    for group in groups:
        if len(group) == 1:
            singles.append(group[0])
            continue
        outcomes += _insert_singles(conn, singles)
        singles = []
        outcomes.append(_insert_batch(conn, group))
    outcomes += _insert_singles(conn, singles)
    _count(conn, chain.from_iterable(g for g, o in zip(groups, outcomes, strict=True) if type(o) is list))
    return outcomes


def replace(
    conn: apsw.Connection,
    session_id: str,
    new: Sequence[Row],
    forget: Forget,
    *,
    now: float | None = None,
) -> list[int]:
    """Make ``new`` the session's messages, all of them and in that order; the ids of those inserted.

    The longest run of stored messages, from the first, that equals the
    beginning of ``new`` stays as it is, ids included; what follows is deleted
    (after ``forget(conn, ids)``) and inserted anew. A row whose timestamp is
    None (``encode.encode_messages`` with ``first_timestamp=None``) equals a
    stored one of any timestamp; where it is inserted, its timestamp is ``now``
    (seconds since the epoch, default: the clock) plus as many microseconds as
    rows are before it. The counters are set from ``new``. An unknown session
    raises apsw.ConstraintError, unless ``new`` is empty: then nothing happens.
    """
    session_id = bound_id(session_id)
    stored = rows(conn, _STORED, (session_id,))[1]
    kept = _equal_head(stored, new)
    if kept < len(stored):
        first = stored[kept][0]
        forget(conn, column(conn, _IDS_FROM, (session_id, first)))
        conn.execute(_DELETE_FROM, (session_id, first))
    ids: list[int] = []
    if kept < len(new):
        start = time.time() if now is None else now
        ids = _insert_rows(conn, [_stamped(row, start, index) for index, row in enumerate(new)][kept:])
    calls = sum(row[_WIDTH] for row in new)
    conn.execute(_SET_COUNTERS, (len(new), calls, session_id))
    return ids


def clear(conn: apsw.Connection, session_id: str, forget: Forget, *, limit: int = -1) -> int:
    """Delete the session's messages, oldest first and at most ``limit`` of them (-1: all).

    ``forget(conn, ids)`` is called first. Returns the number deleted: fewer
    than ``limit`` means that none is left. The counters are those of what is
    left; the session itself stays.
    """
    session_id = bound_id(session_id)
    ids = column(conn, _IDS + " LIMIT ?", (session_id, limit))
    if ids:
        forget(conn, ids)
        conn.execute("DELETE FROM messages WHERE session_id = ? AND id <= ?", (session_id, ids[-1]))
    recount(conn, session_id)
    return len(ids)


def recount(conn: apsw.Connection, session_id: str) -> None:
    """Set the session's counters to what its messages say, which reads the tool calls of all of them."""
    left = rows(conn, "SELECT tool_calls FROM messages WHERE session_id = ?", (session_id,))[1]
    calls = sum(encode.count_tool_calls(stored) for (stored,) in left)
    conn.execute(_SET_COUNTERS, (len(left), calls, session_id))


def bound_id(session_id: str) -> str:
    """Return what is bound for a session's id: no row has one that is not text, and that is no error."""
    return text.clean(session_id) if isinstance(session_id, str) else session_id


def _insert_rows(conn: apsw.Connection, new: Sequence[Row]) -> list[int]:
    """Insert ``new`` in order and return the ids; an error leaves the rows before it inserted."""
    ids: list[int] = []
    for part in _parts(new):
        ids += _insert_part(conn, part)
    return ids


def _insert_part(conn: apsw.Connection, part: Sequence[Row]) -> range:
    """Insert up to 64 rows in one statement: all of them or none."""
    size = _size(len(part))
    values = [row[:_WIDTH] for row in part] + [_NO_ROW] * (size - len(part))
    conn.execute(_INSERT[size], tuple(chain.from_iterable(values)))
    # AUTOINCREMENT takes the number after the highest for each row of a statement.
    last = conn.last_insert_rowid()
    return range(last - len(part) + 1, last + 1)


def _parts(new: Sequence[Row]) -> Iterable[Sequence[Row]]:
    largest = _SIZES[-1]
    for start in range(0, len(new), largest):
        yield new[start : start + largest]


def _size(rows_in_part: int) -> int:
    """The smallest size of statement that takes so many rows."""
    return next(size for size in _SIZES if size >= rows_in_part)


def _insert_singles(conn: apsw.Connection, singles: Sequence[Row]) -> list[list[int] | BaseException]:
    """Insert rows that have nothing to do with one another."""
    outcomes: list[list[int] | BaseException] = []
    for part in _parts(singles):
        try:
            outcomes += [[message_id] for message_id in _insert_part(conn, part)]
        except _ROW_ERRORS as error:
            if len(part) == 1:
                outcomes.append(error)
                continue
            for row in part:
                outcomes += _insert_singles(conn, [row])
    return outcomes


def _insert_batch(conn: apsw.Connection, batch: Sequence[Row]) -> list[int] | BaseException:
    """Insert rows that belong together, all or none."""
    if not batch:
        return []
    conn.execute("SAVEPOINT hs_batch")
    try:
        ids = _insert_rows(conn, batch)
    except _ROW_ERRORS as error:
        conn.execute("ROLLBACK TO hs_batch")
        conn.execute("RELEASE hs_batch")
        return error
    conn.execute("RELEASE hs_batch")
    return ids


def _count(conn: apsw.Connection, inserted: Iterable[Row]) -> None:
    """Add ``inserted`` to the counters, with one UPDATE for all sessions."""
    messages: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for row in inserted:
        messages[row[_SESSION]] += 1
        calls[row[_SESSION]] += row[_WIDTH]
    if len(messages) == 1:
        for session_id, number in messages.items():
            conn.execute(_ADD_TO_COUNTERS, (number, calls[session_id], session_id))
        return
    added: list[tuple[Any, int, int]] = [
        (session_id, number, calls[session_id]) for session_id, number in messages.items()
    ]
    largest = _SIZES[-1]
    for start in range(0, len(added), largest):
        part = added[start : start + largest]
        size = max(_size(len(part)), _SIZES[1])
        part += [_NO_COUNT] * (size - len(part))
        conn.execute(_COUNT[size], tuple(chain.from_iterable(part)))


def _equal_head(stored: Sequence[Row], new: Sequence[Row]) -> int:
    """How many rows of ``stored`` (id, columns) equal the rows of ``new`` in the same place."""
    for index, (old, row) in enumerate(zip(stored, new, strict=False)):
        wanted = row[:_WIDTH]
        if row[_TIMESTAMP] is None:
            wanted = (*row[:_TIMESTAMP], old[1 + _TIMESTAMP], *row[_TIMESTAMP + 1 : _WIDTH])
        if old[1:] != wanted:
            return index
    return min(len(stored), len(new))


def _stamped(row: Row, start: float, index: int) -> Row:
    if row[_TIMESTAMP] is not None:
        return row
    return (*row[:_TIMESTAMP], start + index * 1e-6, *row[_TIMESTAMP + 1 :])
