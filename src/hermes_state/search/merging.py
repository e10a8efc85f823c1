"""Merging the segments of the full-text tables while nobody writes, so that a search reads few of them.

Each index step leaves a segment, and each term of a query is looked up in every segment. FTS5 merges
while it writes, but only as much as it must; the rest is done here, in short steps.
"""

from __future__ import annotations

from typing import Final

import apsw

from . import health, segments, tables
from .tables import FTS, TRIGRAM, WORDS

USUAL: Final = 4
"""Segments of a level from which FTS5 merges them when told to (its ``usermerge``, unless set otherwise)."""

SHARE: Final = 4
"""All segments become one once those beside the longest have this part of its pages.

So what a merge of all writes is at most so many times (and once more) what was indexed since the last.
"""


def step(conn: apsw.Connection, pages: int) -> bool:
    """Merge a little in one full-text table, writing about ``pages`` pages; False when nothing is worthwhile.

    Inside the caller's write transaction. A step writes at least the rest of the term that it is in.
    """
    have = tables.present(conn)
    for table in (FTS, WORDS, TRIGRAM):
        if table not in have:
            continue
        before = segments.levels(conn, table)
        start = _all_at_once(before)
        if (start or _some(before)) and health.merge_step(conn, table, pages, start=start):
            return True
    return False


def _some(levels: list[tuple[int, list[int]]]) -> bool:
    """Whether a merge has begun, or a level holds so many segments that one can."""
    return any(merging or len(found) >= USUAL for merging, found in levels)


def _all_at_once(levels: list[tuple[int, list[int]]]) -> bool:
    """Whether a merge of all segments should begin."""
    if any(merging for merging, _ in levels):
        return False
    found = [count for _, level in levels for count in level]
    return len(found) > 1 and (sum(found) - max(found)) * SHARE >= max(found)
