"""The search without an index: the newest messages read and matched in Python.

It serves where a full-text table is missing (SQLite built without FTS5 or the trigram
tokenizer) or damaged. The meaning is the same; there is no bm25, so "rank" is newest first.
"""

from __future__ import annotations

from typing import Final

import apsw

from hermes_state._fastpath import searchable
from hermes_state.store.rows import column, rows

from .filters import Filters
from .folding import Folded
from .plan import Plan

SCAN_ROWS: Final = 50_000
"""Messages that one scan reads, the newest first; older ones are not found without an index."""

_BATCH = 500


def scan(conn: apsw.Connection, plan: Plan, filters: Filters) -> list[int]:
    """The ids of the hits among the newest SCAN_ROWS messages that pass the filters, a page of them.

    Newest and oldest go by timestamp, then id; rank goes by id, newest first.
    """
    conditions, bound = filters.conditions()
    sql = f"SELECT m.id FROM messages m WHERE 1{conditions} ORDER BY m.id DESC LIMIT {SCAN_ROWS}"  # noqa: S608
    candidates = column(conn, sql, bound)
    hits: list[tuple[float, int, str]] = []
    for start in range(0, len(candidates), _BATCH):
        hits.extend(_matching(conn, plan, candidates[start : start + _BATCH]))
    if filters.order != "rank":
        hits.sort(reverse=filters.order == "newest")
    return [row_id for _, row_id, _ in _page(hits, filters)]


def _matching(conn: apsw.Connection, plan: Plan, ids: list[int]) -> list[tuple[float, int, str]]:
    """``(timestamp, id, session)`` of the candidates that match, in the order given."""
    _, found = rows(
        conn,
        "SELECT id, timestamp, session_id, content, tool_name, tool_calls FROM messages"
        " WHERE id BETWEEN ? AND ? ORDER BY id DESC",
        (ids[-1], ids[0]),
    )
    wanted = set(ids)
    return [
        (float(stamp or 0), row_id, session)
        for row_id, stamp, session, *texts in found
        if row_id in wanted and Folded(searchable.text(*texts)).matches(plan)
    ]


def _page(hits: list[tuple[float, int, str]], filters: Filters) -> list[tuple[float, int, str]]:
    if filters.per_session is not None:
        seen: dict[str, int] = {}
        kept = []
        for hit in hits:
            seen[hit[2]] = seen.get(hit[2], 0) + 1
            if seen[hit[2]] <= filters.per_session:
                kept.append(hit)
        hits = kept
    end = None if filters.limit < 0 else filters.offset + filters.limit
    return hits[filters.offset : end]
