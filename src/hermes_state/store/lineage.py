"""Who continues whom: ancestors, descendants, and the chain that compression makes.

The rule of continuation, used everywhere in this package:

* A session continues its parent if the parent ended with reason
  ``compression`` and the session started no more than ``OVERLAP_S`` before
  that end. The clock of the child may be read some milliseconds before the
  parent's end is written, so "not before the end" would lose real
  continuations; a sub-agent that ran during the parent's life started earlier
  than that.
* A parent has at most one continuation. Among several such children it is one
  that goes on (it has messages, or was itself compressed) rather than an empty
  one; then the one that started nearest to the parent's end, since compression
  starts it at that moment and a sub-agent that is hung under the old parent
  comes later; then the newest, then the highest id.

All walks end on any graph of parents, cycles included: recursive queries use
UNION over rows without a depth, and the walks in Python remember where they
have been. None has a fixed depth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import apsw

from hermes_state.store.rows import column, dicts, rows
from hermes_state.store.values import json_list, required_text, text

OVERLAP_S = 1.0
"""Seconds by which a continuation may seem to start before its parent ended (also in the SQL below)."""

ORPHAN_AFTER_S = 7 * 86400.0
ORPHAN_REASON = "orphaned_compression"

# The id of the session that continues ``p``, or NULL.
_CONTINUATION = """\
(SELECT k.id FROM sessions k
 WHERE p.end_reason = 'compression' AND k.parent_session_id = p.id AND k.id <> p.id
   AND k.started_at >= p.ended_at - 1.0
 ORDER BY (k.end_reason IS 'compression' OR EXISTS (SELECT 1 FROM messages m WHERE m.session_id = k.id)) DESC,
          ABS(k.started_at - p.ended_at), k.started_at DESC, k.id DESC
 LIMIT 1)"""

_CHAINS = f"""\
WITH RECURSIVE chain(root, id, came_from) AS (
    SELECT e.value, e.value, NULL FROM json_each(?) e
    UNION
    SELECT c.root, {_CONTINUATION}, p.id
    FROM chain c JOIN sessions p ON p.id = c.id
    WHERE p.end_reason = 'compression'
)
SELECT root, id, came_from FROM chain WHERE id IS NOT NULL AND came_from IS NOT NULL
"""  # noqa: S608 -- constant SQL

_ROOTS = f"""\
WITH RECURSIVE up(tip, id, below) AS (
    SELECT e.value, e.value, NULL FROM json_each(?) e
    UNION
    SELECT u.tip, p.id, u.id
    FROM up u JOIN sessions c ON c.id = u.id JOIN sessions p ON p.id = c.parent_session_id
    WHERE p.end_reason = 'compression' AND c.id = {_CONTINUATION}
)
SELECT tip, id, below FROM up WHERE below IS NOT NULL
"""  # noqa: S608 -- constant SQL

_ANCESTORS = """\
WITH RECURSIVE line(id, parent) AS (
    SELECT id, parent_session_id FROM sessions WHERE id = ?
    UNION
    SELECT s.id, s.parent_session_id FROM sessions s JOIN line l ON s.id = l.parent
)
"""

_DESCENDANTS = """\
WITH RECURSIVE line(id) AS (
    SELECT id FROM sessions WHERE id = ?
    UNION
    SELECT s.id FROM sessions s JOIN line l ON s.parent_session_id = l.id
)
"""

# CROSS JOIN keeps SQLite from walking all sessions in the order wanted, to sort nothing.
_ABOUT = """\
SELECT s.id, s.title, s.started_at, s.parent_session_id
FROM line l CROSS JOIN sessions s ON s.id = l.id ORDER BY s.started_at, s.id
"""

_USED = """\
SELECT s.id, s.parent_session_id, EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id) AS used
FROM line l CROSS JOIN sessions s ON s.id = l.id ORDER BY s.started_at DESC, s.id DESC
"""

_PARENTS = _ANCESTORS + "SELECT id, parent FROM line"  # noqa: S608 -- constant SQL

_END_ORPHANS = """\
UPDATE sessions SET ended_at = ?1, end_reason = ?2
WHERE ended_at IS NULL AND started_at < ?3 AND COALESCE(api_call_count, 0) = 0
  AND EXISTS (SELECT 1 FROM sessions p
              WHERE p.id = sessions.parent_session_id AND p.end_reason = 'compression')
  AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = sessions.id)
"""


def compression_tip(conn: apsw.Connection, session_id: str) -> str:
    """The end of the compression chain through ``session_id``; the id itself when nothing continues it."""
    if not session_id:
        return session_id
    key = required_text(session_id, "session_id")
    return compression_tips(conn, [key]).get(key, session_id)


def compression_tips(conn: apsw.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Id -> the end of its compression chain, in one statement; ids that nothing continues are left out.

    In a cycle the end is the last session before one that was already passed.
    """
    following: dict[str, dict[str, str]] = {}
    for root, session_id, came_from in rows(conn, _CHAINS, (json_list(ids),))[1]:
        following.setdefault(root, {})[came_from] = session_id
    tips = {root: _walk(root, links)[-1] for root, links in following.items()}
    return {root: tip for root, tip in tips.items() if tip != root}


