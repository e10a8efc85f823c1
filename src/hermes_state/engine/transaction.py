"""One write transaction: BEGIN IMMEDIATE and COMMIT that never hold the GIL.

``with connection:`` of APSW holds the GIL through BEGIN and COMMIT, their
waits and the fsync included; here both are plain ``execute`` calls.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine.patience import BUSY_MS, Patience
from hermes_state.search import tables

T = TypeVar("T")

_unsettled: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
"""Connections whose last transaction SQLite itself ended by an error (I/O, disk full, memory).

FTS5 then keeps, of the statement that failed, a number of rows that is one too high, and the next
transaction would write it into the index. A write of FTS5's that is rolled back lets it forget.
"""


def note_failure(conn: apsw.Connection) -> None:
    """Called while an exception is handled that ended, or may have ended, a transaction on ``conn``."""
    error = sys.exc_info()[1]
    if isinstance(error, apsw.Error) and not isinstance(error, _HARMLESS) and not conn.in_transaction:
        _unsettled.add(conn)


_HARMLESS = (apsw.BusyError, apsw.LockedError, apsw.ConstraintError, apsw.SQLError, apsw.CorruptError)


def unsettled(conn: apsw.Connection) -> bool:
    """Whether the next transaction must begin with :func:`begin`, which settles the connection."""
    return conn in _unsettled


def _settle(conn: apsw.Connection) -> None:
    """In an open write transaction: let FTS5 forget what a transaction that failed has left in it."""
    try:
        conn.execute("SAVEPOINT hs_settle")
        tables.write_nothing(conn)
        conn.execute("ROLLBACK TO hs_settle")
        conn.execute("RELEASE hs_settle")
    except apsw.CorruptError:
        # A damaged index is told of elsewhere; after such an error SQLite writes no more in a transaction.
        conn.execute("ROLLBACK")
        conn.execute("BEGIN IMMEDIATE")
    _unsettled.discard(conn)


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
                    raise errors.busy(path, operation, patience.waited) from error
            else:
                break
        conn.set_busy_timeout(BUSY_MS)
        if conn in _unsettled:
            _settle(conn)
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
    note_failure(conn)
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
