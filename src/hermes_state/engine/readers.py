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


class Loan:
    """One use of a connection, with its place in the order of loans."""

    __slots__ = ("conn", "number")

    def __init__(self) -> None:
        self.number = 0
        self.conn: apsw.Connection | None = None


class ReaderPool:
    """Lends connections made by ``connect``, at most ``size`` at a time.

    The one returned last is lent first, so that few stay warm and the rest
    are never opened. An interrupt at any moment leaves no connection lent.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], size: int = POOL_SIZE) -> None:
        self._connect = connect
        self._size = size
        # The lock is entered by itself: see engine.gate.
        self._mutex = threading.Lock()
        self._free = threading.Condition(self._mutex)
        self._idle: list[apsw.Connection] = []
        self._loans = 0
        self._lent: set[int] = set()

    @property
    def opened(self) -> int:
        """Connections that are open now, lent or idle."""
        return len(self._idle) + len(self._lent)

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """A connection for the block; with ``BEGIN`` by the caller if it needs one snapshot."""
        loan = Loan()
        try:
            yield self.take(loan)
        finally:
            try:
                self.give_back(loan)
            except BaseException:  # interrupted: the connection would be lent for ever
                self.give_back(loan)
                raise

    def drain(self, seconds: float) -> bool:
        """Wait until all that is lent now has come back; later loans go on. False if time ran out."""
        deadline = time.monotonic() + seconds
        with self._mutex:
            newest = self._loans
            while any(number <= newest for number in self._lent):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._free.wait(left)
        return True

    def take(self, loan: Loan) -> apsw.Connection:
        """A connection for ``loan``. Whatever it raises, ``give_back`` must follow."""
        with self._mutex:
            while not self._idle and len(self._lent) >= self._size:
                self._free.wait()
            self._loans += 1
            loan.number = self._loans
            self._lent.add(loan.number)
            if self._idle:
                loan.conn = self._idle[-1]
                del self._idle[-1]
        if loan.conn is None:
            loan.conn = self._connect()
        return loan.conn

    def give_back(self, loan: Loan) -> None:
        """End the loan; does nothing the second time."""
        conn = loan.conn
        if conn is not None:
            try:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
            except apsw.Error:
                # A connection that cannot even roll back is not lent again.
                loan.conn = None
                conn.close(True)
        with self._mutex:
            if loan.number in self._lent:
                self._lent.discard(loan.number)
                if loan.conn is not None:
                    self._idle.append(loan.conn)
                self._free.notify_all()

    def close(self) -> None:
        """Close the idle connections; nobody holds one any more when the engine calls this."""
        while self._idle:
            self._idle[-1].close(True)
            del self._idle[-1]
