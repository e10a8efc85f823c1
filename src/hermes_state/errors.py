"""Typed errors, each derived from the stdlib ``sqlite3`` class that v11 callers catch.

Every message keeps SQLite's own words first ("database is locked", "FOREIGN
KEY constraint failed", ...), because callers look for them, and adds the file,
the operation and what to do.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import apsw

__all__ = [
    "HermesStateError",
    "NotADatabaseError",
    "StoreBusyError",
    "StoreCannotOpenError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreDataError",
    "StoreForkError",
    "StoreFullError",
    "StoreIOError",
    "StoreIntegrityError",
    "StoreInterruptedError",
    "StoreOperationalError",
    "StoreProgrammingError",
    "StoreReadOnlyError",
    "StoreReplacedError",
    "StoreSchemaError",
    "UnknownSessionError",
    "translate",
]


class HermesStateError(Exception):
    """Base of every error that the store itself raises.

    Attributes:
        path: the database file as a string, or None where no file is concerned.
        operation: what the store was doing, such as ``"append_message"``, or None.
        sqlite_code: SQLite's extended result code, or None.
    """

    path: str | None = None
    operation: str | None = None
    sqlite_code: int | None = None


class StoreOperationalError(HermesStateError, sqlite3.OperationalError):
    """SQLite could not do what was asked for a reason outside the data."""


class StoreBusyError(StoreOperationalError):
    """The lock was not to be had within the patience given.

    Attributes:
        waited: seconds spent waiting.
    """

    waited: float = 0.0


class StoreFullError(StoreOperationalError):
    """The disk, or the limit set on the file, is full; nothing of the operation was stored."""


class StoreReadOnlyError(StoreOperationalError):
    """The file or its folder cannot be written."""


class StoreIOError(StoreOperationalError):
    """The operating system failed to read or write the file."""


class StoreReplacedError(StoreIOError):
    """The file was replaced or deleted while it was open; nothing more is read or written."""


class StoreCannotOpenError(StoreOperationalError):
    """The file cannot be opened or made."""


class StoreInterruptedError(StoreOperationalError):
    """A statement was stopped, by its time limit or from another thread."""


class StoreForkError(StoreOperationalError):
    """The process was forked while this thread was inside a transaction of the store."""


class StoreCorruptError(HermesStateError, sqlite3.DatabaseError):
    """The file is damaged; nothing was deleted or overwritten."""


class NotADatabaseError(StoreCorruptError):
    """The file is not an SQLite database."""


class StoreSchemaError(StoreOperationalError):
    """A table, column or function that the store needs is not there."""


class StoreIntegrityError(HermesStateError, sqlite3.IntegrityError):
    """A constraint of the schema refused the row."""


class UnknownSessionError(StoreIntegrityError):
    """The row names a session that does not exist."""


class StoreProgrammingError(HermesStateError, sqlite3.ProgrammingError):
    """The call itself is wrong: bindings, or a connection used the wrong way."""


class StoreClosedError(StoreProgrammingError):
    """The handle was closed before the call."""


class StoreDataError(HermesStateError, sqlite3.DataError):
    """A value is too large for SQLite."""


_ADVICE: dict[type[HermesStateError], str] = {
    StoreBusyError: "another process holds the write lock; look for one that hangs in a transaction",
    StoreFullError: "free space on the disk and try again; what was acknowledged before is safe",
    StoreReadOnlyError: "make the file and its folder writable by this user, or use another path",
    StoreIOError: "look at the disk and the system log; network file systems are not safe for SQLite",
    StoreReplacedError: "close every handle that this process has on it and open it again",
    StoreCannotOpenError: "look at the path, the permissions of its folder and the limit of open files",
    StoreCorruptError: "keep the file, copy it with its -wal, and run a check or salvage on the copy",
    NotADatabaseError: "move the file away or give another path; the store never overwrites it",
    StoreForkError: "fork outside a transaction",
    UnknownSessionError: "make the session first, by create_session or ensure_session",
}

_BY_CODE: dict[int, type[HermesStateError]] = {
    apsw.SQLITE_BUSY: StoreBusyError,
    apsw.SQLITE_LOCKED: StoreBusyError,
    apsw.SQLITE_FULL: StoreFullError,
    apsw.SQLITE_READONLY: StoreReadOnlyError,
    apsw.SQLITE_PERM: StoreReadOnlyError,
    apsw.SQLITE_IOERR: StoreIOError,
    apsw.SQLITE_CANTOPEN: StoreCannotOpenError,
    apsw.SQLITE_INTERRUPT: StoreInterruptedError,
    apsw.SQLITE_CORRUPT: StoreCorruptError,
    apsw.SQLITE_NOTADB: NotADatabaseError,
    apsw.SQLITE_CONSTRAINT: StoreIntegrityError,
    apsw.SQLITE_TOOBIG: StoreDataError,
    apsw.SQLITE_MISUSE: StoreProgrammingError,
    apsw.SQLITE_RANGE: StoreProgrammingError,
}


def translate(
    error: BaseException, path: Any = None, operation: str | None = None, waited: float | None = None
) -> BaseException:
    """The typed error for an APSW ``error`` or text that is not UTF-8; others come back as they are.

    Args:
        error: what was raised.
        path: the database file, for the message.
        operation: what the store was doing, for the message.
        waited: seconds spent waiting for a lock, for ``StoreBusyError``.
    """
    if isinstance(error, UnicodeDecodeError):
        # SQLite's own message about a damaged schema quotes bytes of it.
        return make(StoreCorruptError, f"database disk image is malformed: {error}", path, operation)
    if isinstance(error, HermesStateError) or not isinstance(error, apsw.Error):
        return error
    extended = getattr(error, "extendedresult", None)
    code = getattr(error, "result", None)
    words = _words(error)
    if isinstance(error, apsw.BindingsError | apsw.ThreadingViolationError | apsw.ExecutionCompleteError):
        kind: type[HermesStateError] = StoreProgrammingError
    elif isinstance(error, apsw.ConnectionClosedError | apsw.CursorClosedError):
        kind = StoreClosedError
    elif extended == apsw.SQLITE_CONSTRAINT_FOREIGNKEY:
        kind = UnknownSessionError
    elif isinstance(error, apsw.SQLError) and words.startswith(
        ("no such table", "no such column", "no such module")
    ):
        kind = StoreSchemaError
    else:
        kind = _BY_CODE.get((code or 0) & 0xFF, StoreOperationalError)
    return make(kind, words, path, operation, waited=waited, code=extended)


def make(
    kind: type[HermesStateError],
    words: str,
    path: Any = None,
    operation: str | None = None,
    *,
    waited: float | None = None,
    code: int | None = None,
    advice: str | None = None,
) -> HermesStateError:
    """An error of ``kind`` whose text is SQLite's ``words``, then file, operation and advice.

    Args:
        kind: the class.
        words: what happened, beginning as SQLite says it.
        path: the database file.
        operation: what the store was doing.
        waited: seconds spent waiting for a lock.
        code: SQLite's extended result code.
        advice: what to do, where that is not what the class says.
    """
    about = []
    if operation:
        about.append(f"in {operation}")
    if path is not None:
        about.append(f"file {str(path)!r}")
    if waited is not None:
        about.append(f"waited {waited:.1f} s")
    advice = advice or _ADVICE.get(kind)
    text = words + (f" ({', '.join(about)})" if about else "") + (f"; {advice}" if advice else "")
    made = kind(text)
    made.path = None if path is None else str(path)
    made.operation = operation
    made.sqlite_code = code
    if isinstance(made, StoreBusyError):
        made.waited = waited or 0.0
    return made


def busy(path: Any, operation: str, waited: float) -> HermesStateError:
    """The error of one who has waited for the write lock, or in line for it, until his patience ended."""
    return make(StoreBusyError, "database is locked", path, operation, waited=waited, code=apsw.SQLITE_BUSY)


def closed(path: Any, operation: str | None = None) -> HermesStateError:
    """The error of a call after ``close()``."""
    return make(StoreClosedError, "Cannot operate on a closed database.", path, operation)


def _words(error: BaseException) -> str:
    """SQLite's own words from an APSW error, without APSW's class-name prefix."""
    text = str(error)
    prefix = type(error).__name__ + ": "
    return text[len(prefix) :] if text.startswith(prefix) else text
