"""Conversations from a JSON Lines file, one session a line, read as a stream.

A record is ``{"id", "source", "messages": [...]}`` with, where known, ``model``,
``title``, ``parent`` (the id of an earlier record) and ``end_reason``. A message
has ``role`` and ``content`` (a string, a list or object, or null) and, where
known, the other keys of :data:`MESSAGE_KEYS`; ``timestamp`` is ISO 8601 (UTC
where it names no zone) or seconds since the epoch. Other keys are passed over.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

TEXT_KEYS: Final = ("tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content")
JSON_KEYS: Final = ("reasoning_details", "codex_reasoning_items", "codex_message_items")
MESSAGE_KEYS: Final = ("role", "content", "tool_calls", *TEXT_KEYS, *JSON_KEYS, "token_count", "timestamp")

_GZIP_MAGIC = b"\x1f\x8b"
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadRecord(ValueError):
    """A line is not a session of the form above; the text says why."""


@dataclass(frozen=True)
class Record:
    """One session of a file.

    Attributes:
        line: its line number, from 1.
        messages: dicts as ``append_messages`` takes them, ``timestamp`` in seconds since the epoch.
    """

    line: int
    id: str
    source: str
    model: str | None
    title: str | None
    parent: str | None
    end_reason: str | None
    messages: list[dict[str, Any]]

    @property
    def tool_calls(self) -> int:
        """How many tool calls the messages hold."""
        return sum(len(message.get("tool_calls") or ()) for message in self.messages)


@dataclass(frozen=True)
class Problem:
    """A line that was not taken, and why."""

    line: int
    reason: str


class Reader:
    """The records of a file, plain or gzip, in order; holds one line at a time.

    Attributes:
        path: the file.
        lines: lines read so far.
        unpacked: bytes of these lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self.unpacked = 0
        self._raw: io.BufferedReader | None = None

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self._raw.tell() if self._raw is not None and not self._raw.closed else 0

    def __iter__(self) -> Iterator[Record | Problem]:
        """Each line as a record, or as the problem it has; blank lines are passed over.

        A gzip file that is cut short or damaged ends with a problem. Raises
        OSError where the file cannot be read.
        """
        self.lines = self.unpacked = 0
        with self.path.open("rb") as self._raw:
            packed = self._raw.peek(2)[:2] == _GZIP_MAGIC
            stream: Any = gzip.GzipFile(fileobj=self._raw) if packed else self._raw
            lines = iter(stream)
            while True:
                try:
                    line = next(lines)
                except StopIteration:
                    return
                except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                    yield Problem(self.lines + 1, f"the gzip file is cut short or damaged here: {error}")
                    return
                self.lines += 1
                self.unpacked += len(line)
                if line.strip():
                    yield self._record(line)

    def _record(self, line: bytes) -> Record | Problem:
        try:
            return parse(line, self.lines)
        except BadRecord as error:
            return Problem(self.lines, str(error))


def parse(line: bytes, number: int) -> Record:
    """The session that a line holds.

    Raises:
        BadRecord: it holds none; the message says why.
    """
    try:
        given = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise BadRecord(f"not UTF-8: byte {error.start} of the line") from error
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadRecord("not a JSON object")
    if "messages" not in given:
        raise BadRecord("no 'messages': one session a line is read, as export --format sessions writes it")
    messages = given["messages"]
    if not isinstance(messages, list):
        raise BadRecord("'messages' is not a list")
    return Record(
        line=number,
        id=_name(given, "id"),
        source=_name(given, "source"),
        model=_text(given, "model"),
        title=_text(given, "title"),
        parent=_text(given, "parent"),
        end_reason=_text(given, "end_reason"),
        messages=[_message(message, index) for index, message in enumerate(messages)],
    )


def has_surrogate(text: str) -> bool:
    """Whether the text holds half a surrogate pair, which UTF-8 has no form for."""
    return _SURROGATE.search(text) is not None


def mended(text: str) -> str:
    """The text as UTF-8 can hold it: U+FFFD for each half of a surrogate pair."""
    return _SURROGATE.sub("\ufffd", text)


def _refuse(token: str) -> Any:
    raise ValueError(f"{token} is no JSON value")


def _text(given: dict[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRecord(f"{key!r} is not text")
    return value


def _name(given: dict[str, Any], key: str) -> str:
    value = _text(given, key)
    if not value:
        raise BadRecord(f"{key!r} is missing")
    if has_surrogate(value):
        raise BadRecord(f"{key!r} holds half a surrogate pair")
    return value


def _message(given: Any, index: int) -> dict[str, Any]:
    """A message's known keys, checked."""
    if not isinstance(given, dict):
        raise BadRecord(f"message {index} is not an object")
    try:
        if not _text(given, "role"):
            raise BadRecord("'role' is missing")
        for key in TEXT_KEYS:
            _text(given, key)
        if not isinstance(given.get("content"), str | list | dict | None):
            raise BadRecord("'content' is neither text, list, object nor null")
        if not isinstance(given.get("tool_calls"), list | None):
            raise BadRecord("'tool_calls' is not a list")
        if not _is_count(given.get("token_count")):
            raise BadRecord("'token_count' is not a whole number of 64 bits")
        message = {key: given[key] for key in MESSAGE_KEYS if given.get(key) is not None}
        if "timestamp" in message:
            message["timestamp"] = epoch(message["timestamp"])
    except BadRecord as error:
        raise BadRecord(f"message {index}: {error}") from error
    return message


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and -(2**63) <= value < 2**63)


def epoch(given: Any) -> float:
    """Seconds since the epoch of an ISO 8601 time (UTC where it names no zone) or of a number.

    Raises:
        BadRecord: it is neither.
    """
    try:
        if isinstance(given, str):
            when = datetime.fromisoformat(given)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        if type(given) in (int, float) and math.isfinite(given):
            return float(given)
    except (ValueError, OverflowError) as error:
        raise BadRecord(f"'timestamp' is not a time: {error}") from error
    raise BadRecord("'timestamp' is neither ISO 8601 nor a number")
