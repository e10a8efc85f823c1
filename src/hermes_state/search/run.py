"""One search on a reader connection: query text in, a page of hits out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import apsw

from hermes_state.store.rows import tuples

from . import cursor as cursors
from . import filters as filtering
from . import forgetting, indexing, pending, recent, tables
from .compile import Compiler, Rows, has_words
from .cursor import Place
from .filters import Filters, Moment
from .plan import Plan, build, describe
from .results import page
from .scan import ORDER as SCAN_ORDER
from .scan import SCAN_ROWS, scan

WIDE: Final = 2_000
"""Matches from which sorting by time walks the (session_id, timestamp) index instead of the rows.

A row's timestamp lies behind its content, for long content at the end of a chain of overflow pages.
"""

FEW: Final = 200
"""Matches up to which those are read, before the page is looked for among the first or last messages."""

NARROW: Final = 5_000
"""Messages of a span of time up to which they are listed first, so that no match outside is looked at."""

_ORDERS = {
    "rank": "f.rank, f.id",
    "newest": "m.timestamp DESC, m.id DESC",
    "oldest": "m.timestamp, m.id",
}
_TIME_INDEX = "idx_messages_session"


@dataclass(frozen=True, slots=True)
class Page:
    """The hits of one page, the place of the last one where the page is full, and the search they are of."""

    hits: list[dict[str, Any]]
    place: Place | None
    search: tuple[object, ...]

    @property
    def cursor(self) -> str | None:
        """What the next page is asked for with; None where there is none."""
        return None if self.place is None else cursors.write(self.place, self.search)


def search(conn: apsw.Connection, query: str | None, **given: Any) -> list[dict[str, Any]]:
    """The hits of ``search_page``, which see for the arguments."""
    return search_page(conn, query, **given).hits


def search_page(
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
    since: Moment | None = None,
    until: Moment | None = None,
    match: str = "words",
    cursor: str | None = None,
    index_usable: bool = True,
    on_damage: Callable[[apsw.Error], object] | None = None,
) -> Page:
    """The hits of ``query``, best first, as dicts with the keys that ``SessionDB.search_messages`` lists.

    ``source_filter``, ``exclude_sources``, ``role_filter``: session sources and message roles (see
    ``filters.make`` for empty lists). ``sort``: "newest" or "oldest" by timestamp, then id; else bm25, then
    id. ``exclude_session_id`` leaves one session out, ``per_session`` keeps the first so many hits of each.
    ``since`` and ``until``: from that moment on, and before that one. ``match``: see ``plan.build``.
    ``cursor``: only what comes behind that page. No text is an error; a query without a positive term gives
    no hits. TypeError when ``query`` is neither str nor None, ValueError for a cursor of another search.

    The caller holds one read transaction around the call, and has brought the index up to date as far
    as it could: messages that are not in it are scanned.
    Where an index that the query needs is missing or damaged, or cannot tell, the newest
    ``scan.SCAN_ROWS`` messages are scanned; so they are with ``index_usable`` False. ``on_damage`` is told
    what using the index raised.
    """
    chosen = filtering.make(
        source_filter, exclude_sources, role_filter, limit, offset, sort, exclude_session_id, per_session,
        since, until,
    )  # fmt: skip
    plan = build(conn, query, match)
    same = (query, match, *chosen.key)
    if cursor is not None:
        chosen = replace(chosen, after=cursors.read(cursor, same))
    if not plan.groups or chosen.limit == 0 or chosen.sources == ():
        return Page([], None, same)
    hits, rank, order = _hits(conn, plan, chosen, index_usable, on_damage)
    if not 0 < chosen.limit <= len(hits):
        return Page(hits, None, same)
    last = hits[-1]
    key = last["timestamp"] if order in ("newest", "oldest") else rank
    seen = chosen.offset + len(hits) + (chosen.after.seen if chosen.after else 0)
    usable = key if isinstance(key, int | float | str) else None
    return Page(hits, Place(order, usable, last["id"], seen), same)


def _hits(
    conn: apsw.Connection,
    plan: Plan,
    chosen: Filters,
    index_usable: bool,
    on_damage: Callable[[apsw.Error], object] | None,
) -> tuple[list[dict[str, Any]], float | None, str]:
    """A page of hits, the rank of its last one, and the order in which they are."""
    if index_usable and not _untold(conn, plan):
        try:
            if not indexing.pending(conn):
                return *_indexed(conn, plan, _placed(chosen)), chosen.order
            hits = pending.joined(conn, plan, chosen, lambda whole: _indexed(conn, plan, whole)[0])
            if hits is not None:
                return hits, None, chosen.order
        except (apsw.CorruptError, apsw.SQLError) as error:
            if _index_damage(error):
                if on_damage is not None:
                    on_damage(error)
            elif not _index_missing(error):
                raise
    order = SCAN_ORDER if chosen.order == "rank" else chosen.order
    return page(conn, scan(conn, plan, chosen), plan), None, order


def _placed(chosen: Filters) -> Filters:
    """``chosen`` with its place by number where the page before was made in another order."""
    after = chosen.after
    if after is None or (after.order == chosen.order and after.key is not None):
        return chosen
    return replace(chosen, after=None, offset=chosen.offset + after.seen)


def explain(conn: apsw.Connection, query: str | None, match: str = "words") -> str:
    """In words: the terms of ``query``, the index that answers each, and how they are joined."""
    plan = build(conn, query, match)
    scanned = f"scan of the newest messages ({SCAN_ROWS:,} at most), since"
    if plan.groups and not _answerable(plan, tables.present(conn)):
        return f"{scanned} an index is missing:\n{describe(plan, False, scanned=True)}"
    if untold := _untold(conn, plan):
        return f"{scanned} {untold}:\n{describe(plan, False, scanned=True)}"
    return describe(plan, has_words(conn))


def _untold(conn: apsw.Connection, plan: Plan) -> str:
    """Why no index of the file can answer the plan; empty where they can."""
    if not plan.everywhere:
        return ""
    for term in plan.everywhere:
        if term.route == "short":
            return f"{term.text!r} is shorter than a trigram"
    if tables.trigram_mode(conn) == "unspaced":
        return "the trigram index holds only messages in scripts written without spaces"
    return ""


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


def _indexed(conn: apsw.Connection, plan: Plan, chosen: Filters) -> tuple[list[dict[str, Any]], float | None]:
    """A page of hits by the indexes, and the rank of its last one where they are by rank."""
    if "short" in plan.routes:
        tables.prepare_connection(conn)
    words = has_words(conn)
    found = Compiler(conn, words, ranked=chosen.order == "rank").plan(plan)
    if chosen.bare and not (chosen.offset and forgetting.anything(conn)):  # those would count in the offset
        ranked = _ranked(conn, found, chosen)
        hits = page(conn, [row_id for row_id, _ in ranked], plan)
        if len(hits) == len(ranked):
            return hits, ranked[-1][1] if ranked else None
        # An index row without its message or session stood on the page: look for whole hits only.
    if chosen.timed:
        found = _within(conn, found, chosen)
    if chosen.order == "rank":
        ranked = _filtered(conn, found, chosen)
        return page(conn, [row_id for row_id, _ in ranked], plan), ranked[-1][1] if ranked else None
    return page(conn, _by_time(conn, plan, found, words, chosen), plan), None


def _by_time(conn: apsw.Connection, plan: Plan, found: Rows, words: bool, chosen: Filters) -> list[int]:
    """The ids of a page in time order."""
    few = _few(conn, found, min(FEW, WIDE))
    if few is None:
        early = recent.page(conn, plan, words, chosen)
        if early is not None:
            return early
        few = _few(conn, found, WIDE)
    ranked = _filtered(conn, few or found, chosen, wide=few is None)
    return [row_id for row_id, _ in ranked]


Ranked = list[tuple[int, float]]
"""Ids with their ranks."""

_FOUND = "WITH f(id, rank) AS MATERIALIZED (SELECT id, rank FROM ({found})) "


def _behind(chosen: Filters, time: str, rank: str, row_id: str) -> tuple[str, tuple[object, ...]]:
    """``AND ...`` for hits behind the place given, and what to bind; empty without a place.

    By rank it wants ``_FOUND``: the hit of the place may have another rank by now than the one it had.
    """
    if chosen.after is None or chosen.order != "rank":
        return recent.behind_sql(chosen, time, row_id)
    last = "COALESCE((SELECT g.rank FROM f g WHERE g.id = ?), ?)"
    return f" AND ({rank}, {row_id}) > ({last}, ?)", (chosen.after.id, chosen.after.key, chosen.after.id)


def _source(chosen: Filters, found: Rows) -> tuple[str, str]:
    """How a statement over ``found`` begins, and the name or query that stands for it."""
    if chosen.after is None or chosen.order != "rank":
        return "", f"({found.sql})"
    return _FOUND.format(found=found.sql), "f"


def _ranked(conn: apsw.Connection, found: Rows, chosen: Filters) -> Ranked:
    """A page by rank where no row of a message decides."""
    start, source = _source(chosen, found)
    behind, place = _behind(chosen, "", "rank", "id")
    sql = f"{start}SELECT id, rank FROM {source} WHERE 1{behind} ORDER BY rank, id LIMIT ? OFFSET ?"  # noqa: S608
    return tuples(conn, sql, (*found.params, *place, chosen.limit, chosen.offset))


def _within(conn: apsw.Connection, found: Rows, chosen: Filters) -> Rows:
    """``found`` in the messages of the span of time, where they are few; as it is where they are many."""
    if not tables.has_index(conn, recent.TIME_INDEX):
        return found
    times, moments = chosen.times("timestamp")
    sql = (
        "SELECT json_group_array(id), count(*) FROM ("  # noqa: S608 - constant parts
        f"SELECT id FROM messages INDEXED BY {recent.TIME_INDEX} WHERE 1{times} LIMIT {NARROW + 1})"
    )
    ids, count = tuples(conn, sql, moments)[0]
    if count > NARROW:
        return found
    # The plus sign keeps SQLite from asking FTS5 row by row, each time from the start.
    narrow = f"SELECT id, rank FROM ({found.sql}) WHERE +id IN (SELECT value FROM json_each(?))"  # noqa: S608
    return Rows(narrow, (*found.params, ids))


def _filtered(conn: apsw.Connection, found: Rows, chosen: Filters, *, wide: bool = False) -> Ranked:
    """A page with the filters and the order that need the message rows.

    ``wide``: so many rows match that walking the index by time costs less than reading them.
    """
    wide = wide and tables.has_index(conn, _TIME_INDEX)
    conditions, bound = chosen.conditions(by_session=wide)
    order = _ORDERS[chosen.order]
    start, source = _source(chosen, found)
    if wide:
        rank = "0.0"
        source = f"messages m INDEXED BY {_TIME_INDEX} WHERE m.id IN (SELECT id FROM {source})"  # noqa: S608
    else:
        rank = "f.rank"
        source = f"{source} f CROSS JOIN messages m ON m.id = f.id WHERE 1"
    if chosen.per_session is None:
        behind, place = _behind(chosen, "m.timestamp", "f.rank", "m.id")
        columns, end = f"m.id, {rank}", f"ORDER BY {order} LIMIT ? OFFSET ?"
        sql = f"{start}SELECT {columns} FROM {source}{conditions}{behind} {end}"  # noqa: S608
        return tuples(conn, sql, (*found.params, *bound, *place, chosen.limit, chosen.offset))
    # Each session's hits are counted from its first one on, whatever the place.
    behind, place = _behind(chosen, "stamp", "rank", "id")
    stamp = "0" if chosen.order == "rank" else "m.timestamp"
    sql = (
        f"{start}SELECT id, rank FROM (SELECT m.id AS id, {rank} AS rank, {stamp} AS stamp,"  # noqa: S608
        f" row_number() OVER (PARTITION BY m.session_id ORDER BY {order}) AS place,"
        f" row_number() OVER (ORDER BY {order}) AS overall FROM {source}{conditions})"
        f" WHERE place <= ?{behind} ORDER BY overall LIMIT ? OFFSET ?"
    )
    params = (*found.params, *bound, chosen.per_session, *place, chosen.limit, chosen.offset)
    return tuples(conn, sql, params)


def _few(conn: apsw.Connection, found: Rows, most: int) -> Rows | None:
    """The ids of ``found`` as a list where they are fewer than ``most``, so that they are found once only."""
    sql = f"SELECT json_group_array(id), count(*) FROM (SELECT id FROM ({found.sql}) LIMIT ?)"  # noqa: S608
    ids, count = tuples(conn, sql, (*found.params, most))[0]
    return Rows("SELECT value AS id, 0.0 AS rank FROM json_each(?)", (ids,)) if count < most else None
