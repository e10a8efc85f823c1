"""A bare APSW connection with the schema of version 11, and rows put in without the store's own calls."""

from __future__ import annotations

import json
from typing import Any

import apsw

from hermes_state.schema import ddl

NOW = 1_700_000_000.0
DAY = 86400.0


def connect(path: str = ":memory:") -> apsw.Connection:
    """A connection with foreign keys on, as the engine opens it, and all tables and indexes."""
    conn = apsw.Connection(path)
    conn.execute("PRAGMA foreign_keys = 1")
    conn.execute(ddl.SCHEMA_SQL + ddl.TITLE_INDEX_SQL + ddl.HS_SQL)
    return conn


def add_session(conn: apsw.Connection, session_id: str, started_at: float = NOW, **columns: Any) -> str:
    """A row of ``sessions`` with the columns given; source ``cli`` unless said otherwise."""
    values = {"source": "cli", **columns, "id": session_id, "started_at": started_at}
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    conn.execute(f"INSERT INTO sessions({names}) VALUES ({marks})", tuple(values.values()))
    return session_id


def add_message(
    conn: apsw.Connection,
    session_id: str,
    content: Any = "hi",
    role: str = "user",
    timestamp: float = NOW,
    **columns: Any,
) -> int:
    """A row of ``messages``, counted in its session."""
    values = {"session_id": session_id, "role": role, "content": content, "timestamp": timestamp, **columns}
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    conn.execute(f"INSERT INTO messages({names}) VALUES ({marks})", tuple(values.values()))
    message_id = conn.last_insert_rowid()
    calls = len(json.loads(columns["tool_calls"])) if columns.get("tool_calls") else 0
    conn.execute(
        "UPDATE sessions SET message_count = COALESCE(message_count, 0) + 1, "
        "tool_call_count = COALESCE(tool_call_count, 0) + ? WHERE id = ?",
        (calls, session_id),
    )
    return message_id


def add_chain(
    conn: apsw.Connection, length: int, *, started_at: float = NOW, step: float = 100.0, messages: bool = True
) -> list[str]:
    """Sessions ``c0`` ... that compression continues one into the next; the last one is live."""
    ids = [f"c{number}" for number in range(length)]
    for number, session_id in enumerate(ids):
        start = started_at + number * step
        ended = {"ended_at": start + step, "end_reason": "compression"} if number < length - 1 else {}
        add_session(conn, session_id, start, parent_session_id=ids[number - 1] if number else None, **ended)
        if messages:
            add_message(conn, session_id, f"message of {session_id}", timestamp=start + 1)
    return ids


def value(conn: apsw.Connection, sql: str, *params: Any) -> Any:
    """The first column of the first row of ``sql``."""
    row = conn.execute(sql, params).fetchone()
    return None if row is None else row[0]


def no_forget(_conn: apsw.Connection, _ids: list[int]) -> None:
    """For tests in which nothing is indexed."""
