"""WAL on stdlib connections, and the words for a store that could not be opened.

``apply_wal_with_fallback`` takes stdlib ``sqlite3`` connections, of the store's
anchor and of other programs' databases.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
from typing import Any

from hermes_state.engine.patience import Patience

log = logging.getLogger("hermes_state")

WAL_REFUSALS = ("locking protocol", "not authorized")
"""Words of the errors by which a file system or an authorizer refuses WAL (NFS, SMB, FUSE, sandboxes)."""

_PASSING = ("disk i/o error", "database is locked", "database table is locked", "busy")
_PATIENCE_S = 20.0
_IO_TRIES = 5

_wal_fallback_warned_paths: set[str] = set()
_warned_lock = threading.Lock()
_last_init_error: str | None = None


def apply_wal_with_fallback(conn: Any, *, db_label: str = "state.db") -> str:
    """Put a stdlib connection's database into WAL, or DELETE where WAL cannot be had.

    A file that is already in WAL is never switched down. "disk I/O error" and
    a locked database are tried again; they are no reason to leave WAL.

    Args:
        conn: a stdlib ``sqlite3`` connection.
        db_label: how the one WARNING a process names the database.

    Returns:
        ``"wal"`` or ``"delete"``, as the pragma answered.

    Raises:
        sqlite3.OperationalError: both modes failed, or the error is of another kind.
    """
    try:
        mode = _set_wal(conn)
    except sqlite3.OperationalError as error:
        if not any(words in str(error).lower() for words in WAL_REFUSALS):
            raise
        if _current_mode(conn) == "wal":
            raise
        row = conn.execute("PRAGMA journal_mode=DELETE").fetchone()
        mode = str(row[0]).lower() if row else "delete"
        _warn_once(db_label, str(error))
        return mode
    if mode != "wal":
        # The pragma does not raise everywhere: an in-memory or odd VFS database just answers its mode.
        _warn_once(db_label, f"the pragma answered {mode!r}")
    return mode


def _set_wal(conn: Any) -> str:
    """Ask for WAL, patiently; the mode that SQLite answers."""
    waiting = Patience(_PATIENCE_S)
    io_tries = 0
    while True:
        try:
            row = conn.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            words = str(error).lower()
            if not any(passing in words for passing in _PASSING) or waiting.left <= 0.0:
                raise
            io_tries += "i/o" in words
            if io_tries >= _IO_TRIES:
                raise
            waiting.sleep(random.uniform(0.001, 0.050))  # noqa: S311 - jitter, not a secret
            continue
        return str(row[0]).lower() if row else "delete"


def _current_mode(conn: Any) -> str:
    try:
        row = conn.execute("PRAGMA journal_mode").fetchone()
    except sqlite3.OperationalError:
        return "unknown"
    return str(row[0]).lower() if row else "unknown"


def _warn_once(label: str, cause: str) -> None:
    with _warned_lock:
        if label in _wal_fallback_warned_paths:
            return
        _wal_fallback_warned_paths.add(label)
    log.warning(
        "%s: WAL is not to be had (%s); using journal_mode=DELETE: writers and readers wait for each other",
        label,
        cause,
    )


def get_last_init_error() -> str | None:
    """``"<ExceptionType>: <message>"`` of the last ``SessionDB()`` that failed, or None."""
    return _last_init_error


def _set_last_init_error(msg: str | None) -> None:
    """Record (or with None forget) the cause that ``get_last_init_error`` gives."""
    global _last_init_error
    _last_init_error = msg


def format_session_db_unavailable(prefix: str = "Session database not available") -> str:
    """``"<prefix>."`` or ``"<prefix>: <cause>."``, with a hint where WAL was refused."""
    cause = _last_init_error
    if not cause:
        return f"{prefix}."
    hint = ""
    if any(words in cause.lower() for words in WAL_REFUSALS):
        hint = " (state.db may be on NFS/SMB/FUSE — see https://www.sqlite.org/wal.html)"
    return f"{prefix}: {cause}{hint}."
