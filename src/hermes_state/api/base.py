"""The handle itself: opening, closing, and the ways into the engine that every method uses."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import memory, paths, protection, registry, wal
from hermes_state.engine.core import Engine, Options
from hermes_state.engine.face import Face
from hermes_state.search import indexing

T = TypeVar("T")

_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a lock that a thread of the parent holds is held by nobody here, for ever."""
    for handle in list(_handles):
        handle._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class Handle:
    """A thin handle on the one engine that this process has for a file."""

    _WRITE_MAX_RETRIES = 15
    _WRITE_RETRY_MIN_S = 0.020
    _WRITE_RETRY_MAX_S = 0.150
    _CHECKPOINT_EVERY_N_WRITES = 50

    db_path: Path
    _lock: Any
    _conn: Face

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        indexing: str | None = None,
        trigram: str | None = None,
        durability: str | None = None,
        patience: float | None = None,
        on_upgrade_progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Open the store, bringing an older file up to date.

        Args:
            db_path: the file; None for ``DEFAULT_DB_PATH`` or ``<hermes home>/state.db``;
                ``":memory:"`` for a store that is gone when the handle is closed.
            indexing: ``"background"`` (the default: an append commits the message, a worker
                indexes it, every search still sees it) or ``"inline"``.
            trigram: which rows a new file puts into the trigram index: ``"all"`` (the default,
                as v11) or ``"unspaced"`` (those with a script written without spaces; the same
                answers, a much smaller file). A file with messages keeps its mode.
            durability: ``"full"`` (the default: an acknowledged row survives a power loss) or
                ``"normal"`` (it survives the end of the process, not surely a power loss).
            patience: seconds to wait for another process's write lock; the default is 60 for
                messages and 20 for everything else.
            on_upgrade_progress: called with (done, total) after each step of the re-indexing that an
                older file needs and that goes on while the store is in use: the id of the message up
                to which all are indexed, and the newest message's id; equal at the end. Called in
                whichever thread made the step; it must return soon and not use the store.

        Raises:
            sqlite3.Error: the file cannot be opened (``get_last_init_error()`` keeps why).
            TypeError, ValueError: an argument is wrong, or differs from what another handle
                of this process opened the same file with.
        """
        try:
            if on_upgrade_progress is not None and not callable(on_upgrade_progress):
                raise TypeError(f"on_upgrade_progress must be callable, not {on_upgrade_progress!r}")
            self.db_path = paths.database_path(db_path)
            options = Options.given(indexing, trigram, durability, patience)
            self._memory = memory.private_file() if str(self.db_path) == memory.NAME else None
            self._lease = registry.acquire(self._memory or self.db_path, options)
        except BaseException as error:
            wal._set_last_init_error(f"{type(error).__name__}: {error}")
            raise
        self._engine: Engine = self._lease.engine
        self._lock = threading.RLock()
        _handles.add(self)
        self._conn = self._engine.face
        self._closed = False
        self._listener = on_upgrade_progress
        if on_upgrade_progress is not None:
            self._engine.upkeep.progress.add(on_upgrade_progress)

    def close(self) -> None:
        """Give the handle back; the last one of the process indexes what is pending and closes the file.

        A second call does nothing. Calls after it raise ``StoreClosedError``.
        """
        self._closed = True
        lease = self.__dict__.pop("_lease", None)  # in one step: two threads may close
        if lease is not None:
            registry.release(lease)
            if self._listener is not None:
                self._engine.upkeep.progress.remove(self._listener)
            if self._memory is not None:
                memory.remove(self._memory)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self.db_path)!r}{' closed' if self._closed else ''}>"

    def store_info(self) -> dict[str, Any]:
        """How this store works at the moment.

        Returns:
            ``path``, ``journal_mode`` ("wal" or "delete"), ``indexing``, ``trigram``, ``durability``,
            ``read_only`` (bool), ``index_pending`` (bool: a search would index first),
            ``upgrade``: None, or ``{"done", "total"}`` while an older file is indexed anew, as
            ``on_upgrade_progress`` gets them, ``full_text_lacks``: None, or what this SQLite was built
            without ("FTS5", "the trigram tokenizer"), so that searches scan the newest messages, and
            ``protection``: ``{"anchor", "ofd_locks", "why"}``, what guards the file's locks from another
            copy of SQLite in this process.
        """
        engine = self._engine
        trigram, pending, (done, total) = self._read(
            lambda conn: (indexing.trigram_mode(conn), indexing.pending(conn), indexing.reached(conn)),
            "store_info",
        )
        upgrading = engine.upkeep.upgrading and pending
        return {
            "path": str(self.db_path),
            "journal_mode": engine.journal_mode,
            "indexing": engine.options.indexing,
            "trigram": trigram,
            "durability": engine.options.durability,
            "read_only": engine.read_only is not None,
            "index_pending": pending,
            "upgrade": {"done": done, "total": total} if upgrading else None,
            "full_text_lacks": engine.full_text.lacks,
            "protection": protection.active(anchor=engine.anchored),
        }

    def _execute_write(self, fn: Callable[[Any], T]) -> T:
        """``fn(conn)`` in one BEGIN IMMEDIATE transaction on the trigger connection (``_conn``)."""
        self._check_open("_execute_write")
        return self._conn.run(fn, "_execute_write")

    def _check_open(self, operation: str) -> None:
        if self._closed:
            raise errors.closed(self.db_path, operation)

    def _read(
        self,
        fn: Callable[[apsw.Connection], T],
        operation: str,
        *,
        indexed: bool = False,
        single: bool = False,
    ) -> T:
        self._check_open(operation)
        return self._engine.read(fn, operation, indexed=indexed, single=single)

    def _write(
        self,
        fn: Callable[[apsw.Connection], T],
        operation: str,
        *,
        rows: int = 0,
        seconds: float | None = None,
    ) -> T:
        self._check_open(operation)
        return self._engine.write(fn, operation, rows=rows, seconds=seconds)
