"""Bringing a file of any version to 11, safely beside other processes that do the same.

The quick part (tables, columns, titles, empty inline FTS5 tables, triggers)
is one transaction. Re-indexing the rows comes after it, in steps above the
index watermark; the stamp becomes 11 only when nothing is left to index, so a
stamp of 11 always means that both indexes cover every row they must. A kill
at any moment leaves either the old file or one whose re-indexing goes on at
the next open; a v11 program that meets the file in between sees the old stamp
and runs its own migration, which is right as well.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import lru_cache

import apsw

from hermes_state.schema import ddl
from hermes_state.schema.columns import missing_columns, reconcile_columns
from hermes_state.search import tables
from hermes_state.store.rows import column

log = logging.getLogger("hermes_state")

_NAMES = (
    "schema_version", "sessions", "messages", "state_meta",
    "idx_sessions_source", "idx_sessions_parent", "idx_sessions_started", "idx_messages_session",
    "idx_sessions_title_unique", "hs_idx_messages_session", "hs_idx_messages_time", "hs_idx_sessions_list",
    "hs_idx_sessions_handoff",
    "hs_fts_words", "hs_idempotency",
)  # fmt: skip

_FTS_SQL = {"messages_fts": ddl.FTS_SQL, "messages_fts_trigram": ddl.FTS_TRIGRAM_SQL}


@dataclass(frozen=True)
class Findings:
    """What a file has of version 11.

    Attributes:
        version: the stamp; 0 for a file without one.
        objects: name -> SQL of the objects of interest that are there.
        missing: the (table, column) pairs that are not.
        upgrading: a re-index that belongs to an upgrade has not ended yet.
        watermark: the index watermark is there, so the index is in our care.
        unable: the full-text tables that this SQLite can neither make nor use.
        hollow: an index below the watermark lacks the first message, as v11 programs that
            migrate a file at the same moment leave it: emptied by one, filled by none.
    """

    version: int
    objects: dict[str, str]
    missing: list[tuple[str, str]]
    upgrading: bool
    watermark: bool
    hollow: bool
    unable: frozenset[str] = frozenset()

    @property
    def stale_fts(self) -> list[str]:
        """The FTS5 tables that are absent, external-content, or kept by triggers of an older form.

        Those that this SQLite cannot make are left as they are.
        """
        able = [table for table in ddl.FTS_TABLES if table not in self.unable]
        if self.version > ddl.SCHEMA_VERSION:
            return [table for table in able if table not in self.objects]
        if self.version < ddl.SCHEMA_VERSION and not (self.upgrading and self.watermark):
            return able
        return [table for table in able if not _is_inline(self.objects, table)]

    @property
    def current(self) -> bool:
        """Nothing needs to be written before the store can be used."""
        return (
            not self.missing
            and all(name in self.objects for name in _NAMES if name not in self.unable)
            and self.watermark
            and not self.hollow
            and not self.stale_fts
            and (self.version >= ddl.SCHEMA_VERSION or self.upgrading)
        )


@lru_cache(maxsize=64)
def _squeezed(sql: str) -> str:
    """``sql`` in lower case without white space and quotes of names."""
    return re.sub(r'[\s"`\[\]]+', "", sql).lower()


def _is_inline(objects: dict[str, str], table: str) -> bool:
    """True if ``table`` holds its own text and its three triggers index all three columns."""
    squeezed = {
        name: _squeezed(objects.get(name, ""))
        for name in (table, f"{table}_insert", f"{table}_delete", f"{table}_update")
    }
    remove = f"deletefrom{table}whererowid=old.id"
    trigram = "trigram" in squeezed[table]
    return (
        "usingfts5(content" in squeezed[table]
        and "content=" not in squeezed[table]
        and trigram == table.endswith("trigram")
        and "new.tool_calls" in squeezed[f"{table}_insert"]
        and "new.tool_name" in squeezed[f"{table}_insert"]
        and remove in squeezed[f"{table}_delete"]
        and remove in squeezed[f"{table}_update"]
        and "new.tool_calls" in squeezed[f"{table}_update"]
    )


def missing_objects(found: Findings) -> list[str]:
    """The tables and indexes of version 11, and ours, that the file does not have."""
    return [name for name in _NAMES if name not in found.objects and name not in found.unable]


def stamp(conn: apsw.Connection) -> int:
    """The version that the file's table of versions says; 0 where it says none."""
    row = conn.execute("SELECT MAX(version) FROM schema_version WHERE typeof(version) = 'integer'").fetchone()
    return int(row[0]) if row and isinstance(row[0], int) else 0


