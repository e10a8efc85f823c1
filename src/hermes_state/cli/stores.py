"""Which file a command works on, and opening it without changing what it did not come to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import click

from hermes_state import SCHEMA_VERSION, SessionDB, errors
from hermes_state.cli.failures import Refused
from hermes_state.cli.text import clean
from hermes_state.engine import opening
from hermes_state.engine.paths import database_path
from hermes_state.schema import migrate
from hermes_state.store import figures

MOST_NAMED = 8
"""Ids that a refusal names."""


@dataclass(frozen=True)
class Stamp:
    """What a file is.

    Attributes:
        version: its schema version; 0 where none is written.
        sessions: it has the tables of a session store.
        upgrading: an upgrade to the present version has begun, and its re-indexing goes on.
        complete: nothing has to be written before the store can be used.
    """

    version: int
    sessions: bool
    upgrading: bool
    complete: bool

    @property
    def older(self) -> bool:
        """It must be upgraded before it can be used."""
        return self.version < SCHEMA_VERSION and not self.upgrading


def location(given: Path | None) -> Path:
    """The store's file: ``--db``, or where the programs find it."""
    return database_path(given)


def existing(given: Path | None) -> Path:
    """The store's file, which must be there.

    Raises:
        Refused: it is not; commands that look never make a store.
    """
    path = location(given)
    if not path.exists():
        raise Refused(f"there is no store at {path} (--db PATH or HERMES_HOME names another)")
    return path


@contextmanager
def looking(path: Path) -> Iterator[apsw.Connection]:
    """A connection that cannot write, without the store's engine: the file stays as it is."""
    conn = opening.connect(path, readonly=True)
    try:
        yield conn
    except (apsw.Error, UnicodeDecodeError) as error:
        raise errors.translate(error, path, "reading") from error
    finally:
        conn.close()


def stamp(path: Path) -> Stamp:
    """Read what the file is; it is not changed.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with looking(path) as conn:
        found = migrate.inspect(conn)
    sessions = {"sessions", "messages"} <= found.objects.keys()
    return Stamp(found.version, sessions, found.upgrading and found.watermark, found.current)


@contextmanager
def opened(given: Path | None, **options: Any) -> Iterator[SessionDB]:
    """The store, which must be there and of the present version.

    Raises:
        Refused: it is not there, is of an older version, or is no session store.
    """
    path = existing(given)
    refuse_unfit(path)
    with SessionDB(path, **options) as db:
        yield db


def refuse_unfit(path: Path) -> None:
    """Refuse a file that opening it would upgrade, or turn into a store."""
    found = stamp(path)
    if not found.sessions:
        raise Refused(f"{path} is a database, but no session store")
    if found.older:
        raise Refused(
            f"{path} has schema version {found.version}; 'hermes-state upgrade' brings it to {SCHEMA_VERSION}"
        )


def session_id(db: SessionDB, given: str) -> str:
    """The session that the user named: by id, by the beginning of an id, or by title.

    Raises:
        Refused: there is none, or several ids begin so.
    """
    found = db.resolve_session_id(given) or db.resolve_session_by_title(given)
    if found is not None:
        return found
    several = db._read(lambda conn: figures.ids_with_prefix(conn, given, MOST_NAMED + 1), "find a session")
    if given and several:
        named = ", ".join(clean(name, 60) for name in several[:MOST_NAMED])
        more = ", ..." if len(several) > MOST_NAMED else ""
        raise Refused(f"several sessions begin with {clean(given, 60)!r}: {named}{more}")
    raise Refused(f"there is no session {clean(given, 60)!r}, neither by id nor by title")


def complete_session(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Ids for a shell's completion; none where the store cannot be read."""
    try:
        path = location(ctx.params.get("db") or ctx.find_root().params.get("db"))
        if not path.exists():
            return []
        with looking(path) as conn:
            return figures.ids_with_prefix(conn, incomplete, 50)
    except (errors.HermesStateError, OSError):
        # A shell that completes has no place for an error; the command itself will tell it.
        return []
