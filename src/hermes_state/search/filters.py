"""The caller's filters of a search, checked once and written as SQL."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from .cursor import Place

_MOST = 2**62

Moment = float | datetime
"""A moment: Unix seconds, or a datetime (one without a zone is local time, as in Python)."""


@dataclass(frozen=True)
class Filters:
    """What a hit's session, role and time must be, and which part of the hits is wanted.

    ``sources`` None: any. ``limit`` -1: all. ``order``: "rank", "newest" or "oldest".
    ``per_session``: at most so many hits a session, the first ones in the order asked for.
    ``since``, ``until``: Unix seconds, the first included, the second not.
    ``after``: only hits that come behind this place in the order.
    """

    sources: tuple[str, ...] | None
    not_sources: tuple[str, ...]
    roles: tuple[str, ...] | None
    not_session: str | None
    per_session: int | None
    limit: int
    offset: int
    order: str
    since: float | None = None
    until: float | None = None
    after: Place | None = None

    @cached_property
    def bare(self) -> bool:
        """True when the match alone decides which rows are hits, in which order."""
        return not (
            self.order != "rank"
            or self.sources is not None
            or self.not_sources
            or self.roles is not None
            or self.not_session is not None
            or self.per_session is not None
            or self.timed
        )

    @cached_property
    def timed(self) -> bool:
        """True when the time of a message decides."""
        return self.since is not None or self.until is not None

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What must be equal for two pages to be pages of one list."""
        return (
            self.sources, self.not_sources, self.roles, self.not_session, self.per_session, self.order,
            self.since, self.until,
        )  # fmt: skip

    def conditions(self, *, by_session: bool = False) -> tuple[str, tuple[object, ...]]:
        """``AND ...`` over ``m`` (messages), constant in form, and what to bind.

        A hit without its session is none, as in v11, whose query joins the two. Sessions are looked up hit
        by hit, or with ``by_session`` listed first, for a walk through the messages session by session.
        """
        sessions, bound = "", []
        if self.sources is not None:
            sessions += " AND source IN (SELECT value FROM json_each(?))"
            bound.append(json.dumps(self.sources))
        if self.not_sources:
            sessions += " AND source NOT IN (SELECT value FROM json_each(?))"
            bound.append(json.dumps(self.not_sources))
        if by_session:
            sql = f" AND m.session_id IN (SELECT id FROM sessions WHERE 1{sessions})"  # noqa: S608
        else:
            sql = f" AND EXISTS (SELECT 1 FROM sessions WHERE id = m.session_id{sessions})"  # noqa: S608
        if self.not_session is not None:
            sql += " AND m.session_id <> ?"
            bound.append(self.not_session)
        if self.roles is not None:
            sql += " AND m.role IN (SELECT value FROM json_each(?))"
            bound.append(json.dumps(self.roles))
        times, moments = self.times("m.timestamp")
        return sql + times, (*bound, *moments)

    def times(self, name: str) -> tuple[str, tuple[object, ...]]:
        """``AND ...`` over the time column ``name``, and what to bind; empty where any time will do."""
        sql, bound = "", []
        if self.since is not None:
            sql += f" AND {name} >= ?"
            bound.append(self.since)
        if self.until is not None:
            sql += f" AND {name} < ?"
            bound.append(self.until)
        return sql, tuple(bound)


def make(
    source_filter: Iterable[object] | None,
    exclude_sources: Iterable[object] | None,
    role_filter: Iterable[object] | None,
    limit: int | None,
    offset: int | None,
    sort: object,
    exclude_session_id: str | None,
    per_session: int | None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Filters:
    """``Filters`` by the old module's rules.

    An empty ``source_filter`` matches nothing; empty ``exclude_sources`` and ``role_filter`` filter nothing.
    Entries that are not text equal no source or role. ``limit`` below 0 or None is no limit, a
    negative ``offset`` is 0, an unknown ``sort`` is by rank. TypeError or ValueError when ``since`` or
    ``until`` is no moment.
    """
    if (
        limit == 20 and offset == 0 and sort is None
        and source_filter is None and exclude_sources is None and role_filter is None
        and exclude_session_id is None and per_session is None and since is None and until is None
    ):  # fmt: skip
        return _USUAL
    roles = None if role_filter is None else list(_listed(role_filter))
    return Filters(
        sources=None if source_filter is None else _texts(source_filter),
        not_sources=() if exclude_sources is None else _texts(exclude_sources),
        roles=_texts(roles) if roles else None,
        not_session=exclude_session_id if _storable(exclude_session_id) else None,
        per_session=None if per_session is None else max(0, int(per_session)),
        limit=-1 if limit is None or limit < 0 else min(int(limit), _MOST),
        offset=0 if offset is None else min(max(0, int(offset)), _MOST),
        order=sort if isinstance(sort, str) and sort in ("newest", "oldest") else "rank",
        since=_seconds(since, "since"),
        until=_seconds(until, "until"),
    )


_USUAL: Final = Filters(None, (), None, None, None, 20, 0, "rank")
"""What most searches are called with."""


def _seconds(moment: Moment | None, name: str) -> float | None:
    """The moment as Unix seconds."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return moment.timestamp()
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise TypeError(f"{name} must be Unix seconds or a datetime, not {type(moment).__name__}")
    try:
        seconds = float(moment)
    except OverflowError:
        seconds = math.nan
    if math.isnan(seconds):
        raise ValueError(f"{name} must be a moment in Unix seconds, not {moment!r}")
    return seconds


def _listed(values: Iterable[object]) -> Iterable[object]:
    return (values,) if isinstance(values, str) else values


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(value) for value in _listed(values) if _storable(value))


def _storable(value: object) -> bool:
    """Text that SQLite can hold; anything else is no stored source, role or id."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)
