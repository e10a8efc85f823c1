"""Two copies of SQLite in one process: what protects our locks from the other one.

The anchor (engine.opening) does in WAL mode everywhere against stdlib connections that come and go while
ours rest or wait; not against one that is used at the moment of our commit (docs/design.md). On Linux, where
the module ``_ofd_locks`` was compiled, APSW's SQLite takes its locks for its open file descriptions
instead of for the process: no descriptor that somebody closes drops them, and even a stdlib *writer* in
this process gets "database is locked" instead of passing ours. A file that was in WAL mode when it was
opened, and whose locks are seen to be of that kind, needs no anchor then and has none.
Nor does a close of ours drop what stdlib connections of this process have: a descriptor that would do so is
kept for the next store. ``HERMES_STATE_NO_OFD_LOCKS=1`` leaves all that out.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw

from hermes_state._fastpath import _mode

_lock = threading.Lock()
_tried = False
_why_not = "not asked for yet"
_module: Any = None


def install() -> None:
    """Load the locks into APSW's SQLite, once a process, before its first connection to our files."""
    global _tried, _why_not, _module
    with _lock:
        if _tried:
            return
        _tried = True
        if os.environ.get("HERMES_STATE_NO_OFD_LOCKS", "") not in ("", "0"):
            _why_not = "HERMES_STATE_NO_OFD_LOCKS is set"
            return
        if _mode.NO_EXTENSIONS:
            _why_not = "HERMES_STATE_NO_EXTENSIONS is set"
            return
        try:
            _module = import_module("hermes_state.engine._ofd_locks")
            load(_module)
        except (ImportError, apsw.Error, AttributeError) as error:
            # The anchor alone serves: see the module's text.
            _why_not = f"not to be had here: {error}"


def watch(path: Path) -> None:
    """Take the locks of this database that way; called before APSW opens it.

    Its -shm is known by its name when APSW opens it, and here where it is there already.
    """
    if _module is None:
        return
    for name in (str(path), f"{path}-shm"):
        try:
            found = os.stat(name)  # noqa: PTH116 - each open comes by here
        except OSError:
            continue  # no -shm in DELETE mode
        _module.watch(found.st_dev, found.st_ino)


def watching() -> bool:
    """Whether APSW's SQLite takes the locks of watched files for open file descriptions."""
    return _module is not None and bool(_module.installed())


def says_wal(path: Path) -> bool:
    """Whether the header of a watched file that APSW has open says WAL; takes and drops no lock."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as in watch
    except OSError:
        return False
    return watching() and bool(_module.says_wal(found.st_dev, found.st_ino))


def holds(path: Path) -> bool:
    """Whether the database and its WAL index are locked that way now, by an APSW connection to them."""
    try:
        found = [os.stat(name) for name in (str(path), f"{path}-shm")]  # noqa: PTH116 - as in watch
    except OSError:
        return False
    return watching() and all(_module.descriptors(each.st_dev, each.st_ino) > 0 for each in found)


def closed() -> None:
    """A store's last connection was closed, its anchor too: close what was kept open only because of that."""
    if watching():
        _module.sweep()


def load(module: Any) -> None:
    """Load a compiled module that is an extension of SQLite too into APSW's SQLite, for the process.

    Raises:
        apsw.Error, AttributeError: this APSW cannot load extensions.
    """
    conn = apsw.Connection(":memory:")
    try:
        conn.enable_load_extension(True)
        conn.load_extension(module.__file__, module.ENTRY_POINT)
        conn.enable_load_extension(False)
    finally:
        conn.close()


def active(*, anchor: bool = True) -> dict[str, Any]:
    """``{"anchor": bool, "ofd_locks": bool, "why": reason where there are no such locks}``."""
    return {"anchor": anchor, "ofd_locks": watching(), "why": None if watching() else _why_not}
