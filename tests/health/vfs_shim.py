"""A VFS over SQLite's own that makes the N-th call of a kind fail, once or from then on.

SQLite's own tests work so (https://www.sqlite.org/testing.html, section 3.2, I/O error testing). The
shared memory of WAL goes past the shim: APSW hands those calls through.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from hermes_state.engine import opening

NAME = "hermes_state_faults"
KINDS = ("xRead", "xWrite", "xSync", "xTruncate", "xLock", "xFileSize", "xOpen", "xDelete", "xAccess")


class Plan:
    """Which call fails: the ``number``-th of ``kind``, or with ``lasting`` every one from it on."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.failed = 0
        self._kind: str | None = None
        self._number = 0
        self._lasting = False
        self._error: type[apsw.Error] = apsw.IOError

    def arm(self, kind: str, number: int, *, lasting: bool = False, full: bool = False) -> None:
        """Begin to count anew, and fail as told; ``full``: as a full disk does."""
        self.calls.clear()
        self.failed = 0
        self._kind, self._number, self._lasting = kind, number, lasting
        self._error = apsw.FullError if full else apsw.IOError

    def disarm(self) -> None:
        """Let every call through."""
        self._kind = None

    def met(self, kind: str) -> None:
        """Count a call, and raise where it is the one to fail."""
        with self._mutex:
            self.calls[kind] += 1
            if kind != self._kind:
                return
            count = self.calls[kind]
            if count == self._number or (self._lasting and count > self._number):
                self.failed += 1
                raise self._error(f"injected: {kind} number {count}")


class _File(apsw.VFSFile):
    def __init__(self, plan: Plan, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self._plan = plan

    def excepthook(self, *_exception: Any) -> None:
        """Injected errors are expected; SQLite has the code."""

    def xRead(self, amount: int, offset: int) -> bytes:
        self._plan.met("xRead")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._plan.met("xWrite")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._plan.met("xSync")
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        self._plan.met("xTruncate")
        super().xTruncate(size)

    def xLock(self, level: int) -> None:
        self._plan.met("xLock")
        super().xLock(level)

    def xFileSize(self) -> int:
        self._plan.met("xFileSize")
        return super().xFileSize()


class _VFS(apsw.VFS):
    def __init__(self, plan: Plan) -> None:
        super().__init__(NAME, "")
        self._plan = plan

    def excepthook(self, *_exception: Any) -> None:
        """As for files."""

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        self._plan.met("xOpen")
        return _File(self._plan, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._plan.met("xDelete")
        super().xDelete(filename, syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:
        self._plan.met("xAccess")
        return bool(super().xAccess(pathname, flags))


@contextmanager
def installed() -> Iterator[Plan]:
    """The shim under every APSW connection that the engine opens while the block runs."""
    plan = Plan()
    vfs = _VFS(plan)
    opening._vfs = NAME
    try:
        yield plan
    finally:
        opening._vfs = None
        vfs.unregister()
