"""A bounded pool of connections that only read.

In WAL mode no reader waits for the writer. A connection is lent for one call
and keeps no transaction open between calls, so nothing pins the WAL. In
DELETE mode there is no pool: reads go through the writer's line (engine.core).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

POOL_SIZE = 6
"""Connections at most; more threads than that wait for one another's reads."""


class ReaderPool:
    """Lends connections made by ``connect``, at most ``size`` at a time.

    The one returned last is lent first, so that few stay warm and the rest
    are never opened.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], size: int = POOL_SIZE) -> None:
        self._connect = connect
        self._size = size
        self._free = threading.Condition(threading.Lock())
        self._idle: list[apsw.Connection] = []
        self._opened = 0

    @property
    def opened(self) -> int:
        """Connections that are open now, lent or idle."""
        return self._opened

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """A connection for the block; with ``BEGIN`` by the caller if it needs one snapshot."""
        conn = self._take()
        try:
            yield conn
        finally:
            self._give_back(conn)

    def _take(self) -> apsw.Connection:
        with self._free:
            while not self._idle:
                if self._opened < self._size:
                    self._opened += 1
                    break
                self._free.wait()
            else:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self._gone()
            raise

    def _gone(self) -> None:
        """A connection less is open: another may be opened in its place."""
        with self._free:
            self._opened -= 1
            self._free.notify()

    def _give_back(self, conn: apsw.Connection) -> None:
        try:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
        except apsw.Error:
            # A connection that cannot even roll back is not lent again.
            conn.close(True)
            self._gone()
            return
        with self._free:
            self._idle.append(conn)
            self._free.notify()

    def close(self) -> None:
        """Close the idle connections; nobody holds one any more when the engine calls this."""
        with self._free:
            idle, self._idle = self._idle, []
            self._opened -= len(idle)
        for conn in idle:
            conn.close(True)