def compression_roots(conn: apsw.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Id -> the root of its compression chain, in one statement; ids that continue nothing are left out."""
    above: dict[str, dict[str, str]] = {}
    for tip, parent, below in rows(conn, _ROOTS, (json_list(ids),))[1]:
        above.setdefault(tip, {})[below] = parent
    roots = {tip: _walk(tip, links)[-1] for tip, links in above.items()}
    return {tip: root for tip, root in roots.items() if root != tip}


def compression_chain(conn: apsw.Connection, session_id: str) -> list[str]:
    """Every session of the compression chain that ``session_id`` is a link of, root first.

    A session outside any chain, known or not, is a chain of one.
    """
    key = required_text(session_id, "session_id")
    root = compression_roots(conn, [key]).get(key, key)
    links = {came_from: found for _, found, came_from in rows(conn, _CHAINS, (json_list([root]),))[1]}
    return _walk(root, links)


def continues(conn: apsw.Connection, session_id: str, ancestor_id: str) -> bool:
    """True if every link from ``ancestor_id`` down to ``session_id`` was made by a compression.

    Here any child that started at the end of its parent counts, also one that
    is not (or not yet) the parent's continuation in the lists.
    """
    sql = """\
WITH RECURSIVE line(id) AS (
    SELECT ?1
    UNION
    SELECT p.id FROM line l JOIN sessions c ON c.id = l.id JOIN sessions p ON p.id = c.parent_session_id
    WHERE p.end_reason = 'compression' AND c.started_at >= p.ended_at - 1.0
)
SELECT 1 FROM line WHERE id = ?2 AND ?1 <> ?2"""
    keys = (text(session_id, "session_id"), text(ancestor_id, "ancestor_id"))
    return conn.execute(sql, keys).fetchone() is not None


def conversation_chain(conn: apsw.Connection, session_id: str) -> list[str]:
    """The session and all its ancestors as ids, root first; an unknown session is alone."""
    key = required_text(session_id, "session_id")
    return _walk(key, _parents(conn, key))[::-1]


def ancestors(conn: apsw.Connection, session_id: str) -> list[dict[str, Any]]:
    """The session, its parent, and so on to the root: ``id, title, started_at, parent_session_id``.

    This is the document's query "find all ancestors", which begins with the
    session itself. Empty for an unknown session.
    """
    key = required_text(session_id, "session_id")
    found = {row["id"]: row for row in dicts(conn, _ANCESTORS + _ABOUT, (key,))}
    order = _walk(key, {child: row["parent_session_id"] for child, row in found.items()})
    return [found[session] for session in order if session in found]


def descendants(conn: apsw.Connection, session_id: str) -> list[dict[str, Any]]:
    """The session and all below it, nearest first: ``id, title, started_at, parent_session_id``.

    The document's query "find all descendants", which begins with the session
    itself. Children of one parent come oldest first. Empty for an unknown session.
    """
    key = required_text(session_id, "session_id")
    found = {row["id"]: row for row in dicts(conn, _DESCENDANTS + _ABOUT, (key,))}
    return [found[session] for session in _by_level(key, found)]


def resolve_resume(conn: apsw.Connection, session_id: str) -> str:
    """The session in which to go on when the user names ``session_id``.

    The tip of its compression chain if there is one; else the session itself if
    it has messages; else its nearest descendant that has, the newest of those
    equally near; else the session itself.
    """
    tip = compression_tip(conn, session_id)
    if tip != session_id or not session_id:
        return tip
    key = required_text(session_id, "session_id")
    found = {row["id"]: row for row in dicts(conn, _DESCENDANTS + _USED, (key,))}
    return next((session for session in _by_level(key, found) if found[session]["used"]), session_id)


def finalize_orphans(conn: apsw.Connection, now: float | None = None) -> int:
    """End the children of compressed parents that were begun over seven days ago and never used.

    Those that have messages (carried over by the compression) but never called
    a model and never ended. Returns how many were ended, with the reason
    ``orphaned_compression``.
    """
    moment = time.time() if now is None else now
    conn.execute(_END_ORPHANS, (moment, ORPHAN_REASON, moment - ORPHAN_AFTER_S))
    return conn.changes()


def children(conn: apsw.Connection, session_id: str) -> list[str]:
    """Ids of the sessions whose parent is ``session_id``, oldest first."""
    return column(
        conn,
        "SELECT id FROM sessions WHERE parent_session_id = ? ORDER BY started_at, id",
        (text(session_id, "session_id"),),
    )


def _parents(conn: apsw.Connection, key: str) -> dict[str, str | None]:
    """Id -> parent id, for the session and all above it."""
    return dict(rows(conn, _PARENTS, (key,))[1])


def _walk(start: str, links: dict[str, Any]) -> list[str]:
    """``start`` and what ``links`` leads to, until nothing follows or something comes twice."""
    path = [start]
    seen = {start}
    while (following := links.get(path[-1])) is not None and following not in seen:
        path.append(following)
        seen.add(following)
    return path


def _by_level(root: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """The keys of ``found`` by their distance below ``root``, otherwise in the order they stand in."""
    below: dict[Any, list[str]] = {}
    for key, row in found.items():
        below.setdefault(row["parent_session_id"], []).append(key)
    order = [root] if root in found else []
    seen = set(order)
    for key in order:
        fresh = [child for child in below.get(key, ()) if child not in seen]
        seen.update(fresh)
        order.extend(fresh)
    return order
