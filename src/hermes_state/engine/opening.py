"""Paths, permissions, the anchor, and APSW connections with all their settings."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any, NoReturn

import apsw

from hermes_state import errors
from hermes_state.engine import links, patience, protection, wal
from hermes_state.engine.fetch import ReadConnection
from hermes_state.engine.identity import Identity, Place, identity
from hermes_state.search import at_once, tables
from hermes_state.store import message_writes

log = logging.getLogger("hermes_state")

FILE_MODE = 0o600
FOLDER_MODE = 0o700
WAL_KEEP_BYTES = 16 * 1024 * 1024
"""What is left of a WAL that had grown, once it starts anew (journal_size_limit)."""

_IMMUTABLE = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI

_CONNECT = sqlite3.connect
"""The stdlib's own function, which tests of other programs replace to see what happens with the anchor."""
_FIRST_BUSY_MS = 100
"""How long the connection that comes before the anchor waits for a file that is locked."""

_parked: dict[tuple[int, Path, Identity | None], apsw.Connection] = {}
_MOST_PARKED = 32

_vfs: str | None = None
"""The VFS of APSW's connections; None for SQLite's own. Tests that make calls fail set another."""

SYNCHRONOUS = {"full": "FULL", "normal": "NORMAL"}


_ANCHOR_ERRORS: dict[str, type[errors.HermesStateError]] = {
    "file is not a database": errors.NotADatabaseError,
    "database disk image is malformed": errors.StoreCorruptError,
    "unable to open database file": errors.StoreCannotOpenError,
    "attempt to write a readonly database": errors.StoreReadOnlyError,
}
"""What the stdlib's SQLite says of a file, and our error for it. A refusal of WAL is raised as it comes."""


def make_private(path: Path) -> None:
    """Make the folder (0700) and the empty file (0600) where they are missing, and close up a looser file.

    The file is never opened when it exists: closing such a descriptor would
    drop every POSIX lock that this process holds on it.

    Raises:
        errors.StoreCannotOpenError: the folder or the file cannot be made, or is not what it must be.
    """
    links.refuse_odd(path)
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
        except FileExistsError:
            tighten(path)
    except (FileExistsError, NotADirectoryError) as error:
        words = f"unable to open database file: {path.parent} is no folder, or is not in one"
        raise errors.make(errors.StoreCannotOpenError, words, path, "open") from error
    except OSError as error:
        words = f"unable to open database file: {error.strerror}"
        raise errors.make(errors.StoreCannotOpenError, words, path, "open") from error


def tighten(path: Path) -> None:
    """Take the rights of group and others from the file and its sidecars, where this user owns them."""
    if os.name != "posix":
        return
    for end in ("", "-wal", "-shm"):
        name = f"{path}{end}"
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid in (os.geteuid(), 0):
            try:
                os.chmod(name, stat.S_IMODE(found.st_mode) & 0o700)  # noqa: PTH101 - each open comes by here
            except OSError:
                # Not ours to change (another owner, a read-only file system): opening it may still work.
                return


def _frozen(path: Path) -> bool:
    """True for a closed database on a read-only file system.

    SQLite cannot make the sidecars of WAL there and refuses even to read, unless it is told that the
    file never changes (https://www.sqlite.org/wal.html, "Read-Only Databases").
    """
    try:
        flags = os.statvfs(path).f_flag
    except (AttributeError, OSError):  # not POSIX, or no such file
        return False
    return bool(flags & os.ST_RDONLY) and not Path(f"{path}-wal").exists()


def _name(path: Path) -> str:
    """What SQLite is given to open: an absolute URI for a frozen file, else the path."""
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1" if _frozen(path) else str(path)


def _stdlib() -> Any:
    """The module that ``hermes_state.sqlite3`` is now; a program may have put another in its place."""
    return getattr(sys.modules.get("hermes_state"), "sqlite3", sqlite3)


def connect_first(path: Path, *, durability: str) -> tuple[apsw.Connection | None, bool]:
    """A connection that comes before any anchor, and whether it is the writer's and needs none.

    It needs none where the file is in WAL mode already and the locks of this connection are seen to be
    those of open file descriptions. Everything else is as it was without this: the anchor comes, finds out
    what is the matter or sets WAL. A connection to a file in another mode has run nothing, as its locks would
    be those of the process, and is not closed: a stdlib connection of this process may have some.
    """
    patched = _stdlib() is not sqlite3 or sqlite3.connect is not _CONNECT
    if patched or not protection.watching() or _frozen(path):
        return None, False
    conn = _parked.pop(_parking(path), None) or connect(path)
    if not protection.says_wal(path):
        return conn, False
    try:
        conn.set_busy_timeout(_FIRST_BUSY_MS)
        connect_writer(path, durability=durability, triggers=False, opened=conn)
        mode = conn.execute("PRAGMA journal_mode").fetchone()
        conn.set_busy_timeout(patience.BUSY_MS)
    except (apsw.Error, errors.HermesStateError, UnicodeDecodeError):
        # The anchor says why, in the words and after the patience that its errors have.
        park(conn, path)
        return None, False
    return conn, mode == ("wal",) and protection.holds(path)


def park(conn: apsw.Connection, path: Path) -> None:
    """Keep the connection of an open that came to nothing, for the next try, instead of closing it."""
    _parked[_parking(path)] = conn
    if len(_parked) > _MOST_PARKED:
        del _parked[next(iter(_parked))]


def _parking(path: Path) -> tuple[int, Path, Identity | None]:
    return os.getpid(), path, identity(path)


