"""What must not stand in the place of the database and its sidecars.

Whoever can put a symbolic link beside the file could let the store write into a file of his choice.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hermes_state import errors

SIDECARS = ("-wal", "-shm", "-journal")


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
    """Refuse a database that is no regular file, and sidecars that are links or no regular files.

    Args:
        path: the real path, with no link left in it.

    Raises:
        errors.StoreCannotOpenError: such a file is there.
    """
    for name in (path, *(Path(f"{path}{end}") for end in SIDECARS)):
        try:
            mode = os.lstat(name).st_mode
        except (OSError, ValueError):
            continue
        if not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
            raise _refused(path, f"{name} is {kind}")


def _refused(path: Path, why: str) -> errors.HermesStateError:
    return errors.make(errors.StoreCannotOpenError, f"unable to open database file: {why}", path, "open")
