"""Copying a live database into one whole file, and putting such a file in a database's place.

By SQLite's online backup API (https://www.sqlite.org/backup.html). A copy is made beside its place,
verified, synced to the disk and only then given its name, so that a name never stands for half a copy.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes_state import errors

PAGES_A_STEP = 2_000
"""Pages copied between two calls of ``progress``: 8 MB of the usual size."""
FILE_MODE = 0o600
SIDECARS = ("-wal", "-shm", "-journal")
KEPT = ".before-restore"
SPARE_BYTES = 16 * 1024 * 1024

Progress = Callable[[int, int], object] | None
Counts = dict[str, int]
Faults = Callable[[apsw.Connection], list[str]]
"""Says what is damaged in the tables of a database, nothing where they are sound."""


_COUNT = {"sessions": "SELECT count(*) FROM sessions", "messages": "SELECT count(*) FROM messages"}
_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
_OCCUPIED = "{} exists already; give another name (a backup replaces it with overwrite=True)"


def counts(conn: apsw.Connection) -> Counts:
    """Rows of sessions and messages; a table that is not there counts 0."""
    out: Counts = {}
    for table, sql in _COUNT.items():
        row: Any = conn.execute(sql).fetchone() if conn.execute(_THERE, (table,)).fetchone() else (0,)
        out[table] = int(row[0])
    return out


def copy(
    source: apsw.Connection, target: Path, faults: Faults, *, overwrite: bool, progress: Progress = None
) -> Counts:
    """Copy what ``source`` sees in its open read transaction to the file ``target``; its row counts.

    The copy is one file without sidecars (journal mode DELETE), readable by its owner only.

    Args:
        overwrite: replace a regular file of that name; never a symbolic link, a folder, or a file
            beside which ``-wal``, ``-shm`` or ``-journal`` stand.
        progress: called with (pages done, pages in all).

    Raises:
        FileExistsError: the target is there and must not be replaced.
        errors.StoreCorruptError: the copy is not sound.
        apsw.Error: reading or writing failed. No file is left in any of these cases.
    """
    refuse_target(target, overwrite=overwrite)
    expected = counts(source)
    with unfinished(target) as temporary:
        copy_pages(source, temporary, progress)
        verify(temporary, faults, expected)
        sync(temporary)
        put(temporary, target, overwrite=overwrite)
    return expected


def refuse_target(target: Path, *, overwrite: bool) -> None:
    """Raise FileExistsError where a copy must not be put; see ``copy``."""
    for name in (target, *sidecars(target)):
        try:
            found = name.lstat()
        except FileNotFoundError:
            continue
        if name != target:
            raise FileExistsError(f"{name} is there: {target} seems to be a database in use")
        if not overwrite:
            raise FileExistsError(_OCCUPIED.format(target))
        if not stat.S_ISREG(found.st_mode):
            raise FileExistsError(f"{target} is no regular file, and is not replaced")


def sidecars(path: Path) -> list[Path]:
    """The files that SQLite keeps beside ``path``."""
    return [Path(f"{path}{end}") for end in SIDECARS]


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """An empty private file beside ``target``, removed with its sidecars at the end unless it was renamed."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.unfinished")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target} cannot be made: there is no folder {target.parent}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    try:
        yield temporary
    finally:
        for name in (temporary, *sidecars(temporary)):
            name.unlink(missing_ok=True)


def copy_pages(source: apsw.Connection, temporary: Path, progress: Progress = None) -> None:
    """Copy what ``source`` sees to the empty file ``temporary``, in steps."""
    conn = apsw.Connection(str(temporary), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with conn.backup("main", source, "main") as running:
            while not running.done:
                running.step(PAGES_A_STEP)
                if progress is not None:
                    progress(running.page_count - running.remaining, running.page_count)
        # The copy's header says WAL, as the source's does; without it the copy is one file.
        conn.execute("PRAGMA journal_mode=DELETE")
    finally:
        conn.close()


def verify(path: Path, faults: Faults, expected: Counts | None = None) -> Counts:
    """Check that ``path`` is a database whose tables are sound, with ``expected`` rows; the rows it has.

    Raises:
        errors.StoreCorruptError: it is not.
        errors.NotADatabaseError: it is no database.
    """
    try:
        conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            said = faults(conn)
            found = counts(conn)
        finally:
            conn.close()
    except apsw.Error as error:
        raise errors.translate(error, path, "verify a copy") from error
    if said:
        raise errors.make(errors.StoreCorruptError, said[0], path, "verify a copy")
    if expected is not None and found != expected:
        raise errors.make(errors.StoreCorruptError, f"{found} rows, not {expected}", path, "verify a copy")
    return found


def sync(path: Path) -> None:
    """Wait until the file is on the disk. No SQLite connection of this process may be open on it."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in the folder of ``path`` are on the disk, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Give the finished file its name, at once; without ``overwrite`` never in the place of another."""
    if overwrite:
        temporary.replace(target)
    else:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise FileExistsError(_OCCUPIED.format(target)) from None
        except OSError:
            # No hard links on this file system.
            refuse_target(target, overwrite=False)
            temporary.rename(target)
    sync_folder(target)


def set_aside(path: Path, *, with_sidecars: bool) -> Path:
    """Give the file ``path`` a second name beside it, and on request its sidecars; the second name.

    The file keeps its first name, so that a crash before ``put`` leaves it where it was.
    """
    kept = _free_name(path)
    for name, end in zip(sidecars(path), SIDECARS, strict=True):
        if with_sidecars and os.path.lexists(name):
            name.rename(f"{kept}{end}")
    try:
        os.link(path, kept)
    except OSError:
        # No hard links on this file system: the name is taken away, for the moment until ``put``.
        path.rename(kept)
    sync_folder(path)
    return kept


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        name = Path(f"{path}{KEPT}{'' if number == 1 else f'-{number}'}")
        if not any(os.path.lexists(other) for other in (name, *sidecars(name))):
            return name
        number += 1


def room_for(path: Path, size: int) -> None:
    """Raise ``StoreFullError`` where ``size`` bytes do not fit beside ``path``, with something to spare."""
    free = shutil.disk_usage(path.parent).free
    if free < size + SPARE_BYTES:
        words = f"database or disk is full: {size + SPARE_BYTES} bytes are needed and {free} are free"
        raise errors.make(errors.StoreFullError, words, path, "copy")
