"""What the model test draws from, and what its model knows of a session."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SETTINGS = settings(
    max_examples=1_000 if LONG else 60,
    stateful_step_count=60 if LONG else 40,
    derandomize=not LONG,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

IDS = st.sampled_from([*["a", "ab", "a_b"] * 3, "s*", "日本", "z"])
CHATS = st.sampled_from(["1", "2"])
SOURCES = st.sampled_from(["cli", "telegram", "unknown"])
REASONS = st.sampled_from(["compression", "branched", "user_exit"])
TITLES = st.sampled_from(["foo", "foo #2", "foo #7", "FOO", "bar", "  bar  ", "", "广西"])
PIECES = [
    "docker",
    "Docker",
    "kubernetes",
    "部署",
    "桂林",
    "youer",
    "cafe",
    "café",
    "修改youer服务端",
    "x-y",
    "42",
    "\x00",
    "的",
]
TEXT = st.lists(st.sampled_from(PIECES), max_size=4).flatmap(
    lambda words: st.sampled_from([" ", "", ", "]).map(lambda gap: gap.join(words))
)
CONTENT = st.one_of(
    TEXT,
    TEXT,
    st.none(),
    st.just("\x00json:[1]"),
    st.lists(TEXT.map(lambda text: {"type": "text", "text": text}), max_size=2),
    st.just([{"type": "image_url", "image_url": {"url": "data:image/png;base64,docker"}}]),
    st.just({}),
)
CALLS = st.one_of(
    st.none(),
    st.none(),
    st.lists(
        TEXT.map(lambda text: {"id": "c", "arguments": json.dumps({"q": text})}), min_size=1, max_size=2
    ),
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": CONTENT},
    optional={
        "tool_calls": CALLS,
        "tool_name": st.sampled_from(["terminal", "read_部署"]),
        "reasoning": st.sampled_from(["", "why"]),
        "reasoning_details": st.just([{"d": 1}]),
        "token_count": st.integers(0, 9),
    },
)
STAMPED = st.builds(
    lambda message, stamp: {**message, "timestamp": stamp}, MESSAGE, st.sampled_from([1.0, 2.5, 1e9])
)
ASKED = [
    "docker", "kubernetes", "部署", "部", "桂林", "服务端", "youer", "cafe", "dock*", '"docker kubernetes"',
    "x-y", "42", "docker NOT 部署", "部署 NOT docker", "docker OR 桂", "youer 服务", "NOT docker",
    "terminal", "read_部署", "c", "json", "docker AND kubernetes OR 的", '"youer 42"', "修改youer",
    "image_url", "*", "",
]  # fmt: skip
QUERIES = st.sampled_from(ASKED)
INSERT_SQL = "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', ?, 7.0)"
UPDATE_SQL = "UPDATE messages SET content = ? WHERE session_id = ? AND role = 'user'"
DELETE_SQL = "DELETE FROM messages WHERE session_id = ? AND role = 'tool'"
COUNTS = st.one_of(st.none(), st.integers(0, 5))


@dataclass
class Session:
    """What the model knows of a session."""

    source: str
    model: str | None = None
    parent: str | None = None
    end_reason: str | None = None
    ended: bool = False
    title: str | None = None
    counted: int = 0
    calls: int = 0
    tokens: int = 0
    handoff: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)


def calls_of(messages: list[dict[str, Any]]) -> int:
    return sum(len(message.get("tool_calls") or ()) for message in messages)


def expected_fields(message: dict[str, Any]) -> dict[str, Any]:
    """The columns that a stored message must show for one that was given."""
    shown = {key: value for key, value in message.items() if key not in ("id", "session_id")}
    details = shown.get("reasoning_details")
    if isinstance(details, list):
        shown["reasoning_details"] = json.dumps(details)
    return shown
