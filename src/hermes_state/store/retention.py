"""Deleting sessions: one, a whole conversation, old ones, empty ones; all in bounded steps.

A step deletes a bounded number of messages, and a session's row once its last
message is gone, so that a writer that waits is let in between two steps. A
session that is cut off in the middle (the process was killed) is a session with
its older messages gone and its counters right; deleting it again goes on.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import apsw

from hermes_state._fastpath.text import clean
from hermes_state.store import idempotency, lineage, message_writes, meta
from hermes_state.store.messages import Forget as Forget
from hermes_state.store.rows import column, rows, scalar
from hermes_state.store.session_files import longer_ids as longer_ids
from hermes_state.store.session_files import remove_files as remove_files
from hermes_state.store.sessions import existing
from hermes_state.store.telegram_schema import BINDINGS
from hermes_state.store.values import bound, has_table, json_list, required_text, text

DAY_S = 86400.0
GHOST_AFTER_S = DAY_S
AUTO_VACUUM_INCREMENTAL = 2
"""The answer of ``PRAGMA auto_vacuum`` (https://www.sqlite.org/pragma.html#pragma_auto_vacuum)."""
AUTO_PRUNE_KEY = "last_auto_prune"
DELETION_KEY = "hermes_state.last_deletion"

STEP_MESSAGES = 512
STEP_BYTES = 250_000
STEP_SESSIONS = 200
"""Bounds of a step: messages, their weight, sessions."""
LATER: dict[str, int] = {"max_messages": 2_048, "text_share": 40}
"""Bounds of a step that leaves the indexes for later: the text is only freed then, not tokenized. Measured,
a row costs 9 microseconds, and a kilobyte of its text about one."""
ROW_BYTES = 200
"""What a message weighs beside the bytes of its text, which the indexes must read to forget it."""
PAGE_BYTES = 1000
"""What a page that is given back weighs."""

REPORT_SAMPLES = 20
"""Ids of each kind that a report of a prune names."""


@dataclass(frozen=True)
class Step:
    """What one step did.

    Attributes:
        deleted: ids of the sessions that are gone now.
        remaining: ids still to be deleted, for the next step; empty when all is done.
        messages: how many messages were deleted.
        weight: what they weighed, bytes.
    """

    deleted: list[str]
    remaining: list[str]
    messages: int
    weight: int = 0

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return not self.remaining


@dataclass(frozen=True)
class Cleared:
    """What one step of ``clear_step`` did.

    Attributes:
        through: what to give to the next step; None when no more is left to do.
        weight: what the deleted messages weighed, bytes.
    """

    through: int | None
    weight: int


@dataclass(frozen=True)
class Freed:
    """What one step of ``free_step`` did.

    Attributes:
        weight: what the pages weighed that it gave back; 0 when none is left.
    """

    weight: int


@dataclass(frozen=True)
class Age:
    """Which sessions are old.

    Attributes:
        before: Unix seconds; a session without activity since is old.
        source: only sessions of this source; None or empty for all.
        by_source: for the sources in it, the moment that stands for ``before``; None: never old.
    """

    before: float
    source: str | None = None
    by_source: Mapping[str, float | None] | None = None

    @property
    def bindings(self) -> tuple[float, str | None, str]:
        """What stands for ?1, ?2 and ?3 in the statements below."""
        given = {clean(source): moment for source, moment in (self.by_source or {}).items()}
        return self.before, text(self.source, "source") or None, json.dumps(given)


# The moment before which the session is old: of its source, where that has one.
_BEFORE = """\
(SELECT CASE COUNT(*) WHEN 0 THEN ?1 ELSE MAX(a.value) END FROM json_each(?3) a WHERE a.key = s.source)"""
# Its newest message, else its start. The start counts too: a session that was imported today is
# not old because its messages are.
_OLD = f"""\
s.ended_at IS NOT NULL AND s.started_at < {_BEFORE}
AND COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at) < {_BEFORE}
AND (?2 IS NULL OR s.source = ?2)"""  # noqa: S608 -- constant SQL

# A session that a compression continued is needed as long as what continues it is kept.
_OLD_AND_NEEDED = f"""\
WITH RECURSIVE old(id) AS MATERIALIZED (
    SELECT s.id FROM sessions s WHERE {_OLD}
),
needed(id) AS (
    SELECT s.parent_session_id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
    WHERE p.end_reason = 'compression' AND s.started_at >= p.ended_at - 1.0
      AND s.id NOT IN (SELECT id FROM old)
    UNION
    SELECT s.parent_session_id FROM needed n
    JOIN sessions s ON s.id = n.id JOIN sessions p ON p.id = s.parent_session_id
    WHERE p.end_reason = 'compression' AND s.started_at >= p.ended_at - 1.0
)
"""  # noqa: S608 -- constant SQL

_CANDIDATES = f"""{_OLD_AND_NEEDED}
SELECT s.id FROM sessions s
WHERE s.id IN (SELECT id FROM old) AND s.id NOT IN (SELECT id FROM needed)
ORDER BY s.started_at, s.id LIMIT ?4
"""  # noqa: S608 -- constant SQL

_GOES = "goes"
_REASONS = ("live", "active_since", "never", "continued", "other_source")
_REPORT = f"""{_OLD_AND_NEEDED}
SELECT reason, COUNT(*), SUM(message_count),
    json_group_array(id ORDER BY started_at, id) FILTER (WHERE place <= ?4)
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY reason ORDER BY started_at, id) AS place FROM (
        SELECT s.id, s.started_at, MAX(0, COALESCE(s.message_count, 0)) AS message_count, CASE
            WHEN s.source IS NOT COALESCE(?2, s.source) THEN 'other_source'
            WHEN s.ended_at IS NULL THEN 'live'
            WHEN {_BEFORE} IS NULL THEN 'never'
            WHEN s.id NOT IN (SELECT id FROM old) THEN 'active_since'
            WHEN s.id IN (SELECT id FROM needed) THEN 'continued'
            ELSE '{_GOES}' END AS reason
        FROM sessions s))
GROUP BY reason
"""  # noqa: S608 -- constant SQL

# The same rule for a few sessions, downwards: what continues them, and whether all of it is old.
_STILL_OLD = f"""\
WITH RECURSIVE line(root, id) AS (
    SELECT e.value, e.value FROM json_each(?4) e
    UNION
    SELECT l.root, c.id FROM line l
    JOIN sessions p ON p.id = l.id JOIN sessions c ON c.parent_session_id = p.id
    WHERE p.end_reason = 'compression' AND c.started_at >= p.ended_at - 1.0
)
SELECT l.root FROM line l LEFT JOIN sessions s ON s.id = l.id
GROUP BY l.root HAVING MIN(COALESCE({_OLD}, 0))
"""  # noqa: S608 -- constant SQL

_IS_GHOST = """\
s.source = 'tui' AND COALESCE(s.title, '') = '' AND s.ended_at IS NOT NULL AND s.started_at < ?1
AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)
AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id)
"""
_GHOSTS = f"SELECT s.id FROM sessions s WHERE {_IS_GHOST} ORDER BY s.started_at, s.id"  # noqa: S608 -- constant
_STILL_GHOSTS = f"""\
SELECT s.id FROM json_each(?2) e CROSS JOIN sessions s ON s.id = e.value WHERE {_IS_GHOST} ORDER BY e.key
"""  # noqa: S608 -- constant SQL

_NEXT_MESSAGES = """\
SELECT e.key, m.id, (COALESCE(octet_length(m.content), 0) + COALESCE(octet_length(m.tool_calls), 0)) / ?3
FROM json_each(?1) e CROSS JOIN messages m ON m.session_id = e.value
ORDER BY e.key, m.id LIMIT ?2
"""

_NEXT_OF_ONE = """\
SELECT 0, id, (COALESCE(octet_length(content), 0) + COALESCE(octet_length(tool_calls), 0)) / ?4
FROM messages WHERE session_id = ?1 AND id <= ?2 ORDER BY id LIMIT ?3
"""

_UNCOUNT = """\
UPDATE sessions SET
    message_count = MAX(0, COALESCE(message_count, 0) - ?2),
    tool_call_count = MAX(0, COALESCE(tool_call_count, 0) - (
        SELECT COALESCE(SUM(CASE
            WHEN m.tool_calls IS NULL OR m.tool_calls = '' THEN 0
            WHEN NOT json_valid(m.tool_calls) THEN 1
            WHEN json_type(m.tool_calls) = 'array' THEN json_array_length(m.tool_calls)
            ELSE 1 END), 0)
        FROM messages m WHERE m.id IN (SELECT value FROM json_each(?3)) AND m.session_id = ?1))
WHERE id = ?1
"""

_ORPHAN_CHILDREN = """\
UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN (SELECT value FROM json_each(?))
"""

# Bindings of version 1 do not go by themselves.
_UNBIND = "DELETE FROM telegram_dm_topic_bindings WHERE session_id IN (SELECT value FROM json_each(?))"


def cutoff(older_than_days: float, now: float | None = None) -> float:
    """The Unix time before which a session is old.

    Raises:
        TypeError, ValueError: ``older_than_days`` is no number, or negative or endless.
    """
    given: Any = older_than_days
    if not isinstance(given, Real):
        raise TypeError(f"older_than_days must be a number of days, not {given!r}")
    if not older_than_days >= 0 or math.isinf(older_than_days):
        raise ValueError(f"older_than_days must be 0 or more, not {older_than_days!r}")
    return (time.time() if now is None else now) - older_than_days * DAY_S


def age(
    older_than_days: float, source: str | None = None, per_source: Mapping[str, float | None] | None = None
) -> Age:
    """The ages of a prune as moments, all counted from now.

    Raises:
        ValueError: an age is negative or no number of days.
        TypeError: an age or a source is of another type.
    """
    now = time.time()
    moments = {
        required_text(name, "source"): None if days is None else cutoff(days, now)
        for name, days in (per_source or {}).items()
    }
    return Age(cutoff(older_than_days, now), source, moments)


def candidates(conn: apsw.Connection, old: Age, limit: int = -1) -> list[str]:
    """Ids of the sessions that a prune deletes, oldest start first; by itself the dry run.

    Ended sessions that began before ``old`` says and whose newest message is older
    too; without those whose compression chain leads to a session that is kept.
    """
    return column(conn, _CANDIDATES, (*old.bindings, bound(limit)))


def report(conn: apsw.Connection, old: Age, samples: int = REPORT_SAMPLES) -> dict[str, Any]:
    """What a prune would delete and what it would keep, and why.

    Returns:
        ``{"sessions", "messages", "sample", "kept": {reason: {"sessions", "sample"}}}``:
        how many sessions go, with how many messages by their counters, and the
        ids of the first of them; the same of the kept ones for each reason:
        ``live`` (not ended), ``active_since`` (not old enough), ``never`` (its source
        is never pruned), ``continued`` (a kept session goes on from it by compression),
        ``other_source``. The sample begins with the oldest start.
    """
    found = {
        reason: (sessions, messages, json.loads(ids))
        for reason, sessions, messages, ids in rows(conn, _REPORT, (*old.bindings, samples))[1]
    }
    sessions, messages, sample = found.get(_GOES, (0, 0, []))
    kept = {
        reason: {"sessions": found[reason][0], "sample": found[reason][2]} if reason in found else
        {"sessions": 0, "sample": []} for reason in _REASONS
    }  # fmt: skip
    return {"sessions": sessions, "messages": messages, "sample": sample, "kept": kept}


def still_old(conn: apsw.Connection, ids: list[str], old: Age) -> list[str]:
    """Those of ``ids`` that are candidates now: some may have been reopened since they were chosen."""
    found = set(column(conn, _STILL_OLD, (*old.bindings, json_list(ids))))
    return [session_id for session_id in ids if session_id in found]


def prune_step(conn: apsw.Connection, ids: list[str], forget: Forget, old: Age, **bounds: int) -> Step:
    """``delete_step`` for candidates, each looked at again first; one that is in use now is dropped."""
    page = still_old(conn, ids[:STEP_SESSIONS], old)
    step = delete_step(conn, page, forget, **bounds)
    return replace(step, remaining=step.remaining + ids[STEP_SESSIONS:])


def delete_step(
    conn: apsw.Connection,
    ids: list[str],
    forget: Forget,
    *,
    max_messages: int = STEP_MESSAGES,
    max_bytes: int = STEP_BYTES,
    text_share: int = 1,
) -> Step:
    """Delete a bounded part of the sessions ``ids``: messages oldest first, then the row.

    Children of a deleted session lose their parent; a Telegram topic loses its
    session. ``forget(conn, message_ids)`` takes messages out of the indexes
    before they go. Ids that are no session count as neither deleted nor remaining.
    So many bytes of text weigh one: see ``LATER``.
    """
    page = [clean(session_id) for session_id in ids[:STEP_SESSIONS] if isinstance(session_id, str)]
    found = rows(conn, _NEXT_MESSAGES, (json_list(page), max_messages + 1, text_share))[1]
    part = _within(found, max_messages, max_bytes)
    if part:
        _delete_messages(conn, page, part, forget)
    # What comes before the first message that stays is empty now.
    emptied = page[: found[len(part)][0]] if len(part) < len(found) else page
    gone = _delete_rows(conn, emptied)
    return Step(gone, page[len(emptied) :] + ids[STEP_SESSIONS:], len(part), _weight(part))


def delete_session(conn: apsw.Connection, session_id: str, forget: Forget) -> bool:
    """Delete the session and its messages in this transaction; False if there is none."""
    return bool(_delete_all(conn, [session_id], forget))


def delete_conversation(conn: apsw.Connection, session_id: str, forget: Forget) -> list[str]:
    """Delete every session of the compression chain that ``session_id`` is in; returns their ids, root first.

    For a long conversation give ``lineage.compression_chain`` to ``delete_step`` instead.
    """
    return _delete_all(conn, lineage.compression_chain(conn, session_id), forget)


def clear_step(
    conn: apsw.Connection,
    session_id: str,
    forget: Forget,
    through: int | None = None,
    *,
    max_messages: int = STEP_MESSAGES,
    max_bytes: int = STEP_BYTES,
    text_share: int = 1,
) -> Cleared:
    """Delete a bounded number of the session's messages, oldest first; the session stays.

    ``through`` is None in the first step, and what the step before returned in the others.
    The messages that were there at the first step go, those that came since stay. The
    counters are those of what is left. The bounds are those of ``delete_step``.
    """
    session_id = message_writes.bound_id(session_id)
    if through is None:
        through = scalar(conn, "SELECT MAX(id) FROM messages WHERE session_id = ?", (session_id,))
    found = rows(conn, _NEXT_OF_ONE, (session_id, through, max_messages + 1, text_share))[1]
    part = _within(found, max_messages, max_bytes)
    if part:
        _delete_messages(conn, [session_id], part, forget)
    if len(part) < len(found):
        return Cleared(through, _weight(part))
    message_writes.recount(conn, session_id)
    return Cleared(None, _weight(part))


def ghosts(conn: apsw.Connection, now: float | None = None) -> list[str]:
    """Ids of the sessions that a terminal opened and never used.

    Source ``tui``, untitled, ended, without messages, begun over 24 hours ago,
    and no session's parent.
    """
    return column(conn, _GHOSTS, (_ghost_before(now),))


def ghost_step(
    conn: apsw.Connection, ids: list[str], forget: Forget, now: float | None = None, **bounds: int
) -> Step:
    """``delete_step`` for ghosts, each looked at again first: one that came to life since is dropped."""
    page = column(conn, _STILL_GHOSTS, (_ghost_before(now), json_list(ids[:STEP_SESSIONS])))
    step = delete_step(conn, page, forget, **bounds)
    return replace(step, remaining=step.remaining + ids[STEP_SESSIONS:])


def _ghost_before(now: float | None) -> float:
    return (time.time() if now is None else now) - GHOST_AFTER_S


def auto_prune_due(conn: apsw.Connection, min_interval_hours: float, now: float | None = None) -> bool:
    """True if the last automatic prune is long enough ago, unknown, unreadable, or stamped in the future."""
    moment = time.time() if now is None else now
    try:
        last = float(meta.get(conn, AUTO_PRUNE_KEY) or "nan")
    except ValueError:
        return True
    return not (last <= moment and moment - last < min_interval_hours * 3600)


def frees_in_steps(conn: apsw.Connection) -> bool:
    """True if the file was made to give free pages back a few at a time."""
    return bool(scalar(conn, "PRAGMA auto_vacuum") == AUTO_VACUUM_INCREMENTAL)


def free_step(conn: apsw.Connection, max_bytes: int = STEP_BYTES) -> Freed:
    """Cut free pages of about that weight off the file, 64 at least; nothing where none is free."""
    before = left = int(scalar(conn, "PRAGMA freelist_count"))
    while left and (before == left or (before - left) * PAGE_BYTES < max_bytes):
        # A pragma takes no bound value. It works while its (empty) rows are read.
        conn.execute("PRAGMA incremental_vacuum(64)").fetchall()
        now_left = int(scalar(conn, "PRAGMA freelist_count"))
        if now_left == left:
            break
        left = now_left
    return Freed((before - left) * PAGE_BYTES)


def mark_deletion(conn: apsw.Connection) -> None:
    """Note the time of a deletion of many steps: its COMMIT makes the steps before it durable."""
    meta.set(conn, DELETION_KEY, str(time.time()))


def mark_auto_prune(conn: apsw.Connection, now: float | None = None) -> None:
    """Note that the automatic prune ran now."""
    meta.set(conn, AUTO_PRUNE_KEY, str(time.time() if now is None else now))


def _delete_all(conn: apsw.Connection, ids: list[str], forget: Forget) -> list[str]:
    deleted: list[str] = []
    remaining = ids
    while remaining:
        step = delete_step(conn, remaining, forget)
        deleted += step.deleted
        remaining = step.remaining
    return deleted


def _within(found: list[tuple[Any, ...]], max_messages: int, max_bytes: int) -> list[tuple[Any, ...]]:
    """The leading rows of (session index, message id, bytes) that fit in a step; one always does."""
    total = 0
    for number, (_, _, size) in enumerate(found):
        total += size + ROW_BYTES
        if number >= max_messages or (number and total > max_bytes):
            return found[:number]
    return found


def _weight(part: list[tuple[Any, ...]]) -> int:
    return sum(size + ROW_BYTES for _, _, size in part)


def _delete_messages(
    conn: apsw.Connection, page: list[str], part: list[tuple[Any, ...]], forget: Forget
) -> None:
    """Delete the messages of ``part``; the session that keeps some of its own is counted anew."""
    ids = [row[1] for row in part]
    last = part[-1][0]
    of_last = [row[1] for row in part if row[0] == last]
    conn.execute(_UNCOUNT, (page[last], len(of_last), json_list(of_last)))
    forget(conn, ids)
    conn.execute("DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json_list(ids),))


def _delete_rows(conn: apsw.Connection, ids: list[str]) -> list[str]:
    """Delete the rows of sessions that have no messages any more; returns those that were there."""
    there = existing(conn, ids)
    if not there:
        return []
    listed = (json_list(ids),)
    conn.execute(_ORPHAN_CHILDREN, listed)
    if has_table(conn, BINDINGS):
        conn.execute(_UNBIND, listed)
    idempotency.forget_sessions(conn, *listed)
    conn.execute("DELETE FROM sessions WHERE id IN (SELECT value FROM json_each(?))", listed)
    return [session_id for session_id in ids if session_id in there]
