"""A page in time order from the first or last messages alone.

A term that stands in every third message has its newest twenty hits among the
newest few hundred messages. Those are one contiguous piece of the index by time,
and where the clock ran forward also one range of ids, within which FTS5 can
match without reading the rest of a posting list. What that piece shows is
exact: every message outside comes later in the order.
"""

from __future__ import annotations

import json
from typing import Final

import apsw

from hermes_state.store.rows import column

from .compile import Compiler
from .filters import Filters
from .plan import Plan
from .tables import has_index

TIME_INDEX = "hs_idx_messages_time"
"""An index on ``messages(timestamp)``; without it nothing here is tried."""

WINDOW: Final = 1_000
"""Messages at the wanted end of time that are looked at."""

FIRST: Final = 150
"""Messages that are looked at before that, which is enough for a word of every third message."""

SPREAD: Final = 20_000
"""Most ids between the lowest and the highest of them: more would cost what a whole search costs."""

_WINDOW_SQL = f"SELECT id FROM messages INDEXED BY {TIME_INDEX} WHERE 1"  # noqa: S608
_ORDERS = {"newest": " ORDER BY timestamp DESC, id DESC LIMIT ?", "oldest": " ORDER BY timestamp, id LIMIT ?"}


def page(conn: apsw.Connection, plan: Plan, words: bool, chosen: Filters) -> list[int] | None:
    """The ids of the page, or None where the first WINDOW messages in the order do not fill it."""
    needed = chosen.offset + chosen.limit
    if chosen.per_session is not None or chosen.limit < 0 or needed > WINDOW // 2:
        return None
    if not has_index(conn, TIME_INDEX):
        return None
    for size in (FIRST, WINDOW) if needed * 3 <= FIRST < WINDOW else (WINDOW,):
        ids, complete = _page(conn, plan, words, chosen, size)
        if complete:
            return ids
    return None


def _page(
    conn: apsw.Connection, plan: Plan, words: bool, chosen: Filters, size: int
) -> tuple[list[int], bool]:
    """The ids of the page as far as the first ``size`` messages show them, and whether they show it whole."""
    needed = chosen.offset + chosen.limit
    times, moments = chosen.times("timestamp")
    behind, place = behind_sql(chosen, "timestamp", "id")
    window = column(conn, _WINDOW_SQL + times + behind + _ORDERS[chosen.order], (*moments, *place, size))
    if not window:
        return [], True
    if max(window) - min(window) > SPREAD:
        return [], False
    found = Compiler(conn, words, False, (min(window), max(window))).plan(plan)
    conditions, bound = chosen.conditions()
    sql = (
        "SELECT m.id FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value"  # noqa: S608 - constant parts
        f" WHERE m.id IN (SELECT id FROM ({found.sql})){conditions} ORDER BY j.key LIMIT ?"
    )
    ids = column(conn, sql, (json.dumps(window), *found.params, *bound, needed))
    return ids[chosen.offset :], len(ids) == needed or len(window) < size


def behind_sql(chosen: Filters, time: str, row_id: str) -> tuple[str, tuple[object, ...]]:
    """``AND ...`` for hits behind ``chosen.after`` in time order, and what to bind; empty without a place."""
    if chosen.after is None:
        return "", ()
    sign = "<" if chosen.order == "newest" else ">"
    return f" AND ({time}, {row_id}) {sign} (?, ?)", (chosen.after.key, chosen.after.id)
