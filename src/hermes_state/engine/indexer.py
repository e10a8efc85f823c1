"""The connection that writes the index: its transactions need no fsync, and most steps are one statement."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import opening
from hermes_state.engine import transaction as tx
from hermes_state.engine.patience import Patience
from hermes_state.engine.writer import Writer
from hermes_state.search import at_once, indexing

T = TypeVar("T")


class Indexer:
    """A write connection of its own, opened at its first use; used by one thread at a time, in the line.

    In WAL mode its COMMITs make no fsync. What a power loss takes of the index is above the watermark
    again.

    Args:
        path: the database file.
        writer: whose line it stands in.
    """

    def __init__(self, path: Path, writer: Writer) -> None:
        self._path = path
        self._writer = writer
        self._conn: apsw.Connection | None = None
        self._tickets = count(1)

    def connection(self) -> apsw.Connection:
        """The connection, opened where it is not."""
        if self._conn is None:
            conn = opening.connect_writer(self._path, durability="normal", triggers=False)
            at_once.prepare_steps(conn)
            self._conn = conn
            self._writer.others.append(conn)
        return self._conn

    @property
    def wrote(self) -> bool:
        """Whether anything was written since it was opened."""
        return self._conn is not None and self._conn.total_changes() > 0

    def disconnect(self) -> None:
        """Close the connection; the next use opens another."""
        if self._conn is not None:
            self._writer.others.remove(self._conn)
            self._conn.close(True)
            self._conn = None

    def run(self, fn: Callable[[apsw.Connection], T], waiting: Patience, operation: str) -> tuple[T, float]:
        """``fn(conn)`` in one write transaction; its result and the seconds from BEGIN to COMMIT's end."""
        return measured(self.connection(), fn, waiting, self._path, operation)

    def plain_step(self, rows: int, waiting: Patience) -> tuple[int, float] | None:
        """An index step by one statement, which waits for the lock as ``run`` does: (rows treated, seconds).

        None where the ordinary step must do it: the next rows are not plain.

        Raises:
            errors.StoreBusyError: the patience is used up.
            apsw.Error: what the statement met; nothing was done then.
        """
        conn = self.connection()
        if tx.unsettled(conn):
            return None
        ticket = next(self._tickets)
        conn.set_busy_timeout(0)
        while True:
            started = time.monotonic()
            try:
                at_once.step(conn, ticket, rows, indexing.STEP_BYTES)
                held = time.monotonic() - started
                break
            except (apsw.BusyError, apsw.LockedError) as error:
                if not waiting.pause():
                    raise errors.make(
                        errors.StoreBusyError, "database is locked", self._path, "index",
                        waited=waiting.waited, code=apsw.SQLITE_BUSY,
                    ) from error  # fmt: skip
            except apsw.SQLError:
                return None  # a full-text table or a tokenizer is missing
            except apsw.Error:
                tx.note_failure(conn)
                raise
        plain, looked = at_once.taken(conn, ticket)
        return (plain, held) if plain or not looked else None


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
