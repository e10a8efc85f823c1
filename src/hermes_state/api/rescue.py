"""Calls on files that no ``SessionDB`` has open: check, salvage, restore."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import apsw

from hermes_state import errors
from hermes_state.api.checking import CheckReport, Examination, Progress, empty_report
from hermes_state.api.health import table_faults
from hermes_state.engine import opening, registry
from hermes_state.schema import columns, ddl, migrate
from hermes_state.search import indexing
from hermes_state.store import health, telegram_schema
from hermes_state.transfer import backup
from hermes_state.transfer import salvage as reading

T = TypeVar("T")

INDEX_ROWS = 512
READING, WHOLE = 200, 1_000
"""Of a salvage's work, the part that is reading, and all of it."""
PENDING_BYTE = 0x40000000
LOCK_BYTES = 512
"""Where SQLite locks the main file (https://www.sqlite.org/fileformat2.html, section 1.2)."""


class SalvageReport(TypedDict):
    """What ``salvage`` could read.

    ``tables``: for each table ``read``, ``found_on_pages``, ``lost_rowids``, ``lost_ranges``, ``complete``
    and ``error``. ``invented_sessions``: rows made for sessions whose own row was lost, so that their
    messages have one. ``complete``: nothing was unreadable.
    """

    path: str
    into: str
    tables: dict[str, dict[str, Any]]
    invented_sessions: int
    sessions: int
    messages: int
    complete: bool


# -- check --


def check_file(path: str | os.PathLike[str], progress: Progress = None, *, deep: bool = True) -> CheckReport:
    """Check a file that ``SessionDB`` may not be able to open; it is only read.

    Args:
        path: the file.
        progress: called with (pieces done, pieces in all).
        deep: as for ``SessionDB.check``.

    Returns:
        A ``CheckReport``, whose ``verdict`` may also be "missing", "empty" (0 bytes), "zeroed" (only
        zeros), "not a database" or "unreadable" (the header or schema is damaged).
    """
    place = Path(path)
    if not place.exists():
        return empty_report(place, "missing")
    if not place.is_file():
        words = f"unable to open database file: {place} is no regular file"
        raise errors.make(errors.StoreCannotOpenError, words, place, "check")
    if place.stat().st_size == 0:
        return empty_report(place, "empty")
    try:
        conn = opening.connect(place, readonly=True)
    except errors.StoreCorruptError:
        return empty_report(place, _unopened(place))
    try:
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
        report = Examination(_stepping(conn, place), place, progress).run(deep=deep)
    except (apsw.NotADBError, errors.NotADatabaseError):
        return empty_report(place, _unopened(place))
    except (apsw.CorruptError, apsw.SQLError, errors.StoreCorruptError, UnicodeDecodeError) as error:
        # Without a readable schema there are no tables to tell apart.
        report = empty_report(place, "unreadable")
        report["problems"] = [
            {"kind": "table_damage", "where": "sqlite_schema", "count": 1, "sample": [], "detail": str(error)}
        ]
    except apsw.Error as error:
        raise errors.translate(error, place, "check") from error
    finally:
        conn.close()
    return report


def _stepping(conn: apsw.Connection, path: Path) -> Callable[..., Any]:
    def step(fn: Callable[..., T], /, *arguments: Any) -> T:
        conn.execute("BEGIN")
        try:
            return fn(conn, *arguments)
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")

    return step


def _unopened(path: Path) -> str:
    """What a file is that SQLite does not take for a database: all zeros, or something else."""
    file = apsw.VFSFile(
        "", os.fspath(path.absolute()), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    )
    try:
        # Read through SQLite's own file object: an ordinary open and close would drop this process's locks.
        size, offset = file.xFileSize(), 0
        while offset < size:
            part = min(1 << 20, size - offset)
            if any(file.xRead(part, offset)):
                return "not a database"
            offset += part
    finally:
        file.xClose()
    return "zeroed"


# -- salvage --


def salvage(
    path: str | os.PathLike[str], into: str | os.PathLike[str], progress: Progress = None
) -> SalvageReport:
    """Read every readable row of a damaged file into the new file ``into``, a complete store.

    The damaged file is not written, locked or deleted. Where a WAL belongs to it or its header is
    damaged, a working copy beside ``into`` is read and removed afterwards. Close the store in every
    process first: a file that is written meanwhile cannot be copied as of one moment.

    Args:
        path: the damaged file; no handle of this process may be open on it.
        into: the file to make; it must not exist.
        progress: called with (done, in all) in thousandths of the work: reading counts for a fifth of it,
            making the indexes for the rest.

    Raises:
        FileExistsError: ``into`` is there.
        FileNotFoundError: ``path`` is not.
        errors.StoreBusyError: this process has the damaged file open.
        errors.StoreCorruptError: not even the list of tables, nor any page, could be read.
    """
    source, target = Path(path), Path(into)
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist")
    _refuse_open(source, "salvage")
    backup.refuse_target(target, overwrite=False)
    with reading.readable(source, target) as damaged, backup.unfinished(target) as temporary:
        report = _salvage_into(source, damaged, temporary, target, progress)
        backup.sync(temporary)
        backup.put(temporary, target, overwrite=False)
    return report


