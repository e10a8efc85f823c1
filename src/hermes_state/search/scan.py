"""The search without an index: the newest messages read and matched in Python.

It serves where a full-text table is missing (SQLite built without FTS5 or the trigram
tokenizer) or damaged, and for substrings that no index of the file can tell. The meaning is the
same; there is no bm25, so "rank" is newest first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import apsw

from hermes_state._fastpath import searchable
from hermes_state.store.rows import column, tuples

from .filters import Filters
from .folding import Folded, trigram_fold
from .indexing import PLAIN, V11_TEXT
from .plan import Plan

SCAN_ROWS: Final = 50_000
"""Messages that one scan reads, the newest first; older ones are not found without an index."""

ORDER: Final = "scan"
"""The name of the order by id, newest first, that takes the place of the rank."""

_BATCH = 500

_READ_SQL = """\
SELECT m.id, m.timestamp, m.session_id, m.content, m.tool_name, m.tool_calls FROM messages m
WHERE m.id BETWEEN ?1 AND ?2"""
# Rows that SQL can tell to be plain ASCII need not be read unless a wanted text is in them.
_LIKELY_SQL = f"""
AND (NOT {PLAIN} OR EXISTS (SELECT 1 FROM json_each(?3) w WHERE instr(lower({V11_TEXT}), w.value) > 0))"""  # noqa: S608
_NEWEST_FIRST = " ORDER BY m.id DESC"


@dataclass(frozen=True, slots=True)
class _Hit:
    id: int
    stamp: float
    session: str


def scan(conn: apsw.Connection, plan: Plan, filters: Filters, above: int = 0) -> list[int]:
    """The ids of the hits among the newest SCAN_ROWS messages that pass the filters, a page of them.

    ``above``: only messages with a higher id.

    Newest and oldest go by timestamp, then id; rank goes by id, newest first.
    """
    conditions, bound = filters.conditions()
    sql = f"SELECT m.id FROM messages m WHERE m.id > ?{conditions} ORDER BY m.id DESC LIMIT {SCAN_ROWS}"  # noqa: S608
    candidates = column(conn, sql, (above, *bound))
    fold = trigram_fold(conn)
    hits: list[_Hit] = []
    for start in range(0, len(candidates), _BATCH):
        hits.extend(_matching(conn, plan, candidates[start : start + _BATCH], fold))
        if filters.order == "rank" and len(page := _page(hits, filters)) == filters.limit:
            return [hit.id for hit in page]  # older messages come behind it
    if filters.order != "rank":
        hits.sort(key=lambda hit: (hit.stamp, hit.id), reverse=filters.order == "newest")
    return [hit.id for hit in _page(hits, filters)]


def _matching(
    conn: apsw.Connection, plan: Plan, ids: list[int], fold: Callable[[str], str]
) -> Iterator[_Hit]:
    """The candidates that match, in the order given, which is from the highest id down."""
    sql = _READ_SQL
    params: tuple[object, ...] = (ids[-1], ids[0])
    if all(term.kind == "substring" for term in plan.wanted):
        literals = [fold(term.text) for term in plan.wanted]
        sql += _LIKELY_SQL
        params += (json.dumps([text for text in literals if text.isascii()]),)
    found = tuples(conn, sql + _NEWEST_FIRST, params)
    wanted = set(ids)
    for row_id, stamp, session, *texts in found:
        if row_id in wanted and Folded(searchable.text(*texts), fold).matches(plan):
            yield _Hit(row_id, seconds(stamp), session)


def seconds(stamp: object) -> float:
    """A stored timestamp to order by; what is no number (another program's) comes last, as in SQL."""
    return float(stamp) if isinstance(stamp, int | float) else float("inf")


def _page(hits: list[_Hit], filters: Filters) -> list[_Hit]:
    if filters.per_session is not None:
        seen: dict[str, int] = {}
        kept = []
        for hit in hits:
            seen[hit.session] = seen.get(hit.session, 0) + 1
            if seen[hit.session] <= filters.per_session:
                kept.append(hit)
        hits = kept
    offset = filters.offset
    if (after := filters.after) is not None:
        if after.order == "rank":
            offset += after.seen
        elif after.order == ORDER:
            hits = [hit for hit in hits if hit.id < after.id]
        else:
            last = (seconds(after.key), after.id)
            newest = after.order == "newest"
            hits = [h for h in hits if ((h.stamp, h.id) < last if newest else (h.stamp, h.id) > last)]
    return hits[offset:] if filters.limit < 0 else hits[offset : offset + filters.limit]
