"""Making a damaged full-text table or index anew, inside the caller's write transaction.

A b-tree that cannot be read cannot be dropped either: DROP walks its pages to free
them. Its entry is then taken out of the schema and its pages are left, used by nobody, until
VACUUM (as https://www.sqlite.org/pragma.html#pragma_writable_schema describes).
"""

from __future__ import annotations

import json
from collections.abc import Collection

import apsw

from hermes_state.schema import ddl, migrate

_SQL = {
    "messages_fts": ddl.FTS_SQL,
    "messages_fts_trigram": ddl.FTS_TRIGRAM_SQL,
    "hs_fts_words": ddl.HS_WORDS_SQL,
}
_SHADOWS = ("data", "idx", "content", "docsize", "config")
_OUR_INDEXES = ddl.INDEXES_SQL + ddl.TITLE_INDEX_SQL + ddl.HS_INDEXES_SQL


def renew_fts(conn: apsw.Connection, tables: Collection[str]) -> bool:
    """Make these full-text tables anew and empty, with their triggers, and the watermark 0.

    Until the index is complete again the file carries the stamp of an unfinished upgrade, so that
    a stamp of 11 still means that both indexes cover every row they must.

    Returns True where pages were left that only VACUUM frees.

    Raises:
        KeyError: a table that is none of ours.
    """
    version = migrate.inspect(conn).version
    left = [_remove(conn, table) for table in tables]
    for table in tables:
        migrate.create_fts(conn, table, _SQL[table])
    _set(conn, ddl.META_WATERMARK, "0")
    if version <= ddl.SCHEMA_VERSION and not set(tables).isdisjoint(ddl.FTS_TABLES):
        old = min(version, ddl.SCHEMA_VERSION - 1)
        conn.execute(
            "INSERT OR IGNORE INTO state_meta(key, value) VALUES (?, ?)", (ddl.META_UPGRADE, str(old))
        )
        conn.execute("DELETE FROM schema_version")
        conn.execute("INSERT INTO schema_version(version) VALUES (?)", (old,))
    return any(left)


def renew_index(conn: apsw.Connection, name: str) -> bool:
    """Build the index ``name`` anew from its table; False where it cannot be (salvage is left then).

    An index whose pages cannot even be freed is made again if it is one of ours.
    """
    quoted = '"' + name.replace('"', '""') + '"'
    if _tried(conn, f"REINDEX {quoted}"):
        return True
    ours = f"INDEX IF NOT EXISTS {name}" in _OUR_INDEXES.replace("\n", " ")
    if not ours:
        return False
    _take_out(conn, [name])
    conn.execute(_OUR_INDEXES)
    return True


def _remove(conn: apsw.Connection, table: str) -> bool:
    """Drop a full-text table and its triggers; True where its pages had to be left."""
    for event in ("insert", "delete", "update"):
        conn.execute(f'DROP TRIGGER IF EXISTS "{table}_{event}"')
    if _tried(conn, f'DROP TABLE IF EXISTS "{table}"'):
        return False
    _take_out(conn, [table, *(f"{table}_{part}" for part in _SHADOWS)])
    return True


def _tried(conn: apsw.Connection, sql: str) -> bool:
    """Run ``sql``; False, and nothing changed, where damage stops it."""
    conn.execute("SAVEPOINT hs_renew")
    try:
        conn.execute(sql)
    except (apsw.CorruptError, apsw.SQLError):
        conn.execute("ROLLBACK TO hs_renew")
        conn.execute("RELEASE hs_renew")
        return False
    conn.execute("RELEASE hs_renew")
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


def _set(conn: apsw.Connection, key: str, value: str) -> None:
    conn.execute("INSERT OR REPLACE INTO state_meta(key, value) VALUES (?, ?)", (key, value))