def _salvage_into(
    source: Path, damaged: Path, temporary: Path, target: Path, progress: Progress
) -> SalvageReport:
    conn = apsw.Connection(str(temporary), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        conn.execute("PRAGMA synchronous=OFF")  # the whole file is synced at the end
        conn.execute("PRAGMA journal_mode=MEMORY")
        conn.execute("PRAGMA trusted_schema=OFF")
        conn.execute(ddl.TABLES_SQL)
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        unreadable = reading.attach(conn, damaged)
        tables = _copy_tables(conn, damaged, unreadable, progress)
        if not any(t.read or t.found for t in tables.values()) and any(t.error for t in tables.values()):
            words = next(t.error for t in tables.values() if t.error)
            raise errors.make(errors.StoreCorruptError, f"nothing could be read: {words}", source, "salvage")
        if unreadable is None:
            conn.execute("DETACH damaged")
        invented = _complete(conn, progress)
        found = backup.counts(conn)
    except apsw.Error as error:
        raise errors.translate(error, target, "salvage") from error
    finally:
        conn.close()
    return SalvageReport(
        path=str(source), into=str(target), tables={name: t.report() for name, t in tables.items()},
        invented_sessions=invented, sessions=found["sessions"], messages=found["messages"],
        complete=all(t.report()["complete"] for t in tables.values()) and not invented,
    )  # fmt: skip


def _copy_tables(
    conn: apsw.Connection, damaged: Path, unreadable: str | None, progress: Progress
) -> dict[str, reading.Table]:
    """Copy what is readable, table by table; ``unreadable``: why no table can be, or None."""
    wanted = {
        "sessions": "1",
        "messages": "1",
        "state_meta": f"key NOT LIKE '{reading.KEEP_OUT}%'",
        "telegram_dm_topic_mode": "1",
        "telegram_dm_topic_bindings": "1",
    }
    out: dict[str, reading.Table] = {}
    for done, (name, where) in enumerate(wanted.items(), 1):
        if name.startswith("telegram"):
            if not _has(conn, name):
                continue
            telegram_schema.apply(conn)
        if unreadable is None:
            out[name] = reading.table(conn, name, where)
        else:
            out[name] = reading.Table(name, error=unreadable)
        if progress is not None:
            progress(READING * done // len(wanted), WHOLE)
    rows = {name: out[name] for name in ("sessions", "messages")}
    if any(not table.report()["complete"] for table in rows.values()):
        default = {name: list(columns.EXPECTED[name]) for name in rows}
        reading.from_pages(conn, damaged, rows, default)
    return out


def _has(conn: apsw.Connection, table: str) -> bool:
    try:
        row = conn.execute("SELECT 1 FROM damaged.sqlite_master WHERE name = ?", (table,)).fetchone()
    except (apsw.Error, UnicodeDecodeError):
        return False
    return row is not None


def _complete(conn: apsw.Connection, progress: Progress) -> int:
    """Make a whole store of the rows: missing sessions, indexes, counters; how many sessions were made."""
    done, total = 0, max(1, health.message_total(conn))
    conn.execute("BEGIN")
    conn.execute(_INVENT)
    invented = conn.changes()
    conn.execute(_NO_PARENTS)
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (telegram_schema.BINDINGS,)).fetchone():
        conn.execute(_NO_BINDINGS)
    migrate.upgrade(conn)
    after = -(2**63)
    while rowids := health.session_page(conn, after):
        health.set_counters(conn, health.wrong_sessions(conn, rowids))
        after = rowids[-1]
    conn.execute("COMMIT")
    while True:
        conn.execute("BEGIN")
        treated = indexing.index_step(conn, INDEX_ROWS)
        if not treated:
            migrate.finish(conn)
        conn.execute("COMMIT")
        done = min(total, done + treated) if treated else total
        if progress is not None:
            progress(READING + (WHOLE - READING) * done // total, WHOLE)
        if not treated:
            return invented


_INVENT = """\
INSERT INTO sessions(id, source, started_at)
SELECT m.session_id, 'salvaged', min(m.timestamp) FROM messages m
WHERE m.session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL) GROUP BY m.session_id
"""
_NO_PARENTS = """\
UPDATE sessions SET parent_session_id = NULL
WHERE parent_session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL)
"""
_NO_BINDINGS = """\
DELETE FROM telegram_dm_topic_bindings WHERE session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL)
"""


# -- restore --


def restore(
    backup_path: str | os.PathLike[str], db_path: str | os.PathLike[str], progress: Progress = None
) -> dict[str, Any]:
    """Put a backup in the place of a store. The file that was there is kept as ``<name>.before-restore``.

    The backup is copied beside the store, verified and synced first; then the names change at once. The
    backup itself stays as it is.

    Args:
        backup_path: a file that ``SessionDB.backup`` made, or any sound store that is not in use.
        db_path: the store; it need not exist.
        progress: called with (pages copied, pages in all).

    Returns:
        ``{"path", "kept", "sessions", "messages"}``; ``kept`` is None where no file was there.

    Raises:
        errors.StoreBusyError: this or another process has the store open; nothing was changed.
        errors.StoreCorruptError: the backup is not sound; nothing was changed.
        FileNotFoundError: there is no backup.
    """
    source, place = Path(backup_path), Path(os.path.realpath(db_path))
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist")
    if place.exists() and source.samefile(place):
        raise ValueError(f"{source} is the store itself")
    _refuse_open(place, "restore")
    place.parent.mkdir(mode=opening.FOLDER_MODE, parents=True, exist_ok=True)
    backup.room_for(place, source.stat().st_size)
    with backup.unfinished(place) as temporary:
        found = _copy_backup(source, temporary, progress)
        kept = _replace(place, temporary)
    return {"path": str(place), "kept": None if kept is None else str(kept), **found}


def _copy_backup(source: Path, temporary: Path, progress: Progress) -> dict[str, int]:
    conn = opening.connect(source, readonly=True)
    try:
        conn.execute("BEGIN")
        expected = backup.counts(conn)
        backup.copy_pages(conn, temporary, progress)
    except apsw.Error as error:
        raise errors.translate(error, source, "restore") from error
    finally:
        conn.close()
    backup.verify(temporary, table_faults, expected)
    backup.sync(temporary)
    return expected


def _replace(place: Path, temporary: Path) -> Path | None:
    """Change the names, while nobody else has the store open; where its old file is kept."""
    if not os.path.lexists(place):
        if leftover := [name for name in backup.sidecars(place) if os.path.lexists(name)]:
            # They belong to a file that is gone; beside another they would be read as its own.
            raise FileExistsError(f"{leftover[0]} is there without its database: move it away first")
        backup.put(temporary, place, overwrite=False)
        return None
    held = _hold(place)
    try:
        _refuse_open(place, "restore")
        kept = backup.set_aside(place, with_sidecars=held is None)
        backup.put(temporary, place, overwrite=True)
    finally:
        if held is not None:
            held.close()
    return kept


def _hold(place: Path) -> apsw.Connection | None:
    """The store, locked against every other process and with its WAL brought in; None where it is damaged."""
    flags = apsw.SQLITE_OPEN_READWRITE if _opens(place) else apsw.SQLITE_OPEN_READONLY
    conn = apsw.Connection(str(place), flags=flags)
    try:
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
        # Leaving WAL needs the file for itself, brings the WAL in, and removes the sidecars.
        conn.execute("PRAGMA journal_mode=DELETE")
        conn.execute("BEGIN EXCLUSIVE")
    except (apsw.CorruptError, apsw.NotADBError):
        conn.close()
        if _locked(place):
            raise _in_use(place) from None
        return None
    except (apsw.BusyError, apsw.LockedError):
        conn.close()
        raise _in_use(place) from None
    except apsw.Error as error:
        conn.close()
        raise errors.translate(error, place, "restore") from error
    return conn


def _opens(place: Path) -> bool:
    """Whether SQLite takes the file for a database; one that it does not may lose its WAL by a writer."""
    conn = apsw.Connection(str(place), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (apsw.CorruptError, apsw.NotADBError):
        return False
    finally:
        conn.close()
    return True


def _locked(place: Path) -> bool:
    """Whether another process holds any of SQLite's locks on the main file; told on Linux only."""
    if sys.platform != "linux":
        return False
    import fcntl

    descriptor = os.open(place, os.O_RDWR)
    try:
        # struct flock of a 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, PENDING_BYTE, LOCK_BYTES, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


def _refuse_open(path: Path, operation: str) -> None:
    if registry.is_open(path):
        raise _in_use(path, operation)


def _in_use(path: Path, operation: str = "restore") -> errors.HermesStateError:
    return errors.make(
        errors.StoreBusyError, "database is locked: it is in use", path, operation,
        waited=0.0, advice="close it first, in every program that has it open",
    )  # fmt: skip
