"""Rows as dicts, and text that is not UTF-8 mended instead of raised.

APSW decodes text strictly: one row whose text another program wrote as, say,
Latin-1 makes the whole query raise UnicodeDecodeError. The functions here
read such a query once more with every text column as bytes and put U+FFFD
where the bytes are not UTF-8, so that the neighbours of a bad row, and the
rest of the row itself, still come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

Params = tuple[Any, ...]
Row = tuple[Any, ...]


def rows(conn: apsw.Connection, sql: str, params: Params = ()) -> tuple[tuple[str, ...], list[Row]]:
    """Run ``sql`` and return ``(column names, rows)``; no rows gives ``((), [])``."""
    found = _whole(conn, sql, params)
    if found is not None:
        return found
    cursor = conn.execute(sql, params)
    try:
        names = tuple(column[0] for column in cursor.get_description())
    except apsw.ExecutionCompleteError:
        return (), []
    try:
        return names, cursor.fetchall()
    except UnicodeDecodeError:
        cursor.close(True)
        return _mended(conn, sql, params, names)


def tuples(conn: apsw.Connection, sql: str, params: Params = ()) -> list[Row]:
    """The rows of ``sql`` alone, for statements whose column names nobody needs."""
    found = _whole(conn, sql, params)
    if found is not None:
        return found[1]
    cursor = conn.execute(sql, params)
    try:
        return cursor.fetchall()
    except UnicodeDecodeError:
        cursor.close(True)
        return rows(conn, sql, params)[1]


def dicts(conn: apsw.Connection, sql: str, params: Params = ()) -> list[dict[str, Any]]:
    """Run ``sql`` and return each row as a dict in column order."""
    names, found = rows(conn, sql, params)
    return [dict(zip(names, row, strict=True)) for row in found]


def one(conn: apsw.Connection, sql: str, params: Params = ()) -> dict[str, Any] | None:
    """The first row of ``sql`` as a dict, or None."""
    found = dicts(conn, sql, params)
    return found[0] if found else None


def scalar(conn: apsw.Connection, sql: str, params: Params = ()) -> Any:
    """The first column of the first row, or None where there is no row."""
    found = tuples(conn, sql, params)
    return found[0][0] if found else None


def column(conn: apsw.Connection, sql: str, params: Params = ()) -> list[Any]:
    """The first column of every row."""
    return [row[0] for row in tuples(conn, sql, params)]


def _whole(conn: apsw.Connection, sql: str, params: Params) -> tuple[tuple[str, ...], list[Row]] | None:
    """``rows`` for one hand-over of the GIL, on a reader of the engine (engine.fetch); None: ask APSW."""
    whole = getattr(conn, "whole", None)
    found = None if whole is None else whole(sql, params)
    if isinstance(found, int):
        if found & 0xFF == apsw.SQLITE_BUSY:
            # It has waited as long as it may. What else fails, APSW tells better when it tries.
            error = apsw.exception_for(found)
            error.args = ("database is locked",)
            raise error
        return None
    return found


def _mended(
    conn: apsw.Connection, sql: str, params: Params, names: tuple[str, ...]
) -> tuple[tuple[str, ...], list[Row]]:
    """``rows`` with bad UTF-8 replaced; ``names`` are those of the columns a moment ago.

    Another program may have added a column since: the names are asked for again then.
    """
    while names:
        try:
            return names, list(_mended_rows(conn, sql, params, len(names)))
        except apsw.SQLError:
            before, names = names, _names(conn, sql, params)
            if names == before:
                raise
    return (), []


def _names(conn: apsw.Connection, sql: str, params: Params) -> tuple[str, ...]:
    """The names of the columns of ``sql``; empty where there is no row."""
    cursor = conn.execute(sql, params)
    try:
        return tuple(column[0] for column in cursor.get_description())
    except apsw.ExecutionCompleteError:
        return ()
    finally:
        cursor.close(True)


def _mended_rows(conn: apsw.Connection, sql: str, params: Params, width: int) -> Iterator[Row]:
    """The rows of ``sql``, which has ``width`` columns, whatever their names are."""
    names = ",".join(f"c{i}" for i in range(width))
    bytes_and_types = ",".join(
        f"CASE typeof(c{i}) WHEN 'text' THEN CAST(c{i} AS BLOB) ELSE c{i} END, typeof(c{i})"
        for i in range(width)
    )
    wrapped = f"WITH q({names}) AS ({sql}) SELECT {bytes_and_types} FROM q"  # noqa: S608 - names are c0, c1, ...
    for row in conn.execute(wrapped, params):
        yield tuple(
            value.decode("utf-8", "replace") if kind == "text" else value
            for value, kind in zip(row[::2], row[1::2], strict=True)
        )
