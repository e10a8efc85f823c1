"""Which file it is that an engine has open, and what to do when its name leads to another one."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import apsw

from hermes_state import errors

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Device and inode of what ``path`` names now; None where it names nothing."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each write comes by here
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Place:
    """The file that an engine has open: its name, and what that led to when it was opened.

    SQLite opens a file and its WAL by their names. Where another file has taken the name meanwhile, a
    connection that is opened would bring the WAL of the one into the other.

    Args:
        path: the database file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._was: Identity | None = None

    def note(self) -> None:
        """What the name leads to now is the file."""
        self._was = identity(self.path)

    @property
    def unchanged(self) -> bool:
        """Whether the name still leads to that file."""
        return identity(self.path) == self._was

    def check(self, operation: str) -> None:
        """Refuse to go on once the name leads to another file, or to none: nobody would find what is written.

        Raises:
            errors.StoreReplacedError: it does.
        """
        if identity(self.path) != self._was:
            words = "disk I/O error: the file was replaced or deleted while it was open"
            raise errors.make(errors.StoreReplacedError, words, self.path, operation)

    def check_opened(self, conn: apsw.Connection) -> None:
        """``check`` for a connection that has just been opened, with its WAL, which the first read opens."""
        conn.execute("PRAGMA user_version").fetchone()
        self.check("open")


def keep_for_ever(thing: Any) -> None:
    """Never let ``thing`` be closed by the garbage collector, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
