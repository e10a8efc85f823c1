"""APSW with nothing round it: the floor that the write rows are compared with.

Nothing of either store is used. Both keep ``synchronous=FULL`` and WAL, encode
JSON as v11 does, and bind the same columns.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import apsw

from .reference_base import INDEXED, SCHEMA_SQL
from .runner import Bench, Cpu, Side, Values

GROUP = 500
"""Messages a transaction of the bulk load."""

_INSERT = (
    "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp,"
    " finish_reason, reasoning) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE sessions SET message_count = message_count + 1, tool_call_count = tool_call_count + ?"
    " WHERE id = ?"
)
_TABLES = [part for part in SCHEMA_SQL.split(";") if "INDEX" not in part]


def _connect(path: Path) -> apsw.Connection:
    conn = apsw.Connection(str(path))
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute("PRAGMA synchronous=FULL")
    conn.execute("PRAGMA foreign_keys=ON")
    conn.execute(";".join(_TABLES))
    return conn


def _row(message: dict[str, Any]) -> tuple[Any, ...]:
    get = message.get
    content, calls = get("content"), get("tool_calls")
    if isinstance(content, (list, dict)):
        content = "\x00json:" + json.dumps(content)
    return (
        message["session"], message["role"], content, get("tool_call_id"),
        json.dumps(calls) if calls else None, get("tool_name"), time.time(), get("finish_reason"),
        get("reasoning"),
    )  # fmt: skip


def _sessions(conn: apsw.Connection, messages: list[dict[str, Any]]) -> None:
    names = dict.fromkeys(message["session"] for message in messages)
    conn.executemany(
        "INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', ?)",
        [(name, time.time()) for name in names],
    )


def append(bench: Bench, side: Side) -> Values:
    """BEGIN IMMEDIATE, INSERT, UPDATE, COMMIT a message, into tables without any index."""
    messages = bench.messages("mixed", bench.writes)
    with bench.folder() as folder:
        conn = _connect(folder / "state.db")
        _sessions(conn, messages)
        started = time.perf_counter()
        with Cpu(time.thread_time) as cpu:
            for message in messages:
                bound = _row(message)
                conn.execute("BEGIN IMMEDIATE")
                conn.execute(_INSERT, bound)
                conn.execute(_UPDATE, (len(message.get("tool_calls") or ()), message["session"]))
                conn.execute("COMMIT")
        total = time.perf_counter() - started
        conn.close()
    return {"total": total, "cpu": cpu.seconds}


def bulk(bench: Bench, side: Side) -> Values:
    """GROUP messages a transaction, each group then put into both full-text tables, and the close."""
    messages = bench.messages("mixed", bench.writes)
    with bench.folder() as folder:
        conn = _connect(folder / "state.db")
        conn.execute("CREATE VIRTUAL TABLE messages_fts USING fts5(content)")
        conn.execute("CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tokenize='trigram')")
        _sessions(conn, messages)
        started = time.perf_counter()
        with Cpu() as cpu:
            for place in range(0, len(messages), GROUP):
                _load(conn, messages[place : place + GROUP], place)
            conn.close()
        return {"total": time.perf_counter() - started, "cpu": cpu.seconds}


def _load(conn: apsw.Connection, messages: list[dict[str, Any]], after: int) -> None:
    """The messages and their index entries in one transaction; ``after`` is the last id before them."""
    conn.execute("BEGIN IMMEDIATE")
    conn.executemany(_INSERT, [_row(message) for message in messages])
    for table in ("messages_fts", "messages_fts_trigram"):
        conn.execute(
            f"INSERT INTO {table}(rowid, content) SELECT id, {INDEXED.format('')} FROM messages WHERE id > ?",
            (after,),
        )
    conn.execute("COMMIT")
