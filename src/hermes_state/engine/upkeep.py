"""Keeping an engine's index and WAL: catching up, index steps, checkpoints, damage met on the way."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import opening, patience
from hermes_state.engine import transaction as tx
from hermes_state.engine.indexer import measured
from hermes_state.engine.progress import UpgradeProgress
from hermes_state.engine.worker import HOLD_S, StepSize
from hermes_state.schema import migrate
from hermes_state.search import forgetting, indexing, merging, owed, tables
from hermes_state.store.rows import scalar

if TYPE_CHECKING:
    from hermes_state.engine.core import Engine

log = logging.getLogger("hermes_state")
T = TypeVar("T")

CATCH_UP_ROWS = 256
"""Rows a step when somebody waits for the index to be complete."""
OWED_ROWS = 64
"""Rows a step of what another SQLite left of the index, which an open brings up to date."""
OPEN_INDEX_S = 0.25
"""How long an open goes on indexing what an upgrade left, before the worker takes over."""
CLOSE_UPGRADE_S = 5.0
"""How long the last close goes on with an unfinished upgrade; the next open goes on from there."""
WORKER_PATIENCE_S = 0.5
"""Patience for the write lock of those whose index step can as well be done later."""
CLOSE_FORGET_S = 1.0
"""How long the last close removes entries of messages that others deleted; its own it removes all."""
CLOSE_PATIENCE_S = 5.0
"""Patience for the write lock of the last close."""
SEARCH_WAIT_S = 1.0
"""How long a search waits for the index, or for the lock to write it, before it scans what waits."""
SEARCH_FORGET_S = 0.2
"""How long a search waits for entries of deleted messages to leave the index, which it never shows."""
SEARCH_SCAN_ROWS = 5000
"""Rows above the watermark up to which a search rather scans them than waits longer."""
WAL_FRAMES = 3000
"""Frames (pages) of the WAL from which a checkpoint makes it start anew; 12 MB at SQLite's page size."""
WAL_SLACK = 1024 * 1024
FORGET_REST_EVERY_S, FORGET_REST_S = 0.090, 0.012
"""After so many seconds of holding the lock to remove entries comes a rest, longer than a waiting
writer's longest pause (``patience.EAGER_MAX_S``); after every step of the worker, whom nobody waits for."""
DRAIN_S = 0.020
"""How long such a checkpoint waits for this process's reads that still use the WAL."""


