"""What must not stand in the place of the database and its sidecars.

Whoever can put a symbolic link beside the file could let the store write into a file of his choice.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hermes_state import errors

SIDECARS = ("-wal", "-shm", "-journal")
SMALLEST_PAGE = 512
"""Bytes of the smallest page that SQLite has, and so of the shortest database but the empty one."""


def refuse_foreign(path: Path) -> None:
    """Refuse a symbolic link at ``path`` that neither this user nor root made; others are followed.

    People do link their home or the file itself to another disk, so a link of their own is no attack.

    Raises:
        errors.StoreCannotOpenError: it is another user's link.
    """
    if os.name != "posix":
        return
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return  # not there, or not to be reached: opening it says which
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (os.geteuid(), 0):
        raise _refused(path, f"{path} is a symbolic link that another user made")


def refuse_odd(path: Path) -> None:
    """Refuse a file that is too short for a database, or no regular file, and sidecars that are none.

    SQLite takes a file of less than 512 bytes for an empty one, and would write over it.

    Args:
        path: the real path, with no link left in it.

    Raises:
        errors.StoreCannotOpenError: such a file is there.
        errors.NotADatabaseError: the file has between 1 and 511 bytes.
    """
    for end in ("", *SIDECARS):
        name = f"{path}{end}"
        try:
            found = os.lstat(name)
        except (OSError, ValueError):
            continue
        if not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no regular file"
            raise _refused(path, f"{name} is {kind}")
        if not end and 0 < found.st_size < SMALLEST_PAGE:
            raise errors.make(errors.NotADatabaseError, "file is not a database", path, "open")


def _refused(path: Path, why: str) -> errors.HermesStateError:
    return errors.make(errors.StoreCannotOpenError, f"unable to open database file: {why}", path, "open")
