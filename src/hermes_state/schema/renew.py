"""Making a damaged full-text table or index anew, inside the caller's write transaction.

A b-tree that cannot be read cannot be dropped either: DROP walks its pages to free
them. Its entry is then taken out of the schema and its pages are left, used by nobody, until
VACUUM (as https://www.sqlite.org/pragma.html#pragma_writable_schema describes).
"""

from __future__ import annotations

import json

import apsw

from hermes_state.schema import ddl, migrate

_SQL = {
    "messages_fts": ddl.FTS_SQL,
    "messages_fts_trigram": ddl.FTS_TRIGRAM_SQL,
    "hs_fts_words": ddl.HS_WORDS_SQL,
}
_SHADOWS = ("data", "idx", "content", "docsize", "config")
_OUR_INDEXES = ddl.INDEXES_SQL + ddl.TITLE_INDEX_SQL + ddl.HS_INDEXES_SQL


def renew_fts(conn: apsw.Connection, table: str, *, leave_pages: bool) -> None:
    """Make a full-text table anew and empty, with its triggers, and the watermark 0.

    Until the index is complete again the file carries the stamp of an unfinished upgrade, so that
    a stamp of 11 still means that both indexes cover every row they must.

    Args:
        leave_pages: where dropping it failed by damage, in a transaction before this one.

    Raises:
        KeyError: a table that is none of ours.
        apsw.CorruptError: its pages cannot be freed; nothing more can be done in this transaction.
    """
    # Nothing may read a damaged page before the schema is changed: SQLite refuses the change then.
    version = migrate.stamp(conn)
    sql = _SQL[table]
    for event in ("insert", "delete", "update"):
        conn.execute(f'DROP TRIGGER IF EXISTS "{table}_{event}"')
    if leave_pages:
        _take_out(conn, [table, *(f"{table}_{part}" for part in _SHADOWS)])
    else:
        conn.execute(f'DROP TABLE IF EXISTS "{table}"')
    migrate.create_fts(conn, table, sql)
    conn.execute("INSERT OR REPLACE INTO state_meta(key, value) VALUES (?, '0')", (ddl.META_WATERMARK,))
    if version <= ddl.SCHEMA_VERSION and table in ddl.FTS_TABLES:
        old = min(version, ddl.SCHEMA_VERSION - 1)
        conn.execute(
            "INSERT OR IGNORE INTO state_meta(key, value) VALUES (?, ?)", (ddl.META_UPGRADE, str(old))
        )
        conn.execute("DELETE FROM schema_version")
        conn.execute("INSERT INTO schema_version(version) VALUES (?)", (old,))


def renew_index(conn: apsw.Connection, name: str, *, leave_pages: bool) -> bool:
    """Build the index ``name`` anew from its table; False where it cannot be (salvage is left then).

    Args:
        leave_pages: as for ``renew_fts``; only an index of ours can be made again then.

    Raises:
        apsw.CorruptError: as for ``renew_fts``.
    """
    if not leave_pages:
        quoted = name.replace('"', '""')
        conn.execute(f'REINDEX "{quoted}"')
        return True
    if f"INDEX IF NOT EXISTS {name}\n" not in _OUR_INDEXES.replace(" ON", "\n"):
        return False
    _take_out(conn, [name])
    conn.execute(_OUR_INDEXES)
    return True


def _take_out(conn: apsw.Connection, names: list[str]) -> None:
    """Remove the objects ``names`` from the schema without touching their pages."""
    defensive = conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute(
            "DELETE FROM sqlite_master WHERE name IN (SELECT value FROM json_each(?))", (json.dumps(names),)
        )
    finally:
        conn.execute("PRAGMA writable_schema = RESET")
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, defensive)