class Upkeep:
    """What an engine does for its index and its WAL; one an engine, opened and closed with it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._checkpointing = threading.Lock()
        self._checkpointer: apsw.Connection | None = None
        self._deferred = False
        """This engine has left entries of messages that it deleted to be removed later."""
        self._forgot = 0
        """Ids whose entries the last index transaction removed."""
        self._unrested = 0.0
        self._merging = StepSize(HOLD_S / 2)
        self._seen: object = None
        """SQLite's number for what others had committed when the worker last looked whether to merge."""
        self.upgrading = False
        """A re-index that belongs to an upgrade has not ended yet."""
        self._schema: int | None = None
        self.progress = UpgradeProgress(engine.path)

    def note_schema(self, conn: apsw.Connection) -> bool:
        """Take in the version of the schema that ``conn`` sees; whether another program has changed it."""
        before, self._schema = self._schema, int(scalar(conn, "PRAGMA schema_version"))
        return before not in (None, self._schema)

    def disconnect(self) -> None:
        """Close the checkpoint connection; the next checkpoint opens another."""
        if self._checkpointer is not None:
            self._checkpointer.close(True)
            self._checkpointer = None

    def index_while_opening(self, conn: apsw.Connection) -> None:
        """Index what is pending in the open transaction, for OPEN_INDEX_S at most."""
        deadline = time.monotonic() + OPEN_INDEX_S
        while indexing.index_step(conn, CATCH_UP_ROWS) and time.monotonic() < deadline:
            pass

    def finish_before_close(self) -> None:
        """Index what is pending and copy the WAL back, when nobody else is inside any more."""
        conn = self._engine._writer.conn
        started = time.monotonic()
        deadline = started + (CLOSE_UPGRADE_S if self.upgrading else float("inf"))
        deadline_of_list = deadline if self._deferred else started + CLOSE_FORGET_S
        try:
            while not self.complete(conn) and time.monotonic() < deadline:
                if time.monotonic() > deadline_of_list and not indexing.pending(conn):
                    break
                if not self.safe_step(CATCH_UP_ROWS, CLOSE_PATIENCE_S)[0]:
                    break
                self._rest()
            if self._wrote():
                self._copy_back(self._checkpointer or self._engine._writer.conn)
        except (apsw.Error, errors.HermesStateError) as error:
            # The rows are stored and stay above the watermark: the next open indexes them.
            log.warning("%s: closing before the index was complete: %s", self._engine.path, error)

    def _wrote(self) -> bool:
        """Whether any connection of this engine has written since it was opened."""
        connections = (self._engine._writer.conn, self._engine._appender)
        written = any(conn is not None and conn.total_changes() for conn in connections)
        return written or self._engine._indexer.wrote or self._engine.face.wrote

    def settle_owed(self, conn: apsw.Connection) -> None:
        """While opening: bring up to date what a SQLite without FTS5 or its tokenizer had to leave.

        In short transactions. Damage in the index ends it, and the rest stays noted.
        """
        settled = 0
        try:
            while owed.anything(conn):
                with tx.transaction(conn, self._engine._patience(), self._engine.path, "open"):
                    settled += owed.settle_step(conn, OWED_ROWS)
        except apsw.Error as error:
            if not self._engine.damage.met(error):
                raise
        if settled:
            log.info("%s: %d index entries that had been left were brought up to date",
                     self._engine.path, settled)  # fmt: skip

    def complete(self, conn: apsw.Connection) -> bool:
        """True if the index holds all that ``conn``'s snapshot holds, or nothing can be done about it."""
        if self._engine.read_only is not None or self._engine.damage.known:
            return True
        return forgetting.complete(conn) or bool(tables.unusable(conn))

    @property
    def defers(self) -> bool:
        """Whether the entries of messages that are deleted leave the index later."""
        return self._engine.options.indexing == "background" and self._engine.journal_mode == "wal"

    def forget(self, conn: apsw.Connection, ids: list[int]) -> None:
        """In the transaction that deletes these messages, before it does: take them out of the index.

        Where it is kept in the background they are only listed, and an index transaction removes them.
        """
        if self.defers:
            self._deferred = True
            forgetting.defer(conn, ids)
        else:
            indexing.forget(conn, ids)

    def catch_up(self) -> None:
        """Index everything that is committed, as far as the file can be written and the index is whole.

        Raises:
            errors.StoreBusyError: the write lock was not to be had within the store's patience.
        """
        while True:
            with self._engine._reading("search") as conn:
                if self.complete(conn):
                    return
            if not self.safe_step(CATCH_UP_ROWS)[0]:
                return
            self._rest()

    def catch_up_shortly(self) -> bool:
        """Like ``catch_up`` for a search, which can scan a few rows that wait; True if none does.

        It gives up where another process has the write lock for long or the disk is full, and after
        SEARCH_WAIT_S once the rest is short enough to be scanned; after SEARCH_FORGET_S where only deleted
        messages are left.
        """
        started = time.monotonic()
        deadline = started + SEARCH_WAIT_S
        while True:
            with self._engine._reading("search") as conn:
                if self.complete(conn):
                    return True
                if time.monotonic() > started + SEARCH_FORGET_S and not indexing.pending(conn):
                    return False
                if time.monotonic() > deadline and not indexing.pending(conn, SEARCH_SCAN_ROWS):
                    return False
            try:
                if not self.safe_step(CATCH_UP_ROWS, SEARCH_WAIT_S)[0]:
                    return False
            except (errors.StoreBusyError, errors.StoreFullError, apsw.FullError) as error:
                log.info("%s: a search scans what waits for the index: %s", self._engine.path, error)
                return False

    def index_step(self, rows: int, seconds: float | None = None, *, shy: bool = False) -> tuple[int, float]:
        """One index transaction or two; (rows treated, seconds they held the lock).

        Rows that wait to be indexed come first; what is left of ``rows`` goes to entries of deleted messages,
        so that these come to their end also while messages stream.

        It need not be durable: what a power loss takes of it is above the
        watermark again, so it commits without an fsync of its own. ``seconds`` is
        the patience for the write lock, where it is not the store's; ``shy`` is to have none where only
        entries are to be removed: whoever has the lock may be removing them.
        """
        reached: tuple[int, int] | None = None

        def step(conn: apsw.Connection) -> int:
            nonlocal reached
            self._forgot = 0
            if self.upgrading and self.note_schema(conn):
                # Its migration fills tables that it has just made: rows of ours would make it fail.
                words = "database is locked: another program migrates the file"
                raise errors.make(errors.StoreBusyError, words, self._engine.path, "index")
            left = rows - plain
            treated = indexing.index_step(conn, left)
            if treated < left:
                self._forgot = forgetting.step(conn, left - treated)
            reached = indexing.reached(conn) if self.upgrading else None
            if treated < left:
                self.finish_upgrade(conn)
            return treated + self._forgot

        waiting = self._engine._patience() if seconds is None else patience.Patience(seconds)
        plain, plain_held = 0, 0.0
        if self._engine.journal_mode == "wal" and not self.upgrading:
            self._forgot = 0
            plain, plain_held, more = self._engine._indexer.plain_step(rows, waiting)
            if more is None:
                return plain, plain_held
            if more == "forget" and shy:
                waiting = patience.Patience(0.0)
        try:
            treated, held = self._without_fsync(step, waiting, "index")
        except errors.StoreBusyError:
            if not plain:
                raise
            return plain, plain_held
        self._unrested += held if self._forgot else 0.0
        if reached is not None:
            self.progress.tell(*reached)
        return plain + treated, plain_held + held

    def _rest(self, after: float = FORGET_REST_EVERY_S) -> None:
        """After some holding of the lock for deleted messages, let writers of other processes have it."""
        if self._unrested > after:
            self._unrested = 0.0
            time.sleep(FORGET_REST_S)

    def lazily(self, fn: Callable[[apsw.Connection], T], operation: str, *, durable: bool) -> tuple[T, float]:
        """``fn(conn)`` in a write transaction; its result and the seconds that it held the lock.

        Unless ``durable``, its COMMIT makes no fsync: it is there for everybody, but survives a power loss
        only once a later transaction that is durable has ended.
        """
        engine = self._engine
        with engine.inside(operation):
            engine._writable(operation)
            waiting = engine._patience()
            run = self._timed if durable else self._without_fsync
            result = self.spared(lambda: run(fn, waiting, operation))
            engine._worker.written(0)
            return result

    def _timed(
        self, fn: Callable[[apsw.Connection], T], waiting: patience.Patience, operation: str
    ) -> tuple[T, float]:
        """``fn(conn)`` in one write transaction; its result and the seconds from BEGIN to COMMIT's end."""
        return self._engine._writer.hold(
            lambda conn: measured(conn, fn, waiting, self._engine.path, operation), waiting, operation
        )

    def _without_fsync(
        self, fn: Callable[[apsw.Connection], T], waiting: patience.Patience, operation: str
    ) -> tuple[T, float]:
        """``_timed`` with a COMMIT that makes no fsync, in WAL mode; elsewhere that could damage the file."""
        engine = self._engine
        if engine.journal_mode != "wal":
            return self._timed(fn, waiting, operation)

        return engine._indexer.run(fn, waiting, operation)

    def index_now(self, rows: int) -> tuple[int, float]:
        """One index transaction of up to so many rows: (rows treated, seconds it held the lock)."""
        with self._engine.inside("index"):
            self._engine._writable("index")
            return self.index_step(rows)

    def worker_step(self, rows: int) -> tuple[int, float]:
        """``safe_step`` with the short patience of somebody who can come again."""
        done = self.safe_step(rows, WORKER_PATIENCE_S, shy=True)
        self._rest(after=0.0)
        return done

    def merge_step(self) -> bool | None:
        """One short step of merging the index's segments, for a worker that has nothing else to do.

        True if another is worthwhile now; False for later: others write; None if there is nothing to merge.
        """
        engine = self._engine
        if engine.journal_mode != "wal" or engine.read_only is not None or engine.damage.known:
            return None
        try:
            more, held = self._without_fsync(self._merge_quietly, patience.Patience(0.0), "merge")
        except errors.StoreBusyError:
            return False
        except (errors.StoreFullError, apsw.FullError):
            return None  # nobody misses it; messages need the room
        except (apsw.Error, errors.StoreCorruptError) as error:
            if not engine.damage.met(error):
                raise
            return None
        if more:
            self._merging.learn(self._merging.rows, held)
        return more

    def _merge_quietly(self, conn: apsw.Connection) -> bool | None:
        """In a write transaction: a step of merging, unless others wrote since the last look."""
        version = int(scalar(conn, "PRAGMA data_version"))
        if version != self._seen:
            self._seen = version
            return False
        return merging.step(conn, self._merging.rows) or None

    def safe_step(self, rows: int, seconds: float | None = None, *, shy: bool = False) -> tuple[int, float]:
        """``index_step``; (0, 0.0) where the file cannot be written or the index is damaged."""
        if self._engine.read_only is not None or self._engine.damage.known:
            return 0, 0.0
        try:
            return self.index_step(rows, seconds, shy=shy)
        except (apsw.Error, errors.StoreCorruptError) as error:
            if not self._engine.damage.met(error):
                raise
            return 0, 0.0

    def help(self) -> None:
        """An index step by one that has just stored messages, where the worker cannot keep up."""
        if not self._engine._worker.overloaded:
            return
        try:
            self._engine._worker.helped(self.worker_step(CATCH_UP_ROWS)[0])
        except (apsw.Error, errors.HermesStateError) as error:
            # The messages are committed, and that is what the caller must hear; the rest is the worker's.
            log.info("%s: indexing is left to the worker: %s", self._engine.path, error)

    def spared(self, attempt: Callable[[], T]) -> T:
        """``attempt()``, and once more without the index where inline indexing met damage in it."""
        known = self._engine.damage.known
        try:
            return attempt()
        except (apsw.Error, errors.StoreCorruptError) as error:
            if known or self._engine.options.indexing != "inline" or not self._engine.damage.met(error):
                raise
            return attempt()

    def finish_upgrade(self, conn: apsw.Connection) -> None:
        """Stamp the file current, in the open transaction, if nothing is left to index."""
        if not indexing.pending(conn):
            migrate.finish(conn)
            self.upgrading = False

    def checkpoint(self) -> None:
        """One PASSIVE checkpoint on a connection of its own; a WAL that has grown is made to start anew.

        The WAL starts anew when a writer comes to one that is copied back whole and that no reader
        uses. While writes and reads stream that moment never comes by itself. So once it is long, the
        line is held for a moment: the rest is copied, and the reads that use the WAL come to their
        end (those that begin now read the main file). Nothing waits for other processes, and no
        checkpoint of a stronger kind, which would, is ever made.
        """
        with self._checkpointing:
            if self._checkpointer is None:
                self._checkpointer = opening.connect_writer(
                    self._engine.path,
                    durability=self._engine.options.durability,
                    triggers=False,
                    place=self._engine.place,
                )
            conn = self._checkpointer
            if self._copy_back(conn) > WAL_FRAMES:
                self._engine._writer.hold(lambda _: self._empty(conn), self._engine._patience(), "checkpoint")

    def wal_grown(self) -> bool:
        """Whether the WAL is longer than what it keeps when it starts anew."""
        try:
            wal = os.stat(f"{self._engine.path}-wal")  # noqa: PTH116 - the worker comes by here often
        except OSError:
            return False
        return wal.st_size > opening.WAL_KEEP_BYTES + WAL_SLACK

    def _empty(self, conn: apsw.Connection) -> None:
        """Copy the rest of the WAL while no writer of this process can add to it."""
        # A read that began earlier lets only what is older than it be copied; one that begins now
        # lets all be copied, but then uses the WAL itself until it ends.
        self._engine._readers.drain(DRAIN_S)
        self._copy_back(conn)
        self._engine._readers.drain(DRAIN_S)

    def _copy_back(self, conn: apsw.Connection) -> int:
        """Copy what can be copied from the WAL to the main file, waiting for nobody; the WAL's frames."""
        if self._engine.journal_mode != "wal" or self._engine.read_only is not None:
            return 0
        try:
            frames, _ = conn.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            # Another process checkpoints right now, which serves as well.
            return 0
        return frames
