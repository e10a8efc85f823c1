"""The reference store's connection, schema, transactions and content encoding.

See `benchmarks.reference`. Stdlib only.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
Rows = list[sqlite3.Row]

SCHEMA_VERSION = 11
SCHEMA_SQL = """
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT,
    system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT,
    message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0,
    billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT,
    estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT, cost_source TEXT, pricing_version TEXT,
    title TEXT, api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT, handoff_platform TEXT, handoff_error TEXT,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
    timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
    reasoning_details TEXT, codex_reasoning_items TEXT, codex_message_items TEXT
);
CREATE TABLE IF NOT EXISTS state_meta (key TEXT PRIMARY KEY, value TEXT);
CREATE INDEX IF NOT EXISTS idx_sessions_source ON sessions(source);
CREATE INDEX IF NOT EXISTS idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX IF NOT EXISTS idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id, timestamp);
CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;
"""
INDEXED = "COALESCE({0}content,'') || ' ' || COALESCE({0}tool_name,'') || ' ' || COALESCE({0}tool_calls,'')"


def fts_sql(name: str) -> tuple[str, str]:
    """The inline FTS5 table ``name``, and its three triggers, as two scripts."""
    tokenizer = ", tokenize='trigram'" if name.endswith("trigram") else ""
    insert = f"INSERT INTO {name}(rowid, content) VALUES (new.id, {INDEXED.format('new.')});"
    delete = f"DELETE FROM {name} WHERE rowid = old.id;"
    table = f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5(content{tokenizer});"
    triggers = (
        f"CREATE TRIGGER IF NOT EXISTS {name}_insert AFTER INSERT ON messages BEGIN {insert} END;"
        f"CREATE TRIGGER IF NOT EXISTS {name}_delete AFTER DELETE ON messages BEGIN {delete} END;"
        f"CREATE TRIGGER IF NOT EXISTS {name}_update AFTER UPDATE ON messages BEGIN {delete} {insert} END;"
    )
    return table, triggers


FTS_SQL = "".join(fts_sql("messages_fts"))
FTS_TRIGRAM_SQL = "".join(fts_sql("messages_fts_trigram"))


class Base:
    """One connection, one lock, write transactions with retries."""

    _WRITE_MAX_RETRIES = 15
    _WRITE_RETRY_MIN_S = 0.020
    _WRITE_RETRY_MAX_S = 0.150
    _CHECKPOINT_EVERY_N_WRITES = 50
    _CONTENT_JSON_PREFIX = "\x00json:"

    def __init__(self, db_path: str | Path) -> None:
        self.db_path = Path(db_path)
        self.db_path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._write_count = 0
        self._conn = sqlite3.connect(
            str(self.db_path), check_same_thread=False, timeout=1.0, isolation_level=None
        )
        self._conn.row_factory = sqlite3.Row
        self._conn.execute("PRAGMA journal_mode=WAL")
        self._conn.execute("PRAGMA synchronous=FULL")
        self._conn.execute("PRAGMA foreign_keys=ON")
        self._init_schema()

    def _init_schema(self) -> None:
        """Tables if missing, columns compared, the upgrade to 11 statement by statement in autocommit."""
        conn = self._conn
        conn.executescript(SCHEMA_SQL)
        self._reconcile_columns()
        row = conn.execute("SELECT version FROM schema_version LIMIT 1").fetchone()
        before = SCHEMA_VERSION if row is None else int(row["version"])
        if row is None:
            conn.execute("INSERT INTO schema_version (version) VALUES (?)", (SCHEMA_VERSION,))
        if before < 10:
            conn.executescript(FTS_TRIGRAM_SQL)
            self._refill("messages_fts_trigram")
        if before < 11:
            self._rebuild_indexes()
            conn.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))
        for name, script in (("messages_fts", FTS_SQL), ("messages_fts_trigram", FTS_TRIGRAM_SQL)):
            try:
                conn.execute(f"SELECT * FROM {name} LIMIT 0")
            except sqlite3.OperationalError:
                conn.executescript(script)

    def _rebuild_indexes(self) -> None:
        for name, script in (("messages_fts", FTS_SQL), ("messages_fts_trigram", FTS_TRIGRAM_SQL)):
            for event in ("insert", "delete", "update"):
                self._conn.execute(f"DROP TRIGGER IF EXISTS {name}_{event}")
            self._conn.execute(f"DROP TABLE IF EXISTS {name}")
            self._conn.executescript(script)
            self._refill(name)

    def _refill(self, name: str) -> None:
        self._conn.execute(
            f"INSERT INTO {name}(rowid, content) SELECT id, {INDEXED.format('')} FROM messages"
        )

    def _reconcile_columns(self) -> None:
        """Add the columns that SCHEMA_SQL has and the file lacks, as an in-memory copy of it tells."""
        wanted = sqlite3.connect(":memory:")
        try:
            wanted.executescript(SCHEMA_SQL)
            for table in ("sessions", "messages"):
                live = {row["name"] for row in self._conn.execute(f"PRAGMA table_info({table})")}
                for _, name, kind, _, default, _ in wanted.execute(f"PRAGMA table_info({table})"):
                    if name not in live:
                        tail = "" if default is None else f" DEFAULT {default}"
                        self._conn.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{tail}")
        finally:
            wanted.close()

    def close(self) -> None:
        """Checkpoint and close the connection; closing again does nothing."""
        with self._lock:
            self._conn.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._conn.close()

    def _execute_write(self, fn: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run ``fn`` in BEGIN IMMEDIATE; when locked, up to 15 tries 20 to 150 ms apart."""
        for attempt in range(self._WRITE_MAX_RETRIES):
            try:
                with self._lock:
                    result = self._transaction(fn)
            except sqlite3.OperationalError as error:
                told = str(error).lower()
                last = attempt == self._WRITE_MAX_RETRIES - 1
                if last or ("locked" not in told and "busy" not in told):
                    raise
                time.sleep(random.uniform(self._WRITE_RETRY_MIN_S, self._WRITE_RETRY_MAX_S))
                continue
            self._write_count += 1
            if self._write_count % self._CHECKPOINT_EVERY_N_WRITES == 0:
                with self._lock:
                    self._conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return result
        raise AssertionError("the last try returns or raises")

    def _transaction(self, fn: Callable[[sqlite3.Connection], Result]) -> Result:
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            result = fn(self._conn)
            self._conn.commit()
        except BaseException:
            if self._conn.in_transaction:
                self._conn.rollback()
            raise
        return result

    def _rows(self, sql: str, params: Any = ()) -> Rows:
        with self._lock:
            return self._conn.execute(sql, params).fetchall()

    def _row(self, sql: str, params: Any = ()) -> sqlite3.Row | None:
        with self._lock:
            found: sqlite3.Row | None = self._conn.execute(sql, params).fetchone()
        return found

    def _value(self, sql: str, params: Any = ()) -> Any:
        found = self._row(sql, params)
        return None if found is None else found[0]

    @classmethod
    def _encode_content(cls, content: Any) -> Any:
        """A list or dict as marked JSON text, everything else as it is."""
        if isinstance(content, (list, dict)):
            return cls._CONTENT_JSON_PREFIX + json.dumps(content)
        return content

    @classmethod
    def _decode_content(cls, content: Any) -> Any:
        """The opposite of `_encode_content`; broken JSON comes back as the text."""
        if isinstance(content, str) and content.startswith(cls._CONTENT_JSON_PREFIX):
            try:
                return json.loads(content[len(cls._CONTENT_JSON_PREFIX) :])
            except ValueError:
                return content
        return content
