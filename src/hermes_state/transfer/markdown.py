"""A conversation as Markdown, piece by piece, for people to read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

Record = dict[str, Any]
_FENCES = re.compile("`{3,}")
_ABOUT = (
    ("id", "Session"),
    ("source", "Source"),
    ("model", "Model"),
    ("parent_session_id", "Continues"),
    ("started_at", "Started"),
    ("ended_at", "Ended"),
    ("end_reason", "End reason"),
)


def conversation(session: Record, messages: Iterable[Record]) -> Iterator[str]:
    """The session's title and dates, then each message under a heading that names its role."""
    yield f"# {_one_line(session.get('title') or session['id'])}\n\n"
    for key, label in _ABOUT:
        value = _when(session[key]) if key.endswith("_at") else session.get(key)
        if value is not None:
            yield f"- {label}: {_one_line(value)}\n"
    for message in messages:
        yield "\n" + _message(message)


def _message(message: Record) -> str:
    role = _one_line(message.get("role") or "unknown").capitalize()
    tool = f" `{_one_line(message['tool_name'])}`" if message.get("tool_name") else ""
    when = _when(message.get("timestamp"))
    parts = [f"## {role}{tool}" + (f" ({when})" if when else "")]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        parts.append("\n".join(f"> {line}" for line in str(reasoning).splitlines()))
    body = _content(message.get("content"))
    if body:
        parts.append(fenced(body) if message.get("role") == "tool" else body)
    parts += [_call(call) for call in message.get("tool_calls") or ()]
    return "\n\n".join(parts) + "\n"


def _content(content: Any) -> str:
    """A text as it is; of a list its text parts, and what stands for each other part."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return fenced(_json(content), "json")
    return "\n\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            return str(part["text"])
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str):
            return "*[image in the message]*" if url.startswith("data:") else f"![image](<{_one_line(url)}>)"
        return f"*[{_one_line(part.get('type') or 'part')}]*"
    return fenced(_json(part), "json")


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return fenced(_json(call), "json")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _json(arguments)
    return f"Calls `{_one_line(function.get('name') or '')}`\n\n{fenced(text, 'json')}"


def fenced(text: str, language: str = "") -> str:
    """``text`` in a code block whose fence is longer than any inside it."""
    longest = max((len(found) for found in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def _when(seconds: Any) -> str | None:
    """A time in UTC, ISO 8601 to the second; None where it is none."""
    if not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return None
