"""Which file it is that an engine has open, and what to do when its name leads to another one."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Device and inode of what ``path`` names now; None where it names nothing."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each write comes by here
    except OSError:
        return None
    return found.st_dev, found.st_ino


def keep_for_ever(thing: Any) -> None:
    """Never let ``thing`` be closed by the garbage collector, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
