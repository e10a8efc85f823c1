"""Rows of messages on a bare connection, for tests of store.messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apsw
import store_helpers
from hermes_state._fastpath import encode

from hermes_state.store import messages

NOW = 1_700_000_000.0


def connection() -> Iterator[apsw.Connection]:
    """For a fixture: with the tables and the sessions s and t."""
    conn = store_helpers.connect()
    for session_id in ("s", "t"):
        store_helpers.add_session(conn, session_id, 1)
    yield conn
    conn.close()


def no_forget(_conn: apsw.Connection, ids: list[int]) -> None:
    raise AssertionError(f"nothing was to be deleted, but {ids} was")


class Forgotten(list[int]):
    """A ``forget`` that keeps the ids, and sees that their rows are still there."""

    def __call__(self, conn: apsw.Connection, ids: list[int]) -> None:
        marks = json.dumps(ids)
        there = conn.execute(
            "SELECT COUNT(*) FROM messages WHERE id IN (SELECT value FROM json_each(?))", (marks,)
        ).fetchone()
        assert there == (len(ids),)
        self.extend(ids)


def row(session_id: str = "s", role: str = "user", content: Any = "hi", **fields: Any) -> messages.Row:
    return encode.encode_messages(session_id, [{"role": role, "content": content, **fields}], NOW)[0]


def add(conn: apsw.Connection, *contents: Any, session_id: str = "s", role: str = "user") -> list[int]:
    return [messages.insert_one(conn, row(session_id, role, content)) for content in contents]


def counters(conn: apsw.Connection, session_id: str = "s") -> tuple[Any, ...]:
    found = conn.execute(
        "SELECT message_count, tool_call_count FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    assert found is not None
    return tuple(found)


def contents(conn: apsw.Connection, session_id: str = "s") -> list[Any]:
    return [message["content"] for message in messages.get(conn, session_id)]
