"""A bounded pool of connections that only read.

In WAL mode no reader waits for the writer. A connection is lent for one call
and keeps no transaction open between calls, so nothing pins the WAL. In
DELETE mode there is no pool: reads go through the writer's line (engine.core).
"""

from __future__ import annotations

import threading
import time
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
        self._loans = 0
        self._lent: set[int] = set()

    @property
    def opened(self) -> int:
        """Connections that are open now, lent or idle."""
        return self._opened

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """A connection for the block; with ``BEGIN`` by the caller if it needs one snapshot."""
        loan, conn = self._take()
        try:
            yield conn
        finally:
            self._give_back(loan, conn)

    def drain(self, seconds: float) -> bool:
        """Wait until all that is lent now has come back; later loans go on. False if time ran out."""
        deadline = time.monotonic() + seconds
        with self._free:
            newest = self._loans
            while any(loan <= newest for loan in self._lent):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._free.wait(left)
        return True

    def _take(self) -> tuple[int, apsw.Connection]:
        with self._free:
            while not self._idle and self._opened >= self._size:
                self._free.wait()
            self._loans = loan = self._loans + 1
            self._lent.add(loan)
            if self._idle:
                return loan, self._idle.pop()
            self._opened += 1
        try:
            return loan, self._connect()
        except BaseException:
            self._gone(loan)
            raise

    def _gone(self, loan: int) -> None:
        """A connection less is open: another may be opened in its place."""
        with self._free:
            self._opened -= 1
            self._lent.discard(loan)
            self._free.notify_all()

    def _give_back(self, loan: int, conn: apsw.Connection) -> None:
        try:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
        except apsw.Error:
            # A connection that cannot even roll back is not lent again.
            conn.close(True)
            self._gone(loan)
            return
        with self._free:
            self._idle.append(conn)
            self._lent.discard(loan)
            self._free.notify_all()

    def close(self) -> None:
        """Close the idle connections; nobody holds one any more when the engine calls this."""
        with self._free:
            idle, self._idle = self._idle, []
            self._opened -= len(idle)
        for conn in idle:
            conn.close(True)
