"""The reference store's messages: append, replace, read, windows.

See `benchmarks.reference`. Stdlib only.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from typing import Any

from .reference_base import Base

Message = dict[str, Any]

_INSERT = (
    "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp,"
    " token_count, finish_reason, reasoning, reasoning_content, reasoning_details, codex_reasoning_items,"
    " codex_message_items) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_REPLAYED = (
    "role, content, tool_call_id, tool_calls, tool_name, finish_reason, reasoning, reasoning_content,"
    " reasoning_details, codex_reasoning_items, codex_message_items"
)
_JSON_COLUMNS = ("reasoning_details", "codex_reasoning_items", "codex_message_items")
_MEMORY_BLOCK = re.compile(r"<\s*memory-context\s*>.*?</\s*memory-context\s*>", re.IGNORECASE | re.DOTALL)
_MEMORY_NOTE = re.compile(
    r"\[System note:\s*The following is recalled memory context,\s*NOT new user input\."
    r"\s*Treat as[^\]]*\]\s*",
    re.IGNORECASE,
)
_MEMORY_TAG = re.compile(r"</?\s*memory-context\s*>", re.IGNORECASE)


def without_memory(text: str) -> str:
    """The text without recalled-memory blocks, their announcement and stray tags."""
    return _MEMORY_TAG.sub("", _MEMORY_NOTE.sub("", _MEMORY_BLOCK.sub("", text))).strip()


def _dumped(value: Any) -> str | None:
    return json.dumps(value) if value else None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _calls(tool_calls: Any) -> int:
    if not tool_calls:
        return 0
    return len(tool_calls) if isinstance(tool_calls, list) else 1


class Messages(Base):
    """Messages of a session."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
    ) -> int:
        """One message in one transaction: the row, the counters, both indexes by trigger; its id."""
        details = _dumped(reasoning_details)
        items, message_items = _dumped(codex_reasoning_items), _dumped(codex_message_items)
        calls, count = _dumped(tool_calls), _calls(tool_calls)

        def write(conn: sqlite3.Connection) -> int:
            stored = self._encode_content(content)
            row = (session_id, role, stored, tool_call_id, calls, tool_name, time.time(), token_count)
            more = (finish_reason, reasoning, reasoning_content, details, items, message_items)
            message_id = conn.execute(_INSERT, row + more).lastrowid
            conn.execute(
                "UPDATE sessions SET message_count = message_count + 1,"
                " tool_call_count = tool_call_count + ? WHERE id = ?",
                (count, session_id),
            )
            return int(message_id or 0)

        return self._execute_write(write)

    def replace_messages(self, session_id: str, messages: list[Message]) -> None:
        """Delete the session's messages and insert these, in one transaction."""

        def write(conn: sqlite3.Connection) -> None:
            conn.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            now = time.time()
            total_calls = 0
            for message in messages:
                get = message.get
                calls = get("tool_calls")
                total_calls += _calls(calls)
                row = (
                    session_id, get("role", "unknown"), self._encode_content(get("content")),
                    get("tool_call_id"), _dumped(calls), get("tool_name"), get("timestamp") or now,
                    get("token_count"), get("finish_reason"), get("reasoning"), get("reasoning_content"),
                    *(_dumped(get(name)) for name in _JSON_COLUMNS),
                )  # fmt: skip
                conn.execute(_INSERT, row)
                now += 1e-6
            conn.execute(
                "UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE id = ?",
                (len(messages), total_calls, session_id),
            )

        self._execute_write(write)

    def clear_messages(self, session_id: str) -> None:
        """Delete the session's messages and set its counters to 0."""

        def write(conn: sqlite3.Connection) -> None:
            conn.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            conn.execute(
                "UPDATE sessions SET message_count = 0, tool_call_count = 0 WHERE id = ?", (session_id,)
            )

        self._execute_write(write)

    def get_messages(self, session_id: str) -> list[Message]:
        """All columns of the session's messages by time and id, content and tool calls decoded."""
        sql = "SELECT * FROM messages WHERE session_id = ? ORDER BY timestamp, id"
        return [self._as_dict(row) for row in self._rows(sql, (session_id,))]

    def _as_dict(self, row: sqlite3.Row) -> Message:
        message = dict(row)
        message["content"] = self._decode_content(message["content"])
        if message["tool_calls"]:
            message["tool_calls"] = _loaded(message["tool_calls"]) or []
        return message

    def get_messages_as_conversation(self, session_id: str, include_ancestors: bool = False) -> list[Message]:
        """The messages in the form that a model is called with."""
        ids = self._ancestors(session_id) if include_ancestors else [session_id]
        marks = ",".join("?" for _ in ids)
        sql = f"SELECT {_REPLAYED} FROM messages WHERE session_id IN ({marks}) ORDER BY timestamp, id"
        replay: list[Message] = []
        for row in self._rows(sql, ids):
            message = self._replayed(row)
            if include_ancestors and _repeats_last_user(replay, message):
                continue
            replay.append(message)
        return replay

    def _replayed(self, row: sqlite3.Row) -> Message:
        content = self._decode_content(row["content"])
        if row["role"] in ("user", "assistant") and isinstance(content, str):
            content = without_memory(content)
        message: Message = {"role": row["role"], "content": content}
        if row["tool_call_id"]:
            message["tool_call_id"] = row["tool_call_id"]
        if row["tool_name"]:
            message["tool_name"] = row["tool_name"]
        if row["tool_calls"]:
            message["tool_calls"] = _loaded(row["tool_calls"]) or []
        if row["role"] == "assistant":
            for name in ("finish_reason", "reasoning"):
                if row[name]:
                    message[name] = row[name]
            if row["reasoning_content"] is not None:
                message["reasoning_content"] = row["reasoning_content"]
            for name in _JSON_COLUMNS:
                if row[name]:
                    message[name] = _loaded(row[name])
        return message

    def _ancestors(self, session_id: str) -> list[str]:
        """The session and its parents, root first; at most 100."""
        chain: list[str] = []
        current: str | None = session_id
        while current and current not in chain and len(chain) < 100:
            chain.append(current)
            current = self._value("SELECT parent_session_id FROM sessions WHERE id = ?", (current,))
        return chain[::-1]

    def get_messages_around(self, session_id: str, around_message_id: int, window: int = 5) -> dict[str, Any]:
        """``window`` messages on each side of one, by id, and how many were there."""
        anchor = "SELECT 1 FROM messages WHERE id = ? AND session_id = ?"
        if self._row(anchor, (around_message_id, session_id)) is None:
            return {"window": [], "messages_before": 0, "messages_after": 0}
        before = self._rows(
            "SELECT * FROM messages WHERE session_id = ? AND id <= ? ORDER BY id DESC LIMIT ?",
            (session_id, around_message_id, window + 1),
        )
        after = self._rows(
            "SELECT * FROM messages WHERE session_id = ? AND id > ? ORDER BY id ASC LIMIT ?",
            (session_id, around_message_id, window),
        )
        found = [self._as_dict(row) for row in [*reversed(before), *after]]
        return {"window": found, "messages_before": len(before) - 1, "messages_after": len(after)}

    def get_anchored_view(
        self,
        session_id: str,
        around_message_id: int,
        window: int = 5,
        bookend: int = 3,
        keep_roles: tuple[str, ...] | None = ("user", "assistant"),
    ) -> dict[str, Any]:
        """A window as `get_messages_around`, with the first and last messages of the session beside it."""
        view = self.get_messages_around(session_id, around_message_id, window)
        view.update(bookend_start=[], bookend_end=[])
        if not view["window"]:
            return view
        low, high = view["window"][0]["id"], view["window"][-1]["id"]
        roles = list(keep_roles or ())
        kept = f" AND role IN ({','.join('?' for _ in roles)})" if roles else ""
        sql = f"SELECT * FROM messages WHERE session_id = ?{kept} AND length(content) > 0"
        start = self._rows(f"{sql} AND id < ? ORDER BY id ASC LIMIT ?", (session_id, *roles, low, bookend))
        end = self._rows(f"{sql} AND id > ? ORDER BY id DESC LIMIT ?", (session_id, *roles, high, bookend))
        view["bookend_start"] = [self._as_dict(row) for row in start]
        view["bookend_end"] = [self._as_dict(row) for row in reversed(end)]
        if roles:
            view["window"] = [
                message
                for message in view["window"]
                if message["role"] in roles or message["id"] == around_message_id
            ]
        return view

    def message_count(self, session_id: str | None = None) -> int:
        """Rows of one session, or of the file."""
        if session_id is None:
            return int(self._value("SELECT COUNT(*) FROM messages"))
        return int(self._value("SELECT COUNT(*) FROM messages WHERE session_id = ?", (session_id,)))


def _repeats_last_user(replay: list[Message], message: Message) -> bool:
    """Whether ``message`` is the same user text as the last user message, with no answer between."""
    if message["role"] != "user":
        return False
    for earlier in reversed(replay):
        if earlier["role"] == "user":
            return bool(earlier["content"] == message["content"])
        if earlier["role"] == "assistant":
            return False
    return False
