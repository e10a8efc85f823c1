"""Reads that end by a time limit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import apsw

from hermes_state import errors
from hermes_state.api.base import Handle
from hermes_state.engine import upkeep
from hermes_state.search import indexing
from hermes_state.store.limits import TimeLimit

log = logging.getLogger("hermes_state")
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
        what one step has done stays done. Where another process has the write lock for long, or the disk is
        full, what waits for the index is scanned.
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
                try:
                    # Half of the time is for the search itself.
                    waiting = min(upkeep.SEARCH_WAIT_S, limit.left / 2)
                    if not self._engine.upkeep.safe_step(upkeep.CATCH_UP_ROWS, waiting)[0]:
                        break
                except (errors.StoreBusyError, errors.StoreFullError, apsw.FullError) as error:
                    log.info("%s: a search scans what waits for the index: %s", self._engine.path, error)
                    break
        return self._read(lambda conn: limit.run(conn, fn, operation), operation)
