"""The face of ``_conn``: a stdlib-like connection for other programs' own SQL.

It is an APSW connection with triggers on and a lock of its own. Every
statement runs to its end inside ``execute`` (no statement stays half stepped),
so any thread may use it at any time. What it reads is complete: rows that were
appended before are in the indexes by then. What it writes is indexed by the
file's own triggers, and by us where our text of a row differs from theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import opening, patience
from hermes_state.engine import transaction as tx
from hermes_state.search import forgetting, indexing, nul_rows, tables

if TYPE_CHECKING:
    from hermes_state.engine.core import Engine

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]
_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "WITH")
_STEP_ROWS = 256


class Row:
    """A row like ``sqlite3.Row``: by index, slice or name (case-insensitive), ``keys()``, ``dict(row)``."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        self._names = names
        self._values = values

    def keys(self) -> list[str]:
        """The column names, in order."""
        return list(self._names)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for name, value in zip(self._names, self._values, strict=True):
                if name == key:
                    return value
            folded = key.lower()
            for name, value in zip(self._names, self._values, strict=True):
                if name.lower() == folded:
                    return value
            raise IndexError("No item with that key")
        return self._values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            return self._names == other._names and self._values == other._values
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self._names, self._values))

    def __repr__(self) -> str:
        return f"<Row {dict(zip(self._names, self._values, strict=True))!r}>"


