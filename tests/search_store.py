"""A bare connection with the tables of a store, for tests of the search room alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw

from hermes_state.schema import ddl
from hermes_state.search import indexing, run

DDL = (ddl.SCHEMA_SQL, ddl.FTS_SQL, ddl.FTS_TRIGRAM_SQL, ddl.HS_SQL)


def store(path: Path | None = None, *, triggers: bool = False) -> apsw.Connection:
    """A connection to a store with the session ``s``, triggers off as the engine's writer has them."""
    conn = apsw.Connection(str(path) if path else ":memory:")
    for sql in DDL:
        conn.execute(sql).fetchall()
    set_triggers(conn, triggers)
    session(conn, "s")
    return conn


def set_triggers(conn: apsw.Connection, on: bool) -> None:
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(on))


def session(conn: apsw.Connection, session_id: str, source: str = "cli") -> None:
    conn.execute("INSERT INTO sessions(id, source, started_at) VALUES (?, ?, 1)", (session_id, source))


def add(
    conn: apsw.Connection,
    content: Any,
    tool_name: str | None = None,
    tool_calls: Any = None,
    *,
    session_id: str = "s",
    role: str = "user",
    timestamp: float = 1.0,
    row_id: int | None = None,
) -> int:
    """Store one message, lists and dicts as v11 stores them (ASCII escapes); its id."""
    if isinstance(content, list | dict):
        content = "\x00json:" + json.dumps(content)
    if tool_calls is not None and not isinstance(tool_calls, str):
        tool_calls = json.dumps(tool_calls)
    conn.execute(
        "INSERT INTO messages(id, session_id, role, content, tool_name, tool_calls, timestamp)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row_id, session_id, role, content, tool_name, tool_calls, timestamp),
    )
    return conn.last_insert_rowid()


def index(conn: apsw.Connection, rows: int = 100) -> int:
    """Index everything that is pending; how many steps it took."""
    steps = 0
    while indexing.index_step(conn, rows):
        steps += 1
    return steps


def hits(conn: apsw.Connection, query: str, **filters: Any) -> list[int]:
    """The ids that ``query`` finds, in order."""
    return [hit["id"] for hit in run.search(conn, query, **{"limit": -1, **filters})]


def indexed_text(conn: apsw.Connection, table: str, row_id: int) -> str | None:
    """What ``table`` holds for the row, or None."""
    row = conn.execute(f"SELECT content FROM {table} WHERE rowid = ?", (row_id,)).fetchone()
    return row[0] if row else None
