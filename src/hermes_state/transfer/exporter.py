"""Our export: JSON Lines, one record a line, so that neither writing nor reading needs a whole session.

The form, version 1::

    {"hermes_state_export": {"format": 1, "schema_version": 11}}
    {"session": {<column>: <value>, ...}}
    {"message": {<column>: <value>, ...}, "stored": {<column>: <value>, ...}}
    {"end": {"sessions": <number>, "messages": <number>}}

A session stands before its messages, which stand in the order of their ids.
Columns are those of the tables, other programs' too; ``content`` and
``tool_calls`` are decoded as ``get_messages`` gives them. ``stored`` is there
where reading a column and storing it again would not give the very text that
stands in the table (broken JSON, JSON escaped by another program); it holds
that text. The last line lets a reader see that nothing was cut off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from hermes_state._fastpath import decode, encode

FORMAT: Final = 1
Record = dict[str, Any]
_WIDTH = len(encode.COLUMNS)


def header(schema_version: int) -> Record:
    """The first record."""
    return {"hermes_state_export": {"format": FORMAT, "schema_version": schema_version}}


def session_record(row: Record) -> Record:
    """The record of a session's row."""
    return {"session": {name: plain(value) for name, value in row.items()}}


def message_records(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Record]:
    """The records of stored rows."""
    where = [names.index(column) for column in encode.COLUMNS]
    records = []
    for row, message in zip(rows, decode.rows_to_messages(names, rows), strict=True):
        record: Record = {"message": {name: plain(value) for name, value in message.items()}}
        stored = _differing([plain(row[index]) for index in where], message)
        if stored:
            record["stored"] = stored
        records.append(record)
    return records


def end(sessions: int, messages: int) -> Record:
    """The last record."""
    return {"end": {"sessions": sessions, "messages": messages}}


def plain(value: Any) -> Any:
    """``value`` as JSON has it: a BLOB as text, an infinite number as null."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _differing(stored: list[Any], message: Record) -> Record:
    """The columns that would not be stored again as they stand."""
    try:
        again: Sequence[Any] = encode.encode_messages(stored[0], [message], None)[0][:_WIDTH]
    except (TypeError, ValueError):
        again = (None,) * _WIDTH
    return {
        name: old
        for name, old, new in zip(encode.COLUMNS[2:], stored[2:], again[2:], strict=True)
        if old != new or type(old) is not type(new)
    }