_OBJECTS_SQL = """
SELECT name, sql FROM sqlite_master WHERE name LIKE '%messages%' OR name LIKE '%sessions%'
    OR name LIKE 'hs%' OR name IN ('schema_version', 'state_meta')
"""


def inspect(conn: apsw.Connection) -> Findings:
    """Read what ``conn``'s file has; writes nothing.

    Raises:
        apsw.Error: the file, or its schema, cannot be read.
        UnicodeDecodeError: its schema is not UTF-8.
    """
    objects = {str(name): str(sql or "") for name, sql in conn.execute(_OBJECTS_SQL)}
    version = stamp(conn) if "schema_version" in objects else 0
    meta: set[str] = set()
    if "state_meta" in objects:
        meta = {
            str(key)
            for key in column(
                conn,
                "SELECT key FROM state_meta WHERE key IN (?, ?)",
                (ddl.META_WATERMARK, ddl.META_UPGRADE),
            )
        }
    hollow = ddl.META_WATERMARK in meta and any(
        table in objects and _lacks_first(conn, table) for table in ddl.FTS_TABLES
    )
    return Findings(
        version,
        objects,
        missing_columns(conn, objects),
        ddl.META_UPGRADE in meta,
        ddl.META_WATERMARK in meta,
        hollow,
        tables.lacking(conn),
    )


_LACKS_FIRST_SQL = {
    table: f"""
    SELECT first <= CAST(w.value AS INTEGER) AND (m.value IS NULL OR m.value = 'all')
        AND NOT EXISTS (SELECT 1 FROM {table}_docsize WHERE id = first)
    FROM (SELECT min(id) AS first FROM messages) JOIN state_meta w ON w.key = ?1
    LEFT JOIN state_meta m ON m.key = ?2 AND '{table}' = 'messages_fts_trigram'
    """  # noqa: S608 - constant SQL
    for table in ddl.FTS_TABLES
}


def _lacks_first(conn: apsw.Connection, table: str) -> bool:
    """True if the watermark says that the first message is in ``table``, and it is not."""
    try:
        row = conn.execute(_LACKS_FIRST_SQL[table], (ddl.META_WATERMARK, ddl.META_TRIGRAM)).fetchone()
    except (apsw.CorruptError, apsw.SQLError):
        # Damage is for a check to tell; the store opens, and reads and appends as far as it can.
        return False
    return bool(row and row[0])


def upgrade(conn: apsw.Connection) -> bool:
    """The quick part of the way to version 11, inside a write transaction on ``conn``.

    Looks again first: another process may have done it while this one waited
    for the lock. Returns whether anything was written.
    """
    found = inspect(conn)
    if found.current:
        return False
    conn.execute(ddl.TABLES_SQL)
    reconcile_columns(conn)
    conn.execute(ddl.INDEXES_SQL)
    _give_titles_up(conn)
    conn.execute(ddl.TITLE_INDEX_SQL)
    conn.execute(ddl.HS_INDEXES_SQL + ddl.HS_IDEMPOTENCY_SQL)
    complete = _renew_fts(conn, found)
    if "hs_fts_words" not in found.unable:
        create_fts(conn, "hs_fts_words", ddl.HS_WORDS_SQL)
    conn.execute("INSERT OR IGNORE INTO state_meta(key, value) VALUES (?, '0')", (ddl.META_WATERMARK,))
    if found.hollow:
        log.warning("an index of the file had been emptied; it is filled again")
        conn.execute("UPDATE state_meta SET value = '0' WHERE key = ?", (ddl.META_WATERMARK,))
    _stamp(conn, found.version, complete)
    return True


