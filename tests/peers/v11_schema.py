"""The schema of version 11, and how the older program opened a file and brought it there.

Beside ``v11_peer.py``, which is run as a script and so finds this module.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

SCHEMA_VERSION = 11
SCHEMA_SQL = """
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL);

CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);

CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT
);

CREATE TABLE IF NOT EXISTS state_meta (key TEXT PRIMARY KEY, value TEXT);

CREATE INDEX IF NOT EXISTS idx_sessions_source ON sessions(source);
CREATE INDEX IF NOT EXISTS idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX IF NOT EXISTS idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id, timestamp);
"""
TITLE_INDEX_SQL = (
    "CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL"
)
INDEXES = ("messages_fts", "messages_fts_trigram")
_TEXT = "COALESCE({0}content,'') || ' ' || COALESCE({0}tool_name,'') || ' ' || COALESCE({0}tool_calls,'')"


def fts_sql(name: str) -> str:
    """The inline FTS5 table ``name`` and its three triggers."""
    tokenizer = ", tokenize='trigram'" if name.endswith("trigram") else ""
    insert = f"INSERT INTO {name}(rowid, content) VALUES (new.id, {_TEXT.format('new.')});"
    delete = f"DELETE FROM {name} WHERE rowid = old.id;"
    return f"""
CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5(content{tokenizer});
CREATE TRIGGER IF NOT EXISTS {name}_insert AFTER INSERT ON messages BEGIN {insert} END;
CREATE TRIGGER IF NOT EXISTS {name}_delete AFTER DELETE ON messages BEGIN {delete} END;
CREATE TRIGGER IF NOT EXISTS {name}_update AFTER UPDATE ON messages BEGIN {delete} {insert} END;
"""


def connect(path: str) -> sqlite3.Connection:
    """One autocommit connection in WAL mode with a one-second busy timeout, or ``V11_TIMEOUT`` seconds."""
    patience = float(os.environ.get("V11_TIMEOUT", "1.0"))
    conn = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    conn.row_factory = sqlite3.Row
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute("PRAGMA foreign_keys=ON")
    return conn


def init_schema(conn: sqlite3.Connection) -> dict[str, Any]:
    """Bring the file to version 11, statement by statement in autocommit; tells where it began."""
    conn.executescript(SCHEMA_SQL)
    added = reconcile_columns(conn)
    row = conn.execute("SELECT version FROM schema_version LIMIT 1").fetchone()
    before = None if row is None else int(row["version"])
    if before is None:
        conn.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
    else:
        migrate(conn, before)
    try:
        conn.execute(TITLE_INDEX_SQL)
    except sqlite3.Error:
        added.append("(no unique title index)")
    for name in INDEXES:
        try:
            conn.execute(f"SELECT 1 FROM {name} LIMIT 0")
        except sqlite3.OperationalError:
            conn.executescript(fts_sql(name))
    return {"from_version": before, "added": added}


def reconcile_columns(conn: sqlite3.Connection) -> list[str]:
    """Add every column of SCHEMA_SQL that the live tables lack; returns ``table.column`` names."""
    added = []
    with_all = sqlite3.connect(":memory:")
    try:
        with_all.executescript(SCHEMA_SQL)
        for table in ("sessions", "messages"):
            wanted = with_all.execute(f"PRAGMA table_info({table})").fetchall()
            live = {row["name"] for row in conn.execute(f"PRAGMA table_info({table})")}
            for _, name, kind, _, default, _ in wanted:
                if name in live:
                    continue
                declaration = kind if default is None else f"{kind} DEFAULT {default}"
                try:
                    conn.execute(f"ALTER TABLE {table} ADD COLUMN {name} {declaration}")
                except sqlite3.OperationalError as error:
                    if "duplicate column name" not in str(error):
                        raise
                added.append(f"{table}.{name}")
    finally:
        with_all.close()
    return added


def migrate(conn: sqlite3.Connection, before: int) -> None:
    """Versions 10 (trigram table, filled) and 11 (both tables anew, inline); then the stamp."""
    if before < 10:
        conn.executescript(fts_sql("messages_fts_trigram"))
        refill(conn, "messages_fts_trigram")
    if before < 11:
        for name in INDEXES:
            for event in ("insert", "delete", "update"):
                conn.execute(f"DROP TRIGGER IF EXISTS {name}_{event}")
            conn.execute(f"DROP TABLE IF EXISTS {name}")
        for name in INDEXES:
            conn.executescript(fts_sql(name))
            refill(conn, name)
    if before < SCHEMA_VERSION:
        conn.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))


def refill(conn: sqlite3.Connection, name: str) -> None:
    """Index every message in ``name``."""
    conn.execute(f"INSERT INTO {name}(rowid, content) SELECT id, {_TEXT.format('')} FROM messages")
