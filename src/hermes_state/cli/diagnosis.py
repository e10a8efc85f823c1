"""What ``doctor`` looks at: each question gives findings, none changes anything."""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import apsw

import hermes_state
from hermes_state import SCHEMA_VERSION
from hermes_state.cli import stores
from hermes_state.cli.text import size_text
from hermes_state.engine import protection
from hermes_state.engine.paths import hermes_home
from hermes_state.search import indexing
from hermes_state.store import figures
from hermes_state.store.rows import scalar

State = Literal["ok", "note", "warning", "problem"]
OLDEST_TRIGRAM = (3, 34, 0)
"""The first SQLite with the trigram tokenizer (https://www.sqlite.org/changes.html)."""

MUCH_WAL_BYTES = 64_000_000
"""A WAL of this size has not been started anew for long: about 16,000 pages."""


@dataclass(frozen=True)
class Finding:
    """One answer.

    Attributes:
        about: what was looked at.
        state: "ok", "note" (worth knowing), "warning" (works, but not as well or as safely as it
            could), "problem" (does not work).
        says: what is there.
        do: what to do; empty where there is nothing.
    """

    about: str
    state: State
    says: str
    do: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain values."""
        return asdict(self)


def installation() -> Iterator[Finding]:
    """Versions, kernels, full-text search, and the protection of locks."""
    yield Finding(
        "versions", "ok",
        f"hermes-state {hermes_state.__version__}, Python {platform.python_version()}, APSW "
        f"{apsw.apsw_version()} with SQLite {apsw.sqlite_lib_version()}; sqlite3 module with SQLite "
        f"{sqlite3.sqlite_version}",
    )  # fmt: skip
    yield _kernels()
    yield _full_text()
    if sqlite3.sqlite_version_info < OLDEST_TRIGRAM:
        yield Finding(
            "sqlite3 module", "note",
            f"SQLite {sqlite3.sqlite_version} of Python has no trigram tokenizer: programs on the old module "
            "cannot write to this file here",
            "use a Python with SQLite 3.34 or newer for those programs",
        )  # fmt: skip
    yield _protection()


def _kernels() -> Finding:
    info = hermes_state.fastpath_info()
    if info["compiled"]:
        return Finding("kernels", "ok", f"all {len(info['kernels'])} compiled")
    reasons, *others = sorted(set(info["why"].values()))
    reasons += "; the others likewise" if others else ""
    if "HERMES_STATE_NO_EXTENSIONS is set" in reasons:
        do = "unset HERMES_STATE_NO_EXTENSIONS for the compiled ones"
    else:
        do = "install a C compiler and then the package again, with HERMES_STATE_REQUIRE_EXTENSIONS=1"
    return Finding(
        "kernels", "warning", f"{len(info['why'])} of {len(info['kernels'])} run as Python: {reasons}", do
    )


def _full_text() -> Finding:
    conn = apsw.Connection(":memory:")
    try:
        conn.execute("CREATE VIRTUAL TABLE t USING fts5(content, tokenize = 'trigram')")
    except apsw.SQLError as error:
        return Finding(
            "full-text search", "problem", f"APSW's SQLite has no FTS5 with trigram: {error}",
            "install APSW from its wheel (pip install --force-reinstall apsw)",
        )  # fmt: skip
    finally:
        conn.close()
    return Finding("full-text search", "ok", "FTS5 with the trigram tokenizer")


def _protection() -> Finding:
    protection.install()
    found = protection.active()
    if found["ofd_locks"]:
        return Finding("protection", "ok", "open-file-description locks; an anchor where they do not hold")
    state: State = "warning" if sys.platform == "linux" else "note"
    return Finding(
        "protection", state,
        f"only the anchor guards the file from another SQLite in the same process ({found['why']})",
        "in a program that has the store open, use SessionDB.backup() and _conn, not the sqlite3 module",
    )  # fmt: skip


def home(given: Path | None) -> Iterator[Finding]:
    """Where the store is looked for, and who says so."""
    path = stores.location(given)
    if given is not None:
        yield Finding("place", "ok", f"{path}, as --db says")
        return
    said = os.environ.get("HERMES_HOME", "").strip()
    if importlib.util.find_spec("hermes_constants") is not None:
        who = "the module hermes_constants"
    else:
        who = "HERMES_HOME" if said else "the default (HERMES_HOME is not set)"
    yield Finding("place", "ok", f"{path}, as {who} says")
    if said and not Path(said).expanduser().is_absolute():
        yield Finding(
            "HERMES_HOME", "warning", f"{said!r} is relative: each working folder has another store",
            "give it an absolute path",
        )  # fmt: skip
    if not hermes_home().is_dir():
        yield Finding(
            "Hermes home", "note", f"{hermes_home()} is no folder yet", "the first program makes it"
        )


def database(path: Path) -> Iterator[Finding]:
    """What the file says of itself: version, indexes, journal, room inside."""
    try:
        found = stores.stamp(path)
    except sqlite3.Error as error:
        yield Finding("database", "problem", str(error), "hermes-state check tells what is left of it")
        return
    if not found.sessions:
        yield Finding("database", "problem", "a database, but no session store", "--db PATH names another")
        return
    yield _version(found)
    try:
        with stores.looking(path) as conn:
            yield from _inside(conn, path, found)
    except sqlite3.Error as error:
        yield Finding("database", "problem", str(error), "hermes-state check")


def _version(found: stores.Stamp) -> Finding:
    if found.older:
        return Finding(
            "version", "warning", f"schema version {found.version}; {SCHEMA_VERSION} is the present one",
            "hermes-state backup TARGET, then hermes-state upgrade",
        )  # fmt: skip
    if found.upgrading:
        return Finding(
            "version", "note", f"the upgrade from version {found.version} goes on; searches are complete",
            "hermes-state upgrade ends it now",
        )  # fmt: skip
    if found.version > SCHEMA_VERSION:
        return Finding("version", "note", f"schema version {found.version}, of a newer program; it is kept")
    if not found.complete:
        return Finding(
            "version", "note", f"schema version {found.version}, without what this module adds",
            "nothing: the next program that opens it adds it",
        )  # fmt: skip
    return Finding("version", "ok", f"schema version {found.version}")


def _inside(conn: apsw.Connection, path: Path, found: stores.Stamp) -> Iterator[Finding]:
    mode = str(scalar(conn, "PRAGMA journal_mode"))
    if mode == "wal":
        yield Finding("journal", "ok", "WAL")
    else:
        yield Finding(
            "journal", "note", f"{mode}: a file that no program has opened yet, or WAL is not to be had",
            "if it stays so once a program has opened it, put it on a local disk",
        )  # fmt: skip
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size > MUCH_WAL_BYTES:
        yield Finding(
            "WAL", "warning", f"{size_text(wal.stat().st_size)}: a program reads in one long transaction",
            "end that program's transaction; the WAL is then used again, and shrinks",
        )  # fmt: skip
    pages = figures.pages(conn)
    if pages["page_count"] > 1000 and pages["free_pages"] * 4 > pages["page_count"]:
        share = 100 * pages["free_pages"] / pages["page_count"]
        yield Finding("free pages", "note", f"{share:.0f} % of the file are free", "hermes-state vacuum")
    if not found.older and found.complete:
        pending = indexing.pending(conn)
        says = "messages wait to be indexed" if pending else "every message is indexed"
        yield Finding("index", "note" if pending else "ok", f"{says}; trigram {indexing.trigram_mode(conn)}")