def _give_titles_up(conn: apsw.Connection) -> None:
    """Of the sessions that share a title the newest keeps it; the others lose theirs."""
    conn.execute(
        """
        UPDATE sessions SET title = NULL WHERE rowid IN (
            SELECT rid FROM (
                SELECT rowid AS rid,
                       ROW_NUMBER() OVER (PARTITION BY title ORDER BY started_at DESC, rowid DESC) AS place
                FROM sessions WHERE title IS NOT NULL)
            WHERE place > 1)
        """
    )
    lost = conn.changes()
    if lost:
        log.warning("%d sessions shared a title with a newer session and lost theirs", lost)


def _renew_fts(conn: apsw.Connection, found: Findings) -> bool:
    """Make the FTS5 tables that are stale anew and empty; True if both are there afterwards.

    Where one cannot be made the file stays marked as one whose upgrade has not ended, and the next
    complete SQLite goes on with it.
    """
    stale = found.stale_fts
    if stale:
        for trigger in [name for name in ddl.FTS_TRIGGERS if name.rsplit("_", 1)[0] in stale]:
            conn.execute(f'DROP TRIGGER IF EXISTS "{trigger}"')
        for table in stale:
            conn.execute(f'DROP TABLE IF EXISTS "{table}"')
        if conn.execute("SELECT 1 FROM messages LIMIT 1").fetchone():
            conn.execute(
                "INSERT OR REPLACE INTO state_meta(key, value) VALUES (?, '0')", (ddl.META_WATERMARK,)
            )
            conn.execute(
                "INSERT OR REPLACE INTO state_meta(key, value) VALUES (?, ?)",
                (ddl.META_UPGRADE, str(min(found.version, ddl.SCHEMA_VERSION - 1))),
            )
    made = [create_fts(conn, table, _FTS_SQL[table]) for table in stale]
    complete = all(made) and found.unable.isdisjoint(ddl.FTS_TABLES)
    if not complete and found.version < ddl.SCHEMA_VERSION:
        conn.execute(
            "INSERT OR IGNORE INTO state_meta(key, value) VALUES (?, ?)",
            (ddl.META_UPGRADE, str(found.version)),
        )
    return complete


def create_fts(conn: apsw.Connection, table: str, sql: str) -> bool:
    """Create ``table`` and its triggers; False where this SQLite has no FTS5 or no trigram tokenizer."""
    conn.execute("SAVEPOINT hs_fts")
    try:
        conn.execute(sql)
    except apsw.SQLError as error:
        conn.execute("ROLLBACK TO hs_fts")
        conn.execute("RELEASE hs_fts")
        if "no such module" in str(error) or "no such tokenizer" in str(error):
            log.warning("%s cannot be made (%s); search scans instead until it can", table, error)
            return False
        raise
    conn.execute("RELEASE hs_fts")
    return True


def _stamp(conn: apsw.Connection, version: int, complete: bool) -> None:
    """Write the stamp that the file deserves now, as one row."""
    if version > ddl.SCHEMA_VERSION:
        return
    upgrading = conn.execute("SELECT 1 FROM state_meta WHERE key = ?", (ddl.META_UPGRADE,)).fetchone()
    stamp = ddl.SCHEMA_VERSION if complete and not upgrading else min(version, ddl.SCHEMA_VERSION - 1)
    conn.execute("DELETE FROM schema_version")
    conn.execute("INSERT INTO schema_version(version) VALUES (?)", (stamp,))


def finish(conn: apsw.Connection) -> bool:
    """Stamp the file 11, inside a write transaction, once nothing is left to index.

    Returns whether the stamp was written: not when no upgrade was going on.
    The caller has made sure, in the same transaction, that no row is pending.
    """
    if not conn.execute("SELECT 1 FROM state_meta WHERE key = ?", (ddl.META_UPGRADE,)).fetchone():
        return False
    found = inspect(conn)
    if found.version > ddl.SCHEMA_VERSION or any(table not in found.objects for table in ddl.FTS_TABLES):
        return False
    if not found.unable.isdisjoint(ddl.FTS_TABLES):
        return False
    conn.execute("DELETE FROM state_meta WHERE key = ?", (ddl.META_UPGRADE,))
    conn.execute("DELETE FROM schema_version")
    conn.execute("INSERT INTO schema_version(version) VALUES (?)", (ddl.SCHEMA_VERSION,))
    log.info("upgrade to schema version %d is complete", ddl.SCHEMA_VERSION)
    return True
