"""Lists of sessions, with what each is about and when it was last active.

A session's last activity is the newest timestamp of its messages, or its start
when it has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from hermes_state.store import lineage
from hermes_state.store.preview import previews
from hermes_state.store.rows import Params, column, dicts, rows, scalar
from hermes_state.store.values import bound, json_list, json_pairs, text

MAX_NEWEST = 1000
"""Conversations that a page by activity may look at before it is taken from the whole list instead."""

TIP_COLUMNS = (
    "id", "ended_at", "end_reason", "message_count", "tool_call_count",
    "title", "last_active", "preview", "model", "system_prompt",
)  # fmt: skip
"""What a compression root shows of its tip; every other column, its start among them, is its own."""

LAST_ACTIVE = "COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at)"

# A branch is a conversation of its own: its parent ended by branching before it began
# (with the overlap that lineage.OVERLAP_S grants a clock).
_VISIBLE = """\
(?1 OR s.parent_session_id IS NULL OR EXISTS (
    SELECT 1 FROM sessions p
    WHERE p.id = s.parent_session_id AND p.end_reason = 'branched' AND s.started_at >= p.ended_at - 1.0))
AND (?2 IS NULL OR s.source = ?2)
AND s.source NOT IN (SELECT value FROM json_each(?3))"""

_BY_START = f"""\
SELECT s.id FROM sessions s WHERE {_VISIBLE} ORDER BY s.started_at DESC, s.id LIMIT ?4 OFFSET ?5
"""  # noqa: S608 -- constant SQL

_COMPRESSED = f"SELECT s.id FROM sessions s WHERE {_VISIBLE} AND s.end_reason = 'compression'"  # noqa: S608

_BY_ACTIVITY = f"""\
WITH tips(root, tip) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?6)
),
listed(id, started_at, shown) AS (
    SELECT s.id, s.started_at, s.id FROM sessions s WHERE {_VISIBLE} AND s.id NOT IN (SELECT root FROM tips)
    UNION ALL
    SELECT s.id, s.started_at, tips.tip FROM tips JOIN sessions s ON s.id = tips.root
)
SELECT l.id FROM listed l
ORDER BY COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = l.shown),
                  (SELECT t.started_at FROM sessions t WHERE t.id = l.shown)) DESC,
         l.started_at DESC, l.id DESC
LIMIT ?4 OFFSET ?5
"""  # noqa: S608 -- constant SQL

# The ?1 sessions of newest activity, and all others of the same activity as the last of them.
_NEWEST = f"""\
WITH active(id, at) AS MATERIALIZED (SELECT s.id, {LAST_ACTIVE} FROM sessions s)
SELECT id FROM active
WHERE at >= COALESCE((SELECT at FROM active ORDER BY at DESC LIMIT 1 OFFSET ?1 - 1),
                     (SELECT MIN(at) FROM active))
"""  # noqa: S608 -- constant SQL

# The walk back through the index by time: the moment ?1 messages back, and the sessions that were
# active after it, those of source ?2 or all. Without messages the start counts.
TIME_INDEX = "hs_idx_messages_time"
_EDGE = f"""\
SELECT timestamp FROM messages INDEXED BY {TIME_INDEX} ORDER BY timestamp DESC LIMIT 1 OFFSET ?1
"""  # noqa: S608 -- constant SQL
_ACTIVE_AFTER = f"""\
SELECT s.id FROM (SELECT DISTINCT session_id FROM messages INDEXED BY {TIME_INDEX} WHERE timestamp > ?1) a
CROSS JOIN sessions s ON s.id = a.session_id WHERE ?2 IS NULL OR s.source = ?2
UNION ALL
SELECT s.id FROM sessions s WHERE s.started_at > ?1 AND (?2 IS NULL OR s.source = ?2)
AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)
"""  # noqa: S608 -- constant SQL
WALKS = (500, 4_000)
"""Messages that the walk looks back over, first and then once more if that seems worth it."""

_SHOWN = f"""\
SELECT s.id, json_extract(e.value, '$[1]') AS tip FROM json_each(?4) e
JOIN sessions s ON s.id = json_extract(e.value, '$[0]')
WHERE {_VISIBLE}
ORDER BY (SELECT {LAST_ACTIVE.replace("s.", "t.")} FROM sessions t WHERE t.id = tip) DESC,
         s.started_at DESC, s.id DESC
