"""VACUUM, and how far it has come.

SQLite does not tell. It first copies every page in use into a temporary file, and then that file over the
database, in WAL mode as frames of the WAL (https://www.sqlite.org/lang_vacuum.html, "How VACUUM works"). The
pages that the connection had to read tell of the first half, the size of the WAL of the second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from hermes_state.store.rows import scalar

Progress = Callable[[int, int], object] | None

STEPS: Final = 5_000
"""Virtual machine instructions between two looks at the pages that were read."""
LOOK_EVERY_S: Final = 0.1


def rewrite(conn: apsw.Connection, path: Path, progress: Progress = None) -> None:
    """``VACUUM`` on a connection outside a transaction.

    Args:
        path: the database file; its WAL is looked at, never opened.
        progress: called with (pages done, pages in all), from a thread of its own while SQLite
            works and once at the end. What it raises is raised when the work is over.
    """
    if progress is None:
        conn.execute("VACUUM")
        return
    with _Watch(conn, Path(f"{path}-wal"), progress).running():
        conn.execute("VACUUM")


class _Watch:
    """Tells of the pages that one VACUUM has treated."""

    def __init__(self, conn: apsw.Connection, wal: Path, progress: Callable[[int, int], object]) -> None:
        self._conn = conn
        self._wal = wal
        self._progress = progress
        self._size = int(scalar(conn, "PRAGMA page_size"))
        self._pages = int(scalar(conn, "PRAGMA page_count")) - int(scalar(conn, "PRAGMA freelist_count"))
        # Without a WAL the second half cannot be seen, and the first counts for all.
        self._halves = 2 if conn.pragma("journal_mode") == "wal" else 1
        self._wal_before = self._wal_bytes()
        self._missed_before = self._missed()
        self._read = 0
        self._over = threading.Event()
        self._error: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch while the block runs."""
        thread = threading.Thread(target=self._watch, name="hermes_state vacuum", daemon=True)
        self._conn.set_progress_handler(self._look, STEPS, id=self)
        thread.start()
        try:
            yield
        finally:
            self._conn.set_progress_handler(None, id=self)
            self._over.set()
            thread.join()
        if self._error is not None:
            raise self._error
        self._progress(self._total, self._total)

    @property
    def _total(self) -> int:
        return max(1, self._pages * self._halves)

    def _look(self) -> bool:
        """Called by SQLite in the thread that runs the VACUUM; only there may the connection be asked."""
        self._read = min(self._pages, self._missed() - self._missed_before)
        return False

    def _watch(self) -> None:
        try:
            while not self._over.wait(LOOK_EVERY_S):
                written = 0
                if self._halves == 2:
                    written = (self._wal_bytes() - self._wal_before) // self._size
                # Pages that stood in the cache were not read: what is written tells that all were.
                read = self._pages if written > 0 else self._read
                self._progress(read + max(0, min(self._pages - 1, written)), self._total)
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            self._error = error

    def _missed(self) -> int:
        """Pages that were not in the cache, since the connection was opened."""
        return self._conn.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0
