"""Sessions from a file into a store, and the proof that they are there."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hermes_state import SessionDB
from hermes_state.cli.records import JSON_KEYS, TEXT_KEYS, Problem, Reader, Record, mended

MOST_NAMED = 20
"""Differences and chains that are remembered by name; the rest is counted."""


class Accepted:
    """Which lines of a file were stored: one bit a line, however long the file is."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, line: int) -> None:
        """Note the line."""
        byte = line >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (line & 7)

    def __contains__(self, line: int) -> bool:
        byte = line >> 3
        return byte < len(self._bits) and bool(self._bits[byte] >> (line & 7) & 1)


@dataclass
class Loaded:
    """What went in.

    Attributes:
        store_seconds: time inside the store's calls; ``seconds`` is the whole, reading included.
        titles_changed: titles that were cleaned, cut to 100 characters, or numbered because
            another session has the same.
        compressed: ids of the first sessions that ended by compression.
        continued: the first such session that has a continuation, or None.
    """

    sessions: int = 0
    messages: int = 0
    tool_calls: int = 0
    refused: int = 0
    titles_changed: int = 0
    seconds: float = 0.0
    store_seconds: float = 0.0
    accepted: Accepted = field(default_factory=Accepted)
    compressed: list[str] = field(default_factory=list)
    continued: str | None = None


@dataclass
class Verified:
    """What came out again, compared with the file read anew.

    Attributes:
        equal: messages that are the same in every column that the file gives.
        mended: messages that are the same but for U+FFFD where the file has half a surrogate pair.
        differences: the first of what differs, as text; ``different`` counts all.
    """

    sessions: int = 0
    equal: int = 0
    mended: int = 0
    different: int = 0
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether nothing differs."""
        return self.different == 0

    def differs(self, what: str) -> None:
        """Note a difference."""
        self.different += 1
        if len(self.differences) < MOST_NAMED:
            self.differences.append(what)


def load(
    db: SessionDB,
    reader: Reader,
    on_problem: Callable[[Problem], None],
    on_record: Callable[[Record], None],
) -> Loaded:
    """Store every session of the file; a line that cannot be stored is reported and left out.

    Errors of the store itself (no room, no lock) are raised.
    """
    loaded = Loaded()
    started = time.perf_counter()
    for item in reader:
        problem = item if isinstance(item, Problem) else _store(db, item, loaded)
        if problem is not None:
            loaded.refused += 1
            on_problem(problem)
        elif isinstance(item, Record):
            on_record(item)
    loaded.seconds = time.perf_counter() - started
    return loaded


def _store(db: SessionDB, record: Record, loaded: Loaded) -> Problem | None:
    """One session with its messages, title and end; the problem, if it was refused as a whole."""
    started = time.perf_counter()
    try:
        if db.get_session(record.id) is not None:
            return Problem(record.line, f"session {record.id!r} is in the store already")
        if record.parent is not None and db.get_session(record.parent) is None:
            return Problem(record.line, f"its parent {record.parent!r} is in no line before it")
        db.create_session(record.id, record.source, model=record.model, parent_session_id=record.parent)
        try:
            db.append_messages(record.id, record.messages)
        except (TypeError, ValueError, sqlite3.DataError) as error:
            db.delete_session(record.id)
            return Problem(record.line, str(error))
        _finish(db, record, loaded)
    finally:
        loaded.store_seconds += time.perf_counter() - started
    loaded.sessions += 1
    loaded.messages += len(record.messages)
    loaded.tool_calls += record.tool_calls
    loaded.accepted.add(record.line)
    return None


def _finish(db: SessionDB, record: Record, loaded: Loaded) -> None:
    """The session's title and end, and its place in a chain."""
    title = db.sanitize_title(record.title[: db.MAX_TITLE_LENGTH]) if record.title else None
    if title is not None:
        title = db.set_or_number_title(record.id, title)
    if title != record.title:
        loaded.titles_changed += 1
    if record.end_reason is not None:
        db.end_session(record.id, record.end_reason)
    if record.end_reason == "compression" and len(loaded.compressed) < MOST_NAMED:
        loaded.compressed.append(record.id)
    if loaded.continued is None and record.parent in loaded.compressed:
        loaded.continued = record.parent


def verify(db: SessionDB, reader: Reader, loaded: Loaded) -> Verified:
    """Read the file again and compare every stored session and message with it."""
    found = Verified()
    started = time.perf_counter()
    for item in reader:
        if isinstance(item, Record) and item.line in loaded.accepted:
            _compare(db, item, found)
    for what, counted, expected in (
        ("sessions", db.session_count(), loaded.sessions),
        ("messages", db.message_count(), loaded.messages),
    ):
        if counted != expected:
            found.differs(f"the store counts {counted} {what}, the file {expected}")
    found.seconds = time.perf_counter() - started
    return found


def _compare(db: SessionDB, record: Record, found: Verified) -> None:
    """One session and its messages against its record."""
    found.sessions += 1
    row: dict[str, Any] = db.get_session(record.id) or {}
    expected = {
        "source": record.source,
        "model": None if record.model is None else mended(record.model),
        "parent_session_id": record.parent,
        "end_reason": record.end_reason,
        "message_count": len(record.messages),
        "tool_call_count": record.tool_calls,
    }
    for key, value in expected.items():
        if row.get(key) != value:
            found.differs(f"line {record.line}: {key} is {row.get(key)!r}, not {value!r}")
    stored = db.get_messages(record.id)
    if len(stored) != len(record.messages):
        found.differs(f"line {record.line}: {len(stored)} messages, not {len(record.messages)}")
    for index, (given, got) in enumerate(zip(record.messages, stored, strict=False)):
        if not (wrong := different_columns(given, got)):
            found.equal += 1
        elif not different_columns(_as_utf8(given), got):
            found.mended += 1
        else:
            found.differs(f"line {record.line}, message {index}: {', '.join(wrong)}")


def different_columns(given: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """The columns in which a message of ``get_messages`` is not what was given.

    A column that was not given must be NULL, but the timestamp, which is then
    the moment of storing. An empty list in a JSON column is NULL.
    """
    wrong = [
        key
        for key in ("role", "content", *TEXT_KEYS, "token_count")
        if not _same(given.get(key), got.get(key))
    ]
    if not _same(given.get("tool_calls") or None, got.get("tool_calls")):
        wrong.append("tool_calls")
    for key in JSON_KEYS:
        stored = got.get(key)
        value = given.get(key) or None
        if not _same(value, stored) and not (stored and _same(value, json.loads(stored))):
            wrong.append(key)
    stamp = got.get("timestamp")
    if not isinstance(stamp, float) or given.get("timestamp", stamp) != stamp:
        wrong.append("timestamp")
    return wrong


def _same(left: Any, right: Any) -> bool:
    """Equal in value, type and order of keys, all the way down."""
    if isinstance(left, list | dict) and type(left) is type(right):
        return json.dumps(left) == json.dumps(right)
    return type(left) is type(right) and bool(left == right)


def _as_utf8(message: dict[str, Any]) -> dict[str, Any]:
    return {key: mended(value) if isinstance(value, str) else value for key, value in message.items()}