"""  # noqa: S608 -- constant SQL

_ROWS = f"""\
SELECT s.*, {LAST_ACTIVE} AS last_active FROM json_each(?) e JOIN sessions s ON s.id = e.value
"""  # noqa: S608 -- constant SQL

_SEARCH = f"""\
WITH page AS MATERIALIZED (
    SELECT s.id, s.started_at, {LAST_ACTIVE} AS last_active FROM sessions s
    WHERE ?1 IS NULL OR s.source = ?1
    ORDER BY 3 DESC, 2 DESC, 1 DESC LIMIT ?2 OFFSET ?3
)
SELECT s.*, page.last_active FROM page JOIN sessions s ON s.id = page.id
ORDER BY page.last_active DESC, page.started_at DESC, page.id DESC
"""  # noqa: S608 -- constant SQL

_SEARCH_AMONG = f"""\
WITH page AS MATERIALIZED (
    SELECT s.id, s.started_at, {LAST_ACTIVE} AS last_active
    FROM json_each(?1) e CROSS JOIN sessions s ON s.id = e.value
    ORDER BY 3 DESC, 2 DESC, 1 DESC LIMIT ?2 OFFSET ?3
)
SELECT s.*, page.last_active FROM page CROSS JOIN sessions s ON s.id = page.id
ORDER BY page.last_active DESC, page.started_at DESC, page.id DESC
"""  # noqa: S608 -- constant SQL

_SPARE = 20
"""Sessions looked at beyond twice the page, for those that are no tips of listed conversations."""


def rich(
    conn: apsw.Connection,
    source: str | None = None,
    exclude_sources: Iterable[str] | None = None,
    limit: int = 20,
    offset: int = 0,
    include_children: bool = False,
    project_compression_tips: bool = True,
    order_by_last_active: bool = False,
) -> list[dict[str, Any]]:
    """A page of sessions: all columns, ``preview`` and ``last_active``.

    Children are left out, except branches, unless ``include_children``; then
    nothing is projected. A root that compression continued is shown under its
    tip's ``TIP_COLUMNS`` with its own id as ``_lineage_root_id``. Filters look at
    the root.

    Args:
        source: only this source; empty or None for all.
        exclude_sources: none of these.
        limit: rows at most; negative for all.
        offset: rows passed over; negative counts as 0.
        order_by_last_active: newest activity of the conversation (its tip) first,
            then newest start, then highest id; else newest start first, then lowest id.
    """
    filters = (bool(include_children), text(source, "source") or None, json_list(exclude_sources or ()))
    page = (bound(limit), max(0, bound(offset)))
    project = project_compression_tips and not include_children
    if order_by_last_active:
        ids, tips = _newest_page(conn, filters, *page) or _page_by_activity(conn, filters, *page)
    else:
        ids = column(conn, _BY_START, (*filters, *page))
        tips = lineage.compression_tips(conn, ids) if project else {}
    return _shown(conn, ids, tips if project else {})


def search_sessions(
    conn: apsw.Connection, source: str | None = None, limit: int = 20, offset: int = 0
) -> list[dict[str, Any]]:
    """A page of sessions, children too: all columns and ``last_active``, newest activity first.

    Equal activity is ordered by the newest start, then by the highest id.
    """
    wanted, most, passed = text(source, "source") or None, bound(limit), max(0, bound(offset))
    active = None if most < 0 else _active(conn, most + passed, wanted)
    if active is None:
        return dicts(conn, _SEARCH, (wanted, most, passed))
    return dicts(conn, _SEARCH_AMONG, (json_list(active), most, passed))


def recent_with_preview(conn: apsw.Connection, limit: int = 20) -> list[dict[str, Any]]:
    """The document's query "recent sessions with preview": every session, newest start first."""
    return rich(conn, limit=limit, include_children=True)


def with_preview(conn: apsw.Connection, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of ``found`` (each with an ``id``) with ``preview`` set, empty where there is none."""
    shown = previews(conn, [row["id"] for row in found])
    for row in found:
        row["preview"] = shown.get(row["id"], "")
    return found


def _page_by_activity(
    conn: apsw.Connection, filters: Params, limit: int, offset: int
) -> tuple[list[str], dict[str, str]]:
    """The ids of a page by activity, and the tips of the compressed ones: from all that may be listed."""
    tips = lineage.compression_tips(conn, column(conn, _COMPRESSED, filters))
    return column(conn, _BY_ACTIVITY, (*filters, limit, offset, json_pairs(tips.items()))), tips


def _newest_page(
    conn: apsw.Connection, filters: Params, limit: int, offset: int
) -> tuple[list[str], dict[str, str]] | None:
    """The same page from the sessions of newest activity alone, or None if they do not fill it.

    A conversation's activity is that of its tip, so going up from the newest tips
    gives the newest conversations, and the chains of all others need not be walked.
    """
    if limit < 0 or filters[0] or offset + limit > MAX_NEWEST:
        return None
    wanted = 2 * (offset + limit) + _SPARE
    newest = _active(conn, wanted) or column(conn, _NEWEST, (wanted,))
    continued = lineage.compression_tips(conn, newest)
    tips = [session_id for session_id in newest if session_id not in continued]
    roots = lineage.compression_roots(conn, tips)
    pairs = json_pairs([(roots.get(tip, tip), tip) for tip in tips])
    found = rows(conn, _SHOWN, (*filters, pairs))[1]
    if len(found) < offset + limit and len(newest) >= wanted:
        return None
    page: dict[str, str] = dict(found[offset : offset + limit])
    return list(page), {root: tip for root, tip in page.items() if root != tip}


def _active(conn: apsw.Connection, wanted: int, source: str | None = None) -> list[str] | None:
    """The sessions that were active after some moment, ``wanted`` or more; None where it is not near.

    A walk back over the last messages finds them, whatever the number of sessions; unless few sessions
    wrote all of those messages.
    """
    if scalar(conn, "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?", (TIME_INDEX,)) is None:
        return None
    for messages in WALKS:
        edge = scalar(conn, _EDGE, (messages,))
        if edge is None:
            return None
        found = column(conn, _ACTIVE_AFTER, (edge, source))
        if len(found) >= wanted:
            return found
        if len(found) * WALKS[-1] < wanted * messages:
            return None
    return None


def _shown(conn: apsw.Connection, ids: list[str], tips: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of ``ids`` in that order, each under what its tip shows."""
    wanted = dict.fromkeys([*ids, *(tips[i] for i in ids if i in tips)])
    by_id = {row["id"]: row for row in with_preview(conn, dicts(conn, _ROWS, (json_list(wanted),)))}
    page = []
    for session_id in ids:
        row = by_id.get(session_id)
        if row is None:
            continue
        tip = by_id.get(tips.get(session_id))
        if tip is not None:
            row = {**row, **{name: tip[name] for name in TIP_COLUMNS}, "_lineage_root_id": session_id}
        page.append(row)
    return page