def close_last(conn: apsw.Connection, path: Path) -> None:
    """Close the last connection to a file that has no anchor: SQLite copies the WAL back and removes it."""
    try:
        holds_frames = os.stat(f"{path}-wal").st_size > 0  # noqa: PTH116 - each close comes by here
    except OSError:
        holds_frames = False
    try:
        if holds_frames:
            # The close itself would do it under the GIL.
            conn.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except apsw.Error as error:
        # Nothing is lost: what is committed stays in the WAL, for the next open.
        log.info("%s: the WAL is left as it is: %s", path, error)
    conn.close(True)


def open_anchor(path: Path) -> tuple[Any, str]:
    """A stdlib connection that has read once and stays open, and the journal mode it set.

    While it is open, the stdlib's copy of SQLite in this process never closes
    a descriptor of the file, so APSW's POSIX locks survive other stdlib
    connections that come and go. It is opened through
    ``hermes_state.sqlite3`` so that a program that replaces that name sees it.
    """
    stdlib = _stdlib()
    try:
        name = _name(path)
        anchor = stdlib.connect(
            name, timeout=1.0, isolation_level=None, check_same_thread=False, uri=name != str(path)
        )
        try:
            mode = "wal" if name != str(path) else _journal_mode(anchor, path)
            # Any read takes the SHARED lock that WAL mode keeps; this one need not parse the schema.
            anchor.execute("PRAGMA user_version").fetchone()
        except BaseException:
            anchor.close()
            raise
    except UnicodeDecodeError as error:
        raise errors.translate(error, path, "open") from error
    except MemoryError as error:
        # What older SQLite versions say of some damaged schemas.
        words = "database disk image is malformed: SQLite found no memory for its schema"
        raise errors.make(errors.StoreCorruptError, words, path, "open") from error
    except sqlite3.DatabaseError as error:
        kind = next((kind for words, kind in _ANCHOR_ERRORS.items() if words in str(error)), None)
        if kind is None:
            raise
        raise errors.make(kind, str(error), path, "open") from error
    return anchor, mode


def _journal_mode(anchor: Any, path: Path) -> str:
    """WAL or DELETE as it could be set; what the file has where it cannot be written."""
    try:
        return wal.apply_wal_with_fallback(anchor, db_label=path.name)
    except sqlite3.OperationalError as error:
        if "readonly database" not in str(error):
            raise
        return str(anchor.execute("PRAGMA journal_mode").fetchone()[0]).lower()


def connect(
    path: Path,
    *,
    readonly: bool = False,
    kind: type[apsw.Connection] = apsw.Connection,
    place: Place | None = None,
) -> apsw.Connection:
    """An APSW connection with the settings that all roles share; to no other file than that of ``place``."""
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE
    conn: apsw.Connection | None = None
    try:
        name = _name(path)
        conn = kind(name, flags=flags if name == str(path) else _IMMUTABLE, vfs=_vfs)
        if place is not None:
            place.check("open")
        conn.set_busy_timeout(patience.BUSY_MS)
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
        conn.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        # Whatever a file's schema says: nobody writes the schema table or FTS5's own tables by SQL.
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        # The anchor closes last, or close_last; APSW's close would hold the GIL through the checkpoint.
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    except BaseException as error:  # noqa: BLE001 - raised again
        _give_up(conn, error, path, "open")
    return conn


def _give_up(conn: apsw.Connection | None, error: BaseException, path: Path, operation: str) -> NoReturn:
    """Close a connection that was not made ready, also where an interrupt was why, and raise the error."""
    if conn is not None:
        conn.close(True)
    typed = errors.translate(error, path, operation)
    if typed is error:
        raise error
    raise typed from error


def connect_writer(
    path: Path,
    *,
    durability: str,
    triggers: bool,
    opened: apsw.Connection | None = None,
    place: Place | None = None,
) -> apsw.Connection:
    """A connection for writing, ``opened`` where it is: no autocheckpoint, and triggers as asked."""
    conn = opened or connect(path, place=place)
    try:
        conn.wal_autocheckpoint(0)
        conn.execute(f"PRAGMA journal_size_limit={WAL_KEEP_BYTES}")
        conn.execute(f"PRAGMA synchronous={SYNCHRONOUS[durability]}")
        conn.execute("PRAGMA cache_size=-16384")
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(triggers))
        # Other programs' statements come through the trigger connection, quoted as the stdlib allows.
        conn.config(apsw.SQLITE_DBCONFIG_DQS_DML, int(triggers))
        # They may do what they may do on a connection of the stdlib.
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, int(not triggers))
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, int(triggers))
        if place is not None:
            place.check_opened(conn)
    except BaseException as error:  # noqa: BLE001 - raised again
        _give_up(None if opened else conn, error, path, "open")
    return conn


def connect_appender(place: Place, *, durability: str, inline: bool = False) -> apsw.Connection:
    """A connection that only appends messages, in autocommit; the caller waits for locks itself.

    ``inline``: each INSERT brings its row into the index, too.
    """
    conn = connect_writer(place.path, durability=durability, triggers=False, place=place)
    try:
        message_writes.prepare_appender(conn)
        if inline:
            at_once.prepare_rows(conn)
        else:
            conn.execute("PRAGMA cache_size=-4096")
        conn.set_busy_timeout(0)
    except BaseException as error:  # noqa: BLE001 - raised again
        _give_up(conn, error, place.path, "open")
    return conn


def connect_reader(place: Place, *, readonly: bool) -> apsw.Connection:
    """A connection that only reads."""
    conn = connect(place.path, readonly=readonly, kind=ReadConnection, place=place)
    try:
        conn.execute("PRAGMA cache_size=-8192")
        conn.execute("PRAGMA temp_store=MEMORY")
        tables.prepare_connection(conn)
        conn.execute("PRAGMA query_only=ON")
        place.check_opened(conn)
    except BaseException as error:  # noqa: BLE001 - raised again
        _give_up(conn, error, place.path, "open a reader")
    return conn
