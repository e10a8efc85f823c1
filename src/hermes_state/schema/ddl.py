"""The tables, indexes and triggers of schema version 11, and what this package adds.

Source: the tables of the old module's files (column lists, defaults, indexes, handoff columns, inline FTS5
tables, the six triggers).
"""

from __future__ import annotations

from hermes_state.search.tables import META_TRIGRAM as META_TRIGRAM
from hermes_state.search.tables import META_WATERMARK as META_WATERMARK

SCHEMA_VERSION = 11

TABLES_SQL = """\
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL
);

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

CREATE TABLE IF NOT EXISTS state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);
"""

INDEXES_SQL = """\
CREATE INDEX IF NOT EXISTS idx_sessions_source ON sessions(source);
CREATE INDEX IF NOT EXISTS idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX IF NOT EXISTS idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id, timestamp);
"""

TITLE_INDEX_SQL = """\
CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique
    ON sessions(title) WHERE title IS NOT NULL;
"""

SCHEMA_SQL = TABLES_SQL + "\n" + INDEXES_SQL

_TEXT = (
    "COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' || COALESCE(new.tool_calls, '')"
)


def _triggers(table: str) -> str:
    """The three triggers that keep ``table`` in step for programs that know only v11."""
    return f"""\
CREATE TRIGGER IF NOT EXISTS {table}_insert AFTER INSERT ON messages BEGIN
    INSERT INTO {table}(rowid, content) VALUES (
        new.id,
        {_TEXT}
    );
END;

CREATE TRIGGER IF NOT EXISTS {table}_delete AFTER DELETE ON messages BEGIN
    DELETE FROM {table} WHERE rowid = old.id;
END;

CREATE TRIGGER IF NOT EXISTS {table}_update AFTER UPDATE ON messages BEGIN
    DELETE FROM {table} WHERE rowid = old.id;
    INSERT INTO {table}(rowid, content) VALUES (
        new.id,
        {_TEXT}
    );
END;
"""  # noqa: S608 - constant SQL


FTS_SQL = f"""\
CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts USING fts5(
    content
);

{_triggers("messages_fts")}"""

FTS_TRIGRAM_SQL = f"""\
CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts_trigram USING fts5(
    content,
    tokenize='trigram'
);

{_triggers("messages_fts_trigram")}"""

FTS_TABLES = ("messages_fts", "messages_fts_trigram")
FTS_TRIGGERS = tuple(f"{table}_{event}" for table in FTS_TABLES for event in ("insert", "delete", "update"))

HS_INDEXES_SQL = """\
CREATE INDEX IF NOT EXISTS hs_idx_messages_session ON messages(session_id);
CREATE INDEX IF NOT EXISTS hs_idx_messages_time ON messages(timestamp, session_id);
CREATE INDEX IF NOT EXISTS hs_idx_sessions_list
    ON sessions(started_at DESC, id, source, parent_session_id, end_reason, ended_at);
CREATE INDEX IF NOT EXISTS hs_idx_sessions_handoff
    ON sessions(started_at, id) WHERE handoff_state = 'pending';
"""
"""Ours. The first is (session_id, id): every reader orders a session by id. The second orders hits by
time and finds the sessions that were active last, without reading a message. The third serves the
lists: in the table those columns stand behind the system prompt's overflow pages. The last holds the
sessions that wait to be handed over, which gateways ask for all the time. An append pays for
the first two: measured, 2 to 3 microseconds of CPU and one page of the WAL each."""

HS_WORDS_SQL = """\
CREATE VIRTUAL TABLE IF NOT EXISTS hs_fts_words USING fts5(content);
"""
"""Ours: words that touch a letter of an unspaced script (see docs/design.md)."""

HS_IDEMPOTENCY_SQL = """\
CREATE TABLE IF NOT EXISTS hs_idempotency (
    session_id TEXT NOT NULL,
    key TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    PRIMARY KEY (session_id, key)
) WITHOUT ROWID;
"""
"""Ours: what was stored under an idempotency key, by its first message id and number of rows."""

HS_SQL = HS_INDEXES_SQL + HS_IDEMPOTENCY_SQL + HS_WORDS_SQL

META_UPGRADE = "hermes_state.upgrading_from"
"""Set to the old version while a re-index that belongs to an upgrade is still going on."""
