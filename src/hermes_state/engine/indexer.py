"""The connection that writes the index: its transactions need no fsync, and most steps are one statement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import opening
from hermes_state.engine import transaction as tx
from hermes_state.engine.identity import Place
from hermes_state.engine.patience import BUSY_MS, Patience
from hermes_state.engine.writer import Writer
from hermes_state.search import at_once, forgetting, indexing

T = TypeVar("T")


class Indexer:
    """A write connection of its own, opened at its first use; writes in the line, by one thread at a time.

    In WAL mode its COMMITs make no fsync. What a power loss takes of the index is above the watermark
    again.

    Args:
        place: the database file.
        writer: whose line it stands in.
    """

    def __init__(self, place: Place, writer: Writer) -> None:
        self._place = place
        self._path = place.path
        self._writer = writer
        self._mutex = threading.RLock()
        self._conn: apsw.Connection | None = None
        self._tickets = count(1)

    def connection(self) -> apsw.Connection:
        """The connection, opened where it is not."""
        if self._conn is None:
            conn = opening.connect_writer(self._path, durability="normal", triggers=False, place=self._place)
            try:
                at_once.prepare_steps(conn)
            except BaseException:
                conn.close(True)
                raise
            self._conn = conn
        return self._conn

    def _alone(self, fn: Callable[[apsw.Connection], T], waiting: Patience, operation: str) -> T:
        """``fn(connection)`` while nobody else has it; gives up once ``waiting`` ends.

        Whoever has it may be waiting for another process, with more patience than ours.
        """
        try:
            if not waiting.acquire(self._mutex):
                raise errors.busy(self._path, operation, waiting.waited)
            return fn(self.connection())
        finally:
            try:
                self._let_go()
            except BaseException:  # interrupted: nobody could use the connection any more
                self._let_go()
                raise

    def _let_go(self) -> None:
        """Give the connection up; does nothing the second time, or where it was not had."""
        try:
            self._mutex.release()
        except RuntimeError:
            return  # another thread's, or nobody's: the lock knows, who was interrupted does not

    @property
    def wrote(self) -> bool:
        """Whether anything was written since it was opened."""
        return self._conn is not None and self._conn.total_changes() > 0

    def disconnect(self) -> None:
        """Close the connection; the next use opens another."""
        if self._conn is not None:
            self._conn.close(True)
            self._conn = None

    def run(self, fn: Callable[[apsw.Connection], T], waiting: Patience, operation: str) -> tuple[T, float]:
        """``fn(conn)`` in one write transaction; its result and the seconds from BEGIN to COMMIT's end."""
        return self._alone(
            lambda conn: self._writer.hold(
                lambda conn: measured(conn, fn, waiting, self._path, operation), waiting, operation, conn
            ),
            waiting,
            operation,
        )

    def plain_step(self, rows: int, waiting: Patience) -> tuple[int, float, str | None]:
        """An index step by one statement, which waits for the lock as ``run`` does.

        Returns the rows treated, the seconds that the lock was held, and what an ordinary step has to do
        now: "index" where the next rows are not plain, "forget" where entries of deleted messages are left,
        None where there is nothing, or another step like this comes first.

        Raises:
            errors.StoreBusyError: the patience is used up.
            apsw.Error: what the statement met; nothing was done then.
        """
        return self._alone(lambda conn: self._plain(conn, rows, waiting), waiting, "index")

    def _plain(self, conn: apsw.Connection, rows: int, waiting: Patience) -> tuple[int, float, str | None]:
        if tx.unsettled(conn):
            return 0, 0.0, "index"
        plain, held = 0, 0.0
        if indexing.pending(conn):
            # All that may wait for the GIL is done before and after the place in the line is held.
            ticket = next(self._tickets)
            conn.set_busy_timeout(0)
            try:
                held = self._writer.hold(
                    lambda conn: self._step(conn, ticket, rows, waiting), waiting, "index", conn
                )
            except apsw.SQLError:
                return 0, 0.0, "index"  # a full-text table or a tokenizer is missing
            finally:
                conn.set_busy_timeout(BUSY_MS)
            plain, looked = at_once.taken(conn, ticket)
            if looked and not plain:
                return 0, 0.0, "index"
        return plain, held, "forget" if plain < rows and forgetting.anything(conn) else None

    def _step(self, conn: apsw.Connection, ticket: int, rows: int, waiting: Patience) -> float:
        """The statement of ``plain_step``; the seconds that it took."""
        while True:
            started = time.monotonic()
            try:
                at_once.step(conn, ticket, rows, indexing.STEP_BYTES)
            except (apsw.BusyError, apsw.LockedError) as error:
                if not waiting.pause():
                    raise errors.busy(self._path, "index", waiting.waited) from error
            except apsw.Error:
                tx.note_failure(conn)
                raise
            else:
                return time.monotonic() - started


def measured(
    conn: apsw.Connection,
    fn: Callable[[apsw.Connection], T],
    waiting: Patience,
    path: Path,
    operation: str,
) -> tuple[T, float]:
    """``fn(conn)`` in one write transaction; its result and the seconds from BEGIN to COMMIT's end."""
    started = 0.0

    def begun(conn: apsw.Connection) -> T:
        nonlocal started
        started = time.monotonic()
        return fn(conn)

    result = tx.run(conn, begun, waiting, path, operation)
    return result, time.monotonic() - started
