"""Conversations for tests: the shared data beside the repository, or the package's own sample.

Stdlib only. A session is a dict ``{"id", "source", "messages", ...}`` with
``model``, ``title``, ``started_at`` (ISO 8601) where known, and in the sample
also ``parent`` and ``end_reason``. A message has ``role`` and ``content`` (a
string, a list of parts, or None), and ``tool_calls`` (a list), ``tool_call_id``,
``tool_name``, ``reasoning``, ``finish_reason``, ``timestamp`` (ISO 8601) where known.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
SAMPLE = ROOT / "src" / "hermes_state" / "cli" / "sample" / "conversations.jsonl"
FILES = {
    "agent": "agent_sessions.jsonl.gz",
    "cjk": "cjk_sessions.jsonl.gz",
    "odd": "odd_messages.jsonl.gz",
}
#: Keys of a message that ``SessionDB.append_message`` takes under the same name.
APPEND_KEYS = (
    "role",
    "content",
    "tool_name",
    "tool_calls",
    "tool_call_id",
    "finish_reason",
    "reasoning",
)


def has_shared(name: str = "all") -> bool:
    """Whether the shared files of that name are here (else `sessions` gives the sample)."""
    return all((SHARED / file).is_file() for file in _files(name))


def sessions(name: str = "all", limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The sessions of ``agent``, ``cjk``, ``odd``, ``all`` or ``sample``, in file order, at most ``limit``.

    Where the shared files are absent the sample stands in: for ``cjk`` its
    sessions with Chinese, Japanese or Korean text, for the others all of it.
    """
    yield from islice(_every(name), limit)


def message_kwargs(message: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``append_message`` after the session id; ``timestamp`` has no place there."""
    return {key: message[key] for key in APPEND_KEYS if key in message}


def replace_dict(message: dict[str, Any]) -> dict[str, Any]:
    """A message for ``replace_messages``: as `message_kwargs`, with the time stamp in Unix seconds."""
    given = message_kwargs(message)
    if message.get("timestamp"):
        given["timestamp"] = epoch(message["timestamp"])
    return given


def session_kwargs(session: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of ``create_session`` after id and source."""
    given = {"model": session.get("model"), "parent_session_id": session.get("parent")}
    return {key: value for key, value in given.items() if value is not None}


def epoch(text: str) -> float:
    """Unix seconds of an ISO 8601 time; one without a zone counts as UTC."""
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def is_cjk(text: str) -> bool:
    """Whether a Han, kana or Hangul character is in the text."""
    return any(
        0x3040 <= code <= 0x30FF
        or 0x3400 <= code <= 0x4DBF
        or 0x4E00 <= code <= 0x9FFF
        or 0xAC00 <= code <= 0xD7A3
        or 0xFF66 <= code <= 0xFF9D
        or 0x20000 <= code <= 0x323AF
        for code in map(ord, text)
    )


def _files(name: str) -> tuple[str, ...]:
    return tuple(FILES.values()) if name == "all" else (FILES[name],)


def _every(name: str) -> Iterator[dict[str, Any]]:
    if name != "sample" and has_shared(name):
        for file in _files(name):
            with gzip.open(SHARED / file, "rt", encoding="utf-8") as lines:
                yield from map(json.loads, lines)
        return
    with SAMPLE.open(encoding="utf-8") as lines:
        for line in lines:
            if name != "cjk" or is_cjk(json.loads(line)["title"]):
                yield json.loads(line)
