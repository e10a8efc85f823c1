"""Reads that end by a time limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw

from hermes_state.api.base import Handle
from hermes_state.engine.upkeep import CATCH_UP_ROWS
from hermes_state.search import indexing
from hermes_state.store.limits import TimeLimit

T = TypeVar("T")


class LimitedReads(Handle):
    """The way into the engine for calls that take a ``time_limit``."""

    def _read_within(
        self,
        fn: Callable[[apsw.Connection], T],
        operation: str,
        seconds: float | None,
        *,
        indexed: bool = False,
    ) -> T:
        """``fn(conn)`` on one snapshot, like ``_read``, ended after ``seconds`` where they are given.

        They count from here on, and cover what a search indexes first: that goes on in its steps, and
        what one step has done stays done.
        """
        if seconds is None:
            return self._read(fn, operation, indexed=indexed)
        limit = TimeLimit(seconds)

        def behind(conn: apsw.Connection) -> bool:
            return indexing.pending(conn) and not self._engine.upkeep.complete(conn)

        # Entries of deleted messages are not waited for: no search shows them.
        while indexed and self._read(behind, operation):
            limit.check(operation)
            with self._engine.inside(operation):
                if not self._engine.upkeep.safe_step(CATCH_UP_ROWS)[0]:
                    break
        return self._read(lambda conn: limit.run(conn, fn, operation), operation)
