"""One write transaction: BEGIN IMMEDIATE and COMMIT that never hold the GIL.

``with connection:`` of APSW holds the GIL through BEGIN and COMMIT, their
waits and the fsync included; here both are plain ``execute`` calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine.patience import BUSY_MS, Patience

T = TypeVar("T")


def begin(conn: apsw.Connection, patience: Patience, path: Path, operation: str) -> None:
    """Take SQLite's write lock, waiting with jitter as long as ``patience`` allows.

    Raises:
        errors.StoreBusyError: the patience is used up; nothing was begun.
    """
    # SQLite's own wait would come on top of ours, and all who wait by it wake at the same moments.
    try:
        conn.set_busy_timeout(0)
        while True:
            try:
                conn.execute("BEGIN IMMEDIATE")
            except (apsw.BusyError, apsw.LockedError) as error:
                if not patience.pause():
                    raise errors.make(
                        errors.StoreBusyError, "database is locked", path, operation,
                        waited=patience.waited, code=apsw.SQLITE_BUSY,
                    ) from error  # fmt: skip
            else:
                break
        conn.set_busy_timeout(BUSY_MS)
    except BaseException:
        # An interrupt may come right after BEGIN.
        conn.set_busy_timeout(BUSY_MS)
        rollback(conn)
        raise


def commit(conn: apsw.Connection, patience: Patience, path: Path, operation: str) -> None:
    """COMMIT, waiting for readers in DELETE mode; on failure the transaction is rolled back."""
    while True:
        try:
            conn.execute("COMMIT")
        except (apsw.BusyError, apsw.LockedError) as error:
            if conn.in_transaction and patience.pause():
                continue
            rollback(conn)
            raise errors.translate(error, path, operation, patience.waited) from error
        except BaseException:
            rollback(conn)
            raise
        else:
            return


def rollback(conn: apsw.Connection) -> None:
    """ROLLBACK if a transaction is open: some errors (disk full, I/O) have ended it already."""
    if conn.in_transaction:
        try:
            conn.execute("ROLLBACK")
        except apsw.Error:
            # The error that brought us here is the one to tell; a transaction that is still
            # open after this would be found by the next BEGIN.
            if conn.in_transaction:
                raise


def run(
    conn: apsw.Connection,
    fn: Callable[[apsw.Connection], T],
    patience: Patience,
    path: Path,
    operation: str,
) -> T:
    """``fn(conn)`` between BEGIN IMMEDIATE and COMMIT; any exception rolls back and goes on.

    In one frame, unlike :func:`transaction`: an interrupt can strike a ``with`` statement between
    its two ends, and its block would then be undone at some later moment.

    Raises:
        errors.StoreForkError: as :func:`transaction`.
    """
    process = os.getpid()
    try:
        begin(conn, patience, path, operation)
        result = fn(conn)
        _check_process(process, path, operation)
        commit(conn, patience, path, operation)
    except BaseException:
        if os.getpid() == process:
            rollback(conn)
        raise
    return result


def _check_process(process: int, path: Path, operation: str) -> None:
    if os.getpid() != process:
        words = "database connection was forked inside a transaction"
        raise errors.make(errors.StoreForkError, words, path, operation)


@contextmanager
def transaction(conn: apsw.Connection, patience: Patience, path: Path, operation: str) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT around the block; any exception rolls back and goes on.

    Raises:
        errors.StoreForkError: in a child that was forked inside the block. The transaction is the
            parent's: a ROLLBACK or COMMIT here would change the shared index of the WAL under it.
    """
    process = os.getpid()
    begin(conn, patience, path, operation)
    try:
        yield
    except BaseException:
        if os.getpid() == process:
            rollback(conn)
        raise
    _check_process(process, path, operation)
    commit(conn, patience, path, operation)
