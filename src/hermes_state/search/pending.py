"""Searching while messages wait for the index: another process holds the write lock, or many were stored.

A search does not wait long for its turn to index. What stands above the watermark then is scanned,
and its hits join those of the index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apsw

from . import tables
from .filters import Filters
from .plan import Plan
from .results import page
from .scan import scan, seconds

Hits = list[dict[str, Any]]


def joined(
    conn: apsw.Connection, plan: Plan, chosen: Filters, indexed: Callable[[Filters], Hits]
) -> Hits | None:
    """A page of hits of the index and of the rows above the watermark, which by rank come first.

    None where the page cannot be made from two parts (a place in a list, a number of hits a session):
    then all is scanned.
    """
    if chosen.after is not None or chosen.per_session is not None:
        return None
    end = -1 if chosen.limit < 0 else chosen.offset + chosen.limit
    whole = replace(chosen, offset=0, limit=end)
    above = page(conn, scan(conn, plan, whole, above=tables.watermark(conn)), plan)
    known = {hit["id"] for hit in above}
    hits = above + [hit for hit in indexed(whole) if hit["id"] not in known]
    if chosen.order != "rank":
        hits.sort(key=lambda hit: (seconds(hit["timestamp"]), hit["id"]), reverse=chosen.order == "newest")
    return hits[chosen.offset :] if end < 0 else hits[chosen.offset : end]
