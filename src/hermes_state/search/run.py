"""One search on a reader connection: query text in, a page of hits out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import apsw

from hermes_state.store.rows import column, rows

from . import filters as filtering
from . import recent, tables
from .compile import Compiler, Rows, has_words
from .filters import Filters
from .plan import Plan, build, describe
from .results import page
from .scan import scan

WIDE: Final = 2_000
"""Matches from which sorting by time walks the (session_id, timestamp) index instead of the rows.

A row's timestamp lies behind its content, for long content at the end of a chain of overflow pages.
"""

_ORDERS = {
    "rank": "f.rank, f.id",
    "newest": "m.timestamp DESC, m.id DESC",
    "oldest": "m.timestamp, m.id",
}
_TIME_INDEX = "idx_messages_session"


def search(
    conn: apsw.Connection,
    query: str | None,
    *,
    source_filter: Iterable[object] | None = None,
    exclude_sources: Iterable[object] | None = None,
    role_filter: Iterable[object] | None = None,
    limit: int | None = 20,
    offset: int | None = 0,
    sort: object = None,
    exclude_session_id: str | None = None,
    per_session: int | None = None,
    index_usable: bool = True,
    on_damage: Callable[[apsw.Error], object] | None = None,
) -> list[dict[str, Any]]:
    """The hits of ``query``, best first, as dicts with the keys of the contract's section 4.4.

    ``source_filter``, ``exclude_sources``, ``role_filter``: session sources and message roles (see
    ``filters.make`` for empty lists). ``sort``: "newest" or "oldest" by timestamp, then id; else bm25, then
    id. ``exclude_session_id`` leaves one session out, ``per_session`` keeps the first so many hits of each.
    No text is an error; a query without a positive term gives an empty list. TypeError when ``query``
    is neither str nor None.

    The caller has brought the index up to date and holds one read transaction around the call.
    Where an index that the query needs is missing or damaged, the newest ``scan.SCAN_ROWS`` messages are
    scanned; so they are with ``index_usable`` False. ``on_damage`` is told what using the index raised.
    """
    chosen = filtering.make(
        source_filter, exclude_sources, role_filter, limit, offset, sort, exclude_session_id, per_session
    )
    plan = build(conn, query)
    if not plan.groups or chosen.limit == 0 or chosen.sources == ():
        return []
    if index_usable:
        try:
            return _indexed(conn, plan, chosen)
        except (apsw.CorruptError, apsw.SQLError) as error:
            if _index_damage(error):
                if on_damage is not None:
                    on_damage(error)
            elif not _index_missing(error):
                raise
    return page(conn, scan(conn, plan, chosen), plan)


def explain(conn: apsw.Connection, query: str | None) -> str:
    """In words: the terms of ``query``, the index that answers each, and how they are joined."""
    plan = build(conn, query)
    if plan.groups and not _answerable(plan, tables.present(conn)):
        return f"scan of the newest messages, since an index is missing:\n{describe(plan, False)}"
    return describe(plan, has_words(conn))


def _answerable(plan: Plan, have: frozenset[str]) -> bool:
    """Whether every index that a term of the plan needs is there."""
    needed = {tables.FTS if route == "words" else tables.TRIGRAM for route in plan.routes}
    return needed <= have


def _index_damage(error: apsw.Error) -> bool:
    """Damage that may lie in an index alone: the scan then answers, or meets the damage itself."""
    return isinstance(error, apsw.CorruptError) or "vtable constructor failed" in str(error)


def _index_missing(error: apsw.Error) -> bool:
    """No such table, FTS5 table, module or tokenizer. Asking first would cost every search a look."""
    return str(error).startswith("no such ")


def _indexed(conn: apsw.Connection, plan: Plan, chosen: Filters) -> list[dict[str, Any]]:
    if "short" in plan.routes:
        tables.prepare_connection(conn)
    words = has_words(conn)
    found = Compiler(conn, words, ranked=chosen.order == "rank").plan(plan)
    if chosen.bare:
        sql = f"SELECT id FROM ({found.sql}) ORDER BY rank, id LIMIT ? OFFSET ?"  # noqa: S608 - constant parts
        ids = column(conn, sql, (*found.params, chosen.limit, chosen.offset))
        hits = page(conn, ids, plan)
        if len(hits) == len(ids):
            return hits
        # An index row without its message or session stood on the page: look for whole hits only.
    if chosen.order == "rank":
        return page(conn, _filtered(conn, found, chosen), plan)
    few = _few(conn, found)
    if few is not None:
        return page(conn, _filtered(conn, few, chosen), plan)
    early = recent.page(conn, plan, words, chosen)
    return page(conn, _filtered(conn, found, chosen, wide=True) if early is None else early, plan)


def _filtered(conn: apsw.Connection, found: Rows, chosen: Filters, *, wide: bool = False) -> list[int]:
    """The ids of a page, with the filters and the order that need the message rows.

    ``wide``: so many rows match that walking the index by time costs less than reading them.
    """
    conditions, bound = chosen.conditions()
    order = _ORDERS[chosen.order]
    if wide and tables.has_index(conn, _TIME_INDEX):
        source = f"messages m INDEXED BY {_TIME_INDEX} WHERE m.id IN (SELECT id FROM ({found.sql}))"  # noqa: S608
    else:
        source = f"({found.sql}) f CROSS JOIN messages m ON m.id = f.id WHERE 1"
    if chosen.per_session is None:
        sql = f"SELECT m.id FROM {source}{conditions} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608
        return column(conn, sql, (*found.params, *bound, chosen.limit, chosen.offset))
    sql = (
        "SELECT id FROM (SELECT m.id AS id,"  # noqa: S608 - constant parts
        f" row_number() OVER (PARTITION BY m.session_id ORDER BY {order}) AS place,"
        f" row_number() OVER (ORDER BY {order}) AS overall FROM {source}{conditions})"
        " WHERE place <= ? ORDER BY overall LIMIT ? OFFSET ?"
    )
    return column(conn, sql, (*found.params, *bound, chosen.per_session, chosen.limit, chosen.offset))


def _few(conn: apsw.Connection, found: Rows) -> Rows | None:
    """The ids of ``found`` as a list where they are fewer than WIDE, so that they are found once only."""
    sql = f"SELECT json_group_array(id), count(*) FROM (SELECT id FROM ({found.sql}) LIMIT {WIDE})"  # noqa: S608
    ids, count = rows(conn, sql, found.params)[1][0]
    return Rows("SELECT value AS id, 0.0 AS rank FROM json_each(?)", (ids,)) if count < WIDE else None
