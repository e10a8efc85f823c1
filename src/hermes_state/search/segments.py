"""How much of a full-text index a merge still has to read: the segments of its tables, counted in pages.

FTS5 keeps the list of its segments in the row of id 10 of ``<table>_data``. Source of the format: the
comment on the structure record in ``fts5_index.c`` of SQLite. After a cookie of four bytes, and four bytes
more in version 2, come integers of SQLite's variable length: the number of levels, the number of segments, a
counter of writes; for each level how many segments are being merged and how many there are, and for each
segment its id and its first and last page, in version 2 also five numbers about deleted rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import apsw

from hermes_state.store.rows import scalar

STRUCTURE_ID: Final = 10
VERSION_2: Final = b"\xff\x00\x00\x01"
EXTRA_2: Final = 5
"""Numbers that version 2 keeps of a segment besides its id and its pages."""


def pages(conn: apsw.Connection, table: str) -> list[int]:
    """Pages of each segment of a full-text table, 0 for one that was read to its end; the newest level first.

    A merge reads from the front of its segments and gives their pages up, and writes one segment of a
    higher level, the last here. Empty where the record cannot be understood.
    """
    return [count for _, found in levels(conn, table) for count in found]


def levels(conn: apsw.Connection, table: str) -> list[tuple[int, list[int]]]:
    """For each level how many of its segments are being merged, and the ``pages`` of all of them.

    Empty where the record cannot be understood.
    """
    record = scalar(conn, _structure_sql(table), (STRUCTURE_ID,))
    try:
        return _parse(record)
    except (IndexError, TypeError):
        return []


def to_read(found: list[int], *, merging: bool) -> int:
    """Pages that a merge of all segments has to read; 0 for a single one.

    ``merging``: it has begun, and the last segment is what it writes.
    """
    if len(found) < 2:
        return 0
    return sum(found[:-1] if merging else found)


def _parse(record: bytes) -> list[tuple[int, list[int]]]:
    later = record[4:8] == VERSION_2
    numbers = _integers(record, 8 if later else 4)
    found: list[tuple[int, list[int]]] = []
    try:
        count, _, _ = next(numbers), next(numbers), next(numbers)
        for _ in range(count):
            merging, segments = next(numbers), next(numbers)
            found.append((merging, []))
            for _ in range(segments):
                _, first, last = next(numbers), next(numbers), next(numbers)
                found[-1][1].append(last - first + 1 if last else 0)
                for _ in range(EXTRA_2 if later else 0):
                    next(numbers)
    except StopIteration:
        raise IndexError("the structure record is cut") from None
    return found


def _integers(record: bytes, place: int) -> Iterator[int]:
    """Big-endian groups of seven bits, the ninth byte whole.

    Source: "A variable-length integer" in https://www.sqlite.org/fileformat2.html, section 1.6.
    """
    value = length = 0
    for byte in record[place:]:
        length += 1
        if length == 9:
            value, byte = value << 8 | byte, 0
        else:
            value = value << 7 | byte & 0x7F
        if byte < 0x80:
            yield value
            value = length = 0


@cache
def _structure_sql(table: str) -> str:
    return f"SELECT block FROM {table}_data WHERE id = ?"  # noqa: S608 - a name of ours
