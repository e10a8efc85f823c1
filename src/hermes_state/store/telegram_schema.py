"""The two tables of Telegram topic mode, made only when the mode is first used."""

from __future__ import annotations

import apsw

from hermes_state.store import meta
from hermes_state.store.rows import scalar
from hermes_state.store.values import has_table

MODE = "telegram_dm_topic_mode"
BINDINGS = "telegram_dm_topic_bindings"
VERSION_KEY = "telegram_dm_topic_schema_version"
VERSION = "2"
"""1: bindings without ON DELETE CASCADE; 2: with it."""

_BINDING_COLUMNS = """(
    chat_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_key TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    managed_mode TEXT NOT NULL DEFAULT 'auto',
    linked_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (chat_id, thread_id)
)"""

_MODE_SQL = """\
CREATE TABLE IF NOT EXISTS telegram_dm_topic_mode (
    chat_id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL,
    enabled INTEGER NOT NULL DEFAULT 1,
    activated_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    has_topics_enabled INTEGER,
    allows_users_to_create_topics INTEGER,
    capability_checked_at REAL,
    intro_message_id TEXT,
    pinned_message_id TEXT
)"""

_BINDINGS_SQL = f"CREATE TABLE IF NOT EXISTS telegram_dm_topic_bindings {_BINDING_COLUMNS}"

_INDEXES_SQL = (
    "CREATE UNIQUE INDEX IF NOT EXISTS idx_telegram_dm_topic_bindings_session "
    "ON telegram_dm_topic_bindings(session_id)",
    "CREATE INDEX IF NOT EXISTS idx_telegram_dm_topic_bindings_user "
    "ON telegram_dm_topic_bindings(user_id, chat_id)",
)

# Newest first, so that of two topics that hold one session (which version 1 did
# not rule out everywhere) the newest stays; a binding whose session is gone
# could not be stored under the new rule and would lead nowhere.
_REBUILD_SQL = (
    "DROP TABLE IF EXISTS hs_telegram_dm_topic_bindings",
    f"CREATE TABLE hs_telegram_dm_topic_bindings {_BINDING_COLUMNS}",
    "CREATE UNIQUE INDEX hs_telegram_dm_topic_bindings_once ON hs_telegram_dm_topic_bindings(session_id)",
    """\
INSERT OR IGNORE INTO hs_telegram_dm_topic_bindings
    (chat_id, thread_id, user_id, session_key, session_id, managed_mode, linked_at, updated_at)
SELECT chat_id, thread_id, user_id, session_key, session_id, COALESCE(managed_mode, 'auto'),
    linked_at, updated_at
FROM telegram_dm_topic_bindings b
WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = b.session_id)
ORDER BY updated_at DESC""",
    "DROP INDEX hs_telegram_dm_topic_bindings_once",
    "DROP TABLE telegram_dm_topic_bindings",
    "ALTER TABLE hs_telegram_dm_topic_bindings RENAME TO telegram_dm_topic_bindings",
)


def apply(conn: apsw.Connection) -> None:
    """Make the tables, or bring bindings of version 1 to 2 with their rows; nothing when they are current."""
    if is_current(conn):
        return
    conn.execute(_MODE_SQL)
    if has_table(conn, BINDINGS) and not _cascades(conn):
        for statement in _REBUILD_SQL:
            conn.execute(statement)
    conn.execute(_BINDINGS_SQL)
    for statement in _INDEXES_SQL:
        conn.execute(statement)
    meta.set(conn, VERSION_KEY, VERSION)


def is_current(conn: apsw.Connection) -> bool:
    """True if ``apply`` would change nothing: the writer need not be bothered."""
    return (
        has_table(conn, MODE)
        and has_table(conn, BINDINGS)
        and _cascades(conn)
        and _indexes(conn) == len(_INDEXES_SQL)
        and meta.get(conn, VERSION_KEY) == VERSION
    )


def _cascades(conn: apsw.Connection) -> bool:
    """True if a binding goes with its session."""
    sql = "SELECT 1 FROM pragma_foreign_key_list('telegram_dm_topic_bindings') WHERE on_delete = 'CASCADE'"
    return conn.execute(sql).fetchone() is not None


def _indexes(conn: apsw.Connection) -> int:
    sql = """\
SELECT COUNT(*) FROM sqlite_master WHERE type = 'index' AND name IN
('idx_telegram_dm_topic_bindings_session', 'idx_telegram_dm_topic_bindings_user')"""
    return int(scalar(conn, sql))
