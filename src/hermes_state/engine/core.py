"""One engine a file and process: connections, their order, and the ways in.

The engine owns one writer connection (triggers off), beside it one for plain appends and one for
the index, a bounded pool of readers, one background worker with a checkpoint connection of its own, the
trigger connection behind ``_conn``, and the stdlib anchor where one is needed. Every ``SessionDB`` on the
same real path shares it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import opening, patience, protection
from hermes_state.engine import transaction as tx
from hermes_state.engine.damage import FullText, IndexDamage
from hermes_state.engine.face import Face
from hermes_state.engine.gate import Gate, in_turn
from hermes_state.engine.identity import Place, keep_for_ever
from hermes_state.engine.indexer import Indexer
from hermes_state.engine.options import Options as Options
from hermes_state.engine.readers import Loan, ReaderPool
from hermes_state.engine.upkeep import Upkeep
from hermes_state.engine.worker import Worker
from hermes_state.engine.writer import Group, Outcome, Writer
from hermes_state.schema import migrate
from hermes_state.search import indexing
from hermes_state.store import idempotency, message_writes
from hermes_state.store.idempotency import KeyedRows

log = logging.getLogger("hermes_state")
T = TypeVar("T")

FORK_WAIT_S = 10.0


class Engine:
    """The only code that touches SQLite for one file in this process."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.gate = Gate()
        self.forked_inside = False
        self._closed = False
        self._opening = threading.Lock()
        self._is_open = False
        self.face = Face(self)
        self.read_only: errors.HermesStateError | None = None
        self.damage = IndexDamage(path)
        self.full_text = FullText(path)
        self.place = Place(path)
        self.upkeep = Upkeep(self)
        self._open()

    # -- opening and closing --

    def _open(self) -> None:
        """Open everything, the anchor first where one is needed, and bring the schema up to date."""
        protection.install()
        opening.make_private(self.path)
        protection.watch(self.path)
        self.place.note()
        conn, alone = opening.connect_first(self.path, durability=self.options.durability)
        self._anchor: Any = None
        self.journal_mode = "wal"
        self.read_only = None
        self._readers = ReaderPool(
            lambda: opening.connect_reader(self.place, readonly=self.read_only is not None)
        )
        self._worker = Worker(
            self.upkeep.worker_step, self.upkeep.checkpoint, self.upkeep.wal_grown, self.upkeep.merge_step
        )
        try:
            if not alone:
                self._anchor, self.journal_mode = opening.open_anchor(self.path)
                protection.watch(self.path)
            if conn is None or not alone:
                conn = opening.connect_writer(
                    self.path, durability=self.options.durability, triggers=False, opened=conn
                )
            self.place.check("open")
            self._open_writer(conn)
            opening.tighten(self.path)
            self._is_open = True
            if self.upkeep.upgrading:
                self._worker.written(1)
        except BaseException as error:
            self._is_open = False
            met = in_turn([self._worker.stop, partial(self._give_up, conn, error, alone)])
            if met is not None:
                raise met from error
            raise

    def _give_up(self, conn: apsw.Connection | None, error: BaseException, alone: bool) -> None:
        """Close what a failed open has opened, but nothing whose closing could drop others' locks."""
        if conn is not None:
            if alone or self.anchored or isinstance(error, errors.HermesStateError):
                conn.close(True)
            else:
                opening.park(conn, self.path)
        if self.anchored:
            self._anchor.close()
        protection.closed()

    @property
    def anchored(self) -> bool:
        """Whether a stdlib connection guards the locks of the others."""
        return self._anchor is not None

    def _open_writer(self, conn: apsw.Connection) -> None:
        self._appender: apsw.Connection | None = None
        self._writer = Writer(conn, self.path, self._apply, self._at_once)
        self._indexer = Indexer(self.place, self._writer)
        self.upkeep.upgrading = False
        try:
            if conn.readonly("main"):
                raise errors.make(
                    errors.StoreReadOnlyError, "attempt to write a readonly database", self.path, "open"
                )
            self._prepare_schema(conn)
        except errors.StoreReadOnlyError as error:
            # Reading works on; each write says why it cannot.
            self.read_only = error

    def _prepare_schema(self, conn: apsw.Connection) -> None:
        try:
            found = migrate.inspect(conn)
            if not found.current:
                with tx.transaction(conn, self._patience(), self.path, "open"):
                    if migrate.upgrade(conn):
                        self.upkeep.index_while_opening(conn)
                        self.upkeep.finish_upgrade(conn)
                found = migrate.inspect(conn)
            self.upkeep.upgrading = found.upgrading
            self.upkeep.note_schema(conn)
            self.full_text.note(found.unable)
            self.upkeep.settle_owed(conn)
            if self.options.trigram is not None:
                self._settle_trigram(conn, self.options.trigram)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise errors.translate(error, self.path, "open") from error

    def _settle_trigram(self, conn: apsw.Connection, wanted: str) -> None:
        """Write the wanted trigram mode into an empty file; another file keeps the mode it has."""
        if indexing.trigram_mode(conn) == wanted:
            return
        with tx.transaction(conn, self._patience(), self.path, "open"):
            if conn.execute("SELECT 1 FROM messages LIMIT 1").fetchone() is None:
                indexing.set_trigram_mode(conn, wanted)
                return
        log.warning(
            "%s was made with trigram=%r and keeps it; set_trigram_mode() changes it",
            self.path, indexing.trigram_mode(conn),
        )  # fmt: skip

    @property
    def closed(self) -> bool:
        """True once ``close`` has closed the connections, for good."""
        return self._closed

    def close(
        self, seconds: float = threading.TIMEOUT_MAX, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Close everything, for good: what is pending indexed, APSW first, the anchor last.

        Threads that are inside finish first; if they do not in ``seconds``, nothing is closed. Nor is it if
        ``unless()`` says so then: one of them may have got the engine for another handle.
        """
        try:
            if not self.gate.shut(seconds):
                log.warning("%s is not closed: a thread is inside it and does not come out", self.path)
                return
            if unless():
                return
            met = self._close_connections(catch_up=True) if self._is_open else None
            self._closed = True
            if met is not None:
                raise met
        finally:
            self.gate.open()

    def _close_connections(self, *, catch_up: bool) -> BaseException | None:
        """Close all; the first exception of it. Interrupted before that, it can be called again."""
        steps: list[Callable[[], object]] = [self._worker.stop]
        if catch_up and self.read_only is None:
            steps.append(self.upkeep.finish_before_close)
        steps += [self._readers.close, self.face.disconnect, self.upkeep.disconnect, self._indexer.disconnect]
        if self._appender is not None:
            steps.append(partial(self._appender.close, True))
        met = in_turn([*steps, partial(self._close_last, self._writer.conn), protection.closed])
        self._is_open = False
        return met

    def _close_last(self, writer: apsw.Connection) -> None:
        """Close the writer and the anchor; the last one removes the WAL, if it is still this file's."""
        there = self.place.unchanged
        if there and not self.anchored:
            opening.close_last(writer, self.path)
            return
        writer.close(True)
        if there:
            self._anchor.close()
            return
        # SQLite's last close removes the WAL by its name, which is another file's by now.
        log.warning("%s was replaced or deleted while it was open", self.path)
        if self.anchored:
            keep_for_ever(self._anchor)

    # -- fork --

    def before_fork(self) -> bool:
        """Wait for a quiet moment and close everything, so that the child inherits no connection.

        False, with nothing closed, where the forking thread itself is inside an
        operation, others do not come out in time, or a transaction of ``_conn`` is open.
        """
        if self.gate.depth or not self.gate.shut(FORK_WAIT_S):
            return False
        if self._is_open and self.face.in_transaction:
            return False
        if self._is_open and (met := self._close_connections(catch_up=False)) is not None:
            raise met
        return True

    def after_fork(self, *, quiet: bool, child: bool) -> None:
        """Undo ``before_fork``; connections open again at the next use."""
        if child:
            self.gate.reborn()
            self._opening = threading.Lock()
            self.face.reborn()
            if not quiet:
                # The inherited connections are in use by a thread that is not here: never touched again.
                self.forked_inside = True
                self._is_open = False
        elif not self.gate.depth:
            self.gate.open()

    @contextmanager
    def inside(self, operation: str) -> Iterator[None]:
        """Be inside the engine: open, and safe from closing and forking, while the block runs.

        APSW errors that leave the block become typed ones.
        """
        with self.gate.enter():
            if not self._is_open:
                self._reopen(operation)
            self.place.check(operation)
            try:
                yield
            except apsw.Error as error:
                raise errors.translate(error, self.path, operation) from error

    def _reopen(self, operation: str) -> None:
        with self._opening:
            if self._closed:
                raise errors.closed(self.path, operation)
            if self.forked_inside:
                raise errors.make(
                    errors.StoreForkError,
                    "database connection was forked inside a transaction",
                    self.path,
                    operation,
                )
            if not self._is_open:
                self._open()

    # -- reading --

    def read(
        self,
        fn: Callable[[apsw.Connection], T],
        operation: str,
        *,
        indexed: bool = False,
        single: bool = False,
    ) -> T:
        """``fn(conn)`` on one snapshot.

        Args:
            fn: only reads.
            operation: its name, for errors.
            indexed: what the snapshot holds should be in the index; ``fn`` scans what is not.
            single: ``fn`` is one statement, which is a snapshot by itself.
        """
        if single:
            return self._read_one(fn, operation)
        with self.inside(operation):
            while True:
                with self._reading(operation) as conn:
                    conn.execute("BEGIN")
                    try:
                        if not indexed or self.upkeep.complete(conn):
                            return fn(conn)
                    finally:
                        tx.rollback(conn)
                # What others commit meanwhile must be in it too: the next snapshot is looked at again.
                indexed = self.upkeep.catch_up_shortly()

    def _read_one(self, fn: Callable[[apsw.Connection], T], operation: str) -> T:
        """``read`` of one statement, in one frame: nested context managers cost as much as a short read."""
        local, depth = self.gate.place()
        loan = Loan()
        try:
            self.gate.arrive(local, depth)
            if not self._is_open:
                self._reopen(operation)
            self.place.check(operation)
            if self.journal_mode == "wal" or self.read_only is not None:
                return fn(self._readers.take(loan))
            with self._reading(operation) as conn:
                return fn(conn)
        except apsw.Error as error:
            raise errors.translate(error, self.path, operation) from error
        finally:
            try:
                self._read_ended(loan, local, depth)
            except BaseException:  # interrupted: as in Gate.enter and ReaderPool.lend
                self._read_ended(loan, local, depth)
                raise

    def _read_ended(self, loan: Loan, local: threading.local, depth: int) -> None:
        """Give the connection back and leave the gate; does nothing the second time."""
        if loan.number:
            self._readers.give_back(loan)
        self.gate.leave(local, depth)

    @contextmanager
    def _reading(self, operation: str) -> Iterator[apsw.Connection]:
        if self.journal_mode == "wal" or self.read_only is not None:
            with self._readers.lend() as conn:
                yield conn
        else:
            with self._writer.exclusive(self._patience(), operation) as conn:
                yield conn

    # -- writing --

    def _patience(self, default: float | None = None) -> patience.Patience:
        given = patience.OTHER_PATIENCE_S if default is None else default
        return patience.Patience(given if self.options.patience is None else self.options.patience)

    @property
    def message_patience(self) -> float:
        """Seconds that a message waits for the write lock."""
        given = self.options.patience
        return patience.MESSAGE_PATIENCE_S if given is None else given

    def _writable(self, operation: str) -> None:
        if self.read_only is not None:
            raise errors.make(
                errors.StoreReadOnlyError, "attempt to write a readonly database", self.path, operation
            ) from self.read_only

    def write(
        self,
        fn: Callable[[apsw.Connection], T],
        operation: str,
        *,
        rows: int = 0,
        seconds: float | None = None,
    ) -> T:
        """``fn(conn)`` in one write transaction without triggers.

        Args:
            fn: does the work; any exception undoes all of it.
            operation: its name, for errors.
            rows: about how many messages it stores without indexing them.
            seconds: patience, where it is not the default.
        """
        with self.inside(operation):
            self._writable(operation)
            waiting = self._patience(seconds)
            result = self.upkeep.spared(lambda: self._writer.run(fn, waiting, operation))
            self._worker.written(rows)
            return result

    def store(self, group: Group, operation: str) -> list[int]:
        """Store encoded message rows, sharing the COMMIT with other threads; their ids."""
        # In one frame, as _read_one: with many threads, what Python does here is half of an append.
        local, depth = self.gate.place()
        try:
            self.gate.arrive(local, depth)
            if not self._is_open:
                self._reopen(operation)
            self.place.check(operation)
            self._writable(operation)
            waiting = self._patience(patience.MESSAGE_PATIENCE_S)
            ids = self.upkeep.spared(lambda: self._writer.store(group, waiting, operation))
            self._worker.written(0 if self.options.indexing == "inline" else len(ids))
            self.upkeep.help()
            return ids
        except apsw.Error as error:
            raise errors.translate(error, self.path, operation) from error
        finally:
            try:
                self.gate.leave(local, depth)
            except BaseException:  # interrupted: as in Gate.enter
                self.gate.leave(local, depth)
                raise

    def store_many(self, groups: Sequence[Group], operation: str) -> list[Outcome]:
        """Store groups of encoded rows for callers that do not wait in threads of their own.

        One transaction, one outcome a group: its row ids, or the typed error that it met alone.
        """
        with self.inside(operation):
            self._writable(operation)
            outcomes = self._writer.store_many(groups, self._patience(patience.MESSAGE_PATIENCE_S), operation)
            stored = sum(len(outcome) for outcome in outcomes if isinstance(outcome, list))
            self._worker.written(0 if self.options.indexing == "inline" else stored)
            self.upkeep.help()
            return outcomes

    def store_encoded_inside(self, group: Callable[[], Group], operation: str) -> list[int]:
        """Like ``store``, but ``group()`` makes the rows inside the transaction, which is theirs alone."""

        def work(conn: apsw.Connection) -> list[int]:
            outcome = self._apply(conn, [group()])[0]
            if isinstance(outcome, BaseException):
                raise outcome
            return list(outcome)

        return self.write(work, operation, rows=1, seconds=self.message_patience)

    def _apply(self, conn: apsw.Connection, groups: Any) -> list[Outcome]:
        if any(isinstance(group, KeyedRows) for group in groups):
            outcomes = idempotency.insert_group(conn, groups)
        else:
            outcomes = message_writes.insert_group(conn, groups)
        if self.options.indexing == "inline":
            self.index_inline(conn, [i for outcome in outcomes if isinstance(outcome, list) for i in outcome])
        return outcomes

    def _at_once(self, groups: Sequence[Group]) -> list[list[int]] | None:
        """Store plain groups by one statement on a connection of its own; None where it cannot."""
        if self.journal_mode != "wal" or any(isinstance(group, KeyedRows) for group in groups):
            return None
        inline = self.options.indexing == "inline"
        if inline and (self.damage.known or not message_writes.all_texts(groups, indexing.all_plain)):
            return None
        if self._appender is None:
            self._appender = opening.connect_appender(
                self.place, durability=self.options.durability, inline=inline
            )
        try:
            return message_writes.append_at_once(self._appender, groups)
        except apsw.Error:
            tx.note_failure(self._appender)
            if tx.unsettled(self._appender):
                conn, self._appender = self._appender, None
                conn.close(True)
            raise

    def index_inline(self, conn: apsw.Connection, ids: list[int]) -> None:
        """Index these rows in the open transaction if the store indexes inline."""
        if ids and self.options.indexing == "inline" and not self.damage.known:
            indexing.index_rows(conn, ids)

    @contextmanager
    def exclusive(self, operation: str) -> Iterator[apsw.Connection]:
        """The writer connection outside a transaction (VACUUM, PRAGMA)."""
        with self.inside(operation):
            self._writable(operation)
            waiting = self._patience()
            with self._writer.exclusive(waiting, operation) as conn:
                conn.set_busy_timeout(int(waiting.left * 1000))
                try:
                    yield conn
                except apsw.BusyError as error:
                    raise errors.translate(error, self.path, operation, waiting.waited) from error
                finally:
                    conn.set_busy_timeout(patience.BUSY_MS)

    @contextmanager
    def in_line(self, operation: str) -> Iterator[None]:
        """Hold the place at the head of the writer's line, for the trigger connection's writes."""
        self._writable(operation)
        with self._writer.exclusive(self._patience(), operation):
            yield

    def noted(self) -> None:
        """Tell the worker of a transaction that the trigger connection has committed."""
        self._worker.written(0)