class FaceCursor:
    """The result of one statement, already read to its end; shaped like a stdlib cursor."""

    arraysize = 1

    def __init__(self, face: Face) -> None:
        self.connection = face
        self.description: tuple[tuple[Any, ...], ...] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: list[Row] = []
        self._next = 0

    def execute(self, sql: str, parameters: Params = ()) -> FaceCursor:
        """Run one statement; see :meth:`Face.execute`."""
        self.connection._execute_into(self, sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Iterable[Params]) -> FaceCursor:
        """Run one statement for every item of ``parameters``, all or nothing."""
        self.connection._executemany_into(self, sql, parameters)
        return self

    def executescript(self, sql_script: str) -> FaceCursor:
        """Commit what is open, then run every statement of the script."""
        self.connection._script(sql_script)
        return self

    def fetchone(self) -> Row | None:
        """The next row, or None."""
        if self._next >= len(self._rows):
            return None
        self._next += 1
        return self._rows[self._next - 1]

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next ``size`` rows (default ``arraysize``)."""
        end = self._next + (self.arraysize if size is None else size)
        found = self._rows[self._next : end]
        self._next += len(found)
        return found

    def fetchall(self) -> list[Row]:
        """All rows that are left."""
        found = self._rows[self._next :]
        self._next = len(self._rows)
        return found

    def close(self) -> None:
        """Forget the rows."""
        self._rows, self._next = [], 0

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row


class Face:
    """What ``SessionDB._conn`` is; one a engine, the same object for its whole life."""

    row_factory = Row
    isolation_level = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.RLock()
        self._conn: apsw.Connection | None = None
        self._touched: set[int] = set()
        self._in_write = False
        self._lacking = False
        """Whether SQLite has no FTS5, or not its trigram tokenizer."""

    # -- what stdlib connections have --

    def execute(self, sql: str, parameters: Params = (), /) -> FaceCursor:
        """Run one statement to its end and return its rows as a cursor.

        Raises:
            sqlite3.Error: a typed error of ``hermes_state.errors``.
        """
        return FaceCursor(self).execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Params], /) -> FaceCursor:
        """Run one statement for every item of ``parameters``, all or nothing."""
        return FaceCursor(self).executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> FaceCursor:
        """Commit what is open, then run every statement of the script."""
        return FaceCursor(self).executescript(sql_script)

    def cursor(self) -> FaceCursor:
        """A cursor to run statements with."""
        return FaceCursor(self)

    def commit(self) -> None:
        """COMMIT; does nothing outside a transaction."""
        with self._using("commit") as conn:
            if conn.in_transaction and not self._in_write:
                self._settle(conn)
                conn.execute("COMMIT")

    def rollback(self) -> None:
        """ROLLBACK; does nothing outside a transaction."""
        with self._using("rollback") as conn:
            if conn.in_transaction and not self._in_write:
                self._touched.clear()
                conn.execute("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        """True between BEGIN and COMMIT or ROLLBACK."""
        with self._lock:
            return self._conn is not None and self._conn.in_transaction

    @property
    def wrote(self) -> bool:
        """Whether anything was written through this connection since it was opened."""
        return self._conn is not None and self._conn.total_changes() > 0

    @property
    def total_changes(self) -> int:
        """Rows changed through this connection since it was opened."""
        with self._using("total_changes") as conn:
            return conn.total_changes()

    def close(self) -> None:
        """Does nothing: the store closes this connection when it closes itself."""

    def __enter__(self) -> Face:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    # -- for the engine and SessionDB --

    def run(self, fn: Callable[[Face], T], operation: str) -> T:
        """``fn(self)`` inside one BEGIN IMMEDIATE transaction with triggers on."""
        with self._using(operation) as conn:
            if conn.in_transaction:
                return fn(self)
            with self._writing(conn, operation):
                return fn(self)

    def disconnect(self) -> None:
        """Close the APSW connection; the next use opens another."""
        if self._conn is not None:
            self._conn.close(True)
            self._conn = None
            self._touched.clear()

    def reborn(self) -> None:
        """In a forked child: a lock that no vanished thread holds."""
        self._lock = threading.RLock()
        self._in_write = False

    # -- inside --

    @contextmanager
    def _using(self, operation: str) -> Iterator[apsw.Connection]:
        with self._engine.inside(operation), self._lock:
            if self._conn is None:
                self._conn = self._connect()
            conn = self._conn
            if self._lacking and not conn.in_transaction:
                self._set_triggers(conn)
            try:
                yield conn
            except apsw.Error:
                tx.note_failure(conn)
                raise

    def _connect(self) -> apsw.Connection:
        engine = self._engine
        if engine.read_only is not None:
            return opening.connect_reader(engine.place, readonly=True)
        conn = opening.connect_writer(
            engine.path, durability=engine.options.durability, triggers=True, place=engine.place
        )
        conn.set_update_hook(self._updated)
        self._lacking = bool(tables.lacking(conn))
        if not self._lacking:
            nul_rows.guard(conn)
            forgetting.guard(conn)
        return conn

    def _set_triggers(self, conn: apsw.Connection) -> None:
        """Triggers off while the file has a full-text table that this SQLite cannot use: each would fail."""
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(not tables.unusable(conn)))

    def _updated(self, kind: int, database: str, table: str, rowid: int) -> None:
        """Called by SQLite for each row written; remembers the messages to look at again."""
        if table == "messages":
            self._touched.add(rowid)

    @contextmanager
    def _writing(self, conn: apsw.Connection, operation: str) -> Iterator[None]:
        """A write transaction on ``conn``, in line with the engine's other writers."""
        self._engine.upkeep.catch_up()
        given = self._engine.options.patience
        waiting = patience.Patience(patience.OTHER_PATIENCE_S if given is None else given)
        with self._engine.in_line(operation), tx.transaction(conn, waiting, self._engine.path, operation):
            self._in_write = True
            self._touched.clear()
            if self._lacking:
                self._set_triggers(conn)
            try:
                # The triggers take only rows out of the index that stand there in our form.
                while not self._engine.damage.known and not forgetting.complete(conn):
                    if not indexing.index_step(conn, _STEP_ROWS) and not forgetting.step(conn, _STEP_ROWS):
                        break
                yield
                self._settle(conn)
            finally:
                self._in_write = False
                self._touched.clear()
        self._engine.noted()

    def _settle(self, conn: apsw.Connection) -> None:
        """Bring our own index entries of the rows written up to date, in their transaction."""
        ids, self._touched = sorted(self._touched), set()
        if ids:
            indexing.touch(conn, ids)
            self._touched.clear()

    def _execute_into(self, cursor: FaceCursor, sql: str, parameters: Params) -> None:
        with self._using("_conn.execute") as conn:
            word = _first_word(sql)
            if conn.in_transaction:
                if word in ("COMMIT", "END"):
                    self._settle(conn)
                elif word == "ROLLBACK" and "TO" not in sql.upper().split():
                    self._touched.clear()
                self._run(conn, cursor, sql, parameters, word)
                if conn.get_autocommit():
                    self._engine.noted()
            elif word in _WRITES and self._engine.read_only is None:
                with self._writing(conn, "_conn.execute"):
                    self._run(conn, cursor, sql, parameters, word)
            else:
                if tx.unsettled(conn) and self._engine.read_only is None:
                    with self._writing(conn, "_conn.execute"):
                        pass
                self._complete_for(sql)
                self._run(conn, cursor, sql, parameters, word)

    def _complete_for(self, sql: str) -> None:
        """Before ``sql`` reads: everything committed is in the index.

        A statement that does not name a full-text table neither waits long for it nor fails for it, where
        another process has the write lock or the disk is full.
        """
        if "_fts" in sql.lower():
            self._engine.upkeep.catch_up()
        else:
            self._engine.upkeep.catch_up_shortly()

    def _run(
        self, conn: apsw.Connection, cursor: FaceCursor, sql: str, parameters: Params, word: str
    ) -> None:
        before = conn.total_changes()
        names: tuple[str, ...] = ()

        def begun(statement: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
            """Called before the first step, the only moment at which an empty result has columns."""
            nonlocal names
            names = tuple(column[0] for column in statement.get_description())
            return True

        found = conn.cursor()
        found.exec_trace = begun
        found.execute(sql, _bindable(parameters))
        cursor._rows = [Row(names, values) for values in found]
        cursor._next = 0
        cursor.description = tuple((name, None, None, None, None, None, None) for name in names) or None
        if word in ("INSERT", "UPDATE", "DELETE", "REPLACE"):
            cursor.rowcount = conn.changes() if conn.total_changes() != before else 0
        if word in ("INSERT", "REPLACE"):
            cursor.lastrowid = conn.last_insert_rowid()

    def _executemany_into(self, cursor: FaceCursor, sql: str, parameters: Iterable[Params]) -> None:
        with self._using("_conn.executemany") as conn:
            total = 0

            def every() -> None:
                nonlocal total
                for item in parameters:
                    self._run(conn, cursor, sql, item, _first_word(sql))
                    total += max(0, cursor.rowcount)

            if conn.in_transaction:
                every()
            else:
                with self._writing(conn, "_conn.executemany"):
                    every()
            cursor._rows, cursor.rowcount = [], total

    def _script(self, sql: str) -> None:
        self.commit()
        with self._using("_conn.executescript") as conn:
            self._engine.upkeep.catch_up()
            for _ in conn.execute(sql):
                pass
            if self._touched:
                if conn.in_transaction:
                    return
                ids = sorted(self._touched)
                with self._writing(conn, "_conn.executescript"):
                    self._touched.update(ids)


def _first_word(sql: str) -> str:
    """The statement's first word in upper case, after white space and comments."""
    text = sql.lstrip()
    while text.startswith(("--", "/*")):
        end = text.find("\n") if text.startswith("--") else text.find("*/")
        if end < 0:
            return ""
        text = text[end + (1 if text.startswith("--") else 2) :].lstrip()
    return text.split(None, 1)[0].rstrip(";(").upper() if text else ""


def _bindable(parameters: Params) -> Any:
    if isinstance(parameters, Mapping):
        return dict(parameters)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Iterable):
        raise errors.make(errors.StoreProgrammingError, "parameters are of unsupported type")
    return tuple(parameters)
