"""A conversation on the screen."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hermes_state.cli import output
from hermes_state.cli.text import clean, clean_block, count_text, when_text

Record = dict[str, Any]
LONGEST = 4_000
LONGEST_TOOL = 800
"""Characters of a text, and of a tool's result or arguments, that are shown unless all is asked for."""
_STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow", "system": "bold magenta"}


class Screen:
    """Prints a session's head and its messages, one at a time.

    Args:
        console: where.
        full: cut nothing, and show the reasoning.
    """

    def __init__(self, console: Console, *, full: bool) -> None:
        self._console = console
        self._full = full

    def head(self, row: Record) -> None:
        """The session's title and what is known of it."""
        self._line(clean(str(row["title"] or row["id"])), "bold")
        for name, value in (
            ("session", row["id"]),
            ("source", row["source"]),
            ("model", row["model"]),
            ("continues", row["parent_session_id"]),
            ("started", when_text(row["started_at"])),
            ("ended", f"{when_text(row['ended_at'])} ({row['end_reason']})" if row["ended_at"] else None),
            (
                "messages",
                f"{count_text(row['message_count'])}, {count_text(row['tool_call_count'])} tool calls",
            ),
            ("tokens", f"{count_text(row['input_tokens'])} in, {count_text(row['output_tokens'])} out"),
        ):
            if value:
                self._line(f"{name}: {clean(str(value))}", "dim")

    def message(self, message: Record) -> None:
        """One message: who and when, then what it says, calls and reasons."""
        role = str(message.get("role") or "unknown")
        head = Text(clean(role, 30), style=_STYLES.get(role, "bold"))
        if message.get("tool_name"):
            head.append(f" {clean(str(message['tool_name']), 80)}")
        head.append(f"  {when_text(message.get('timestamp'))}  #{message.get('id')}", style="dim")
        output.show(self._console, Text(), head)
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if reasoning and self._full:
            self._body(str(reasoning), LONGEST, style="dim italic")
        body = content_text(message.get("content"))
        if body:
            self._body(body, LONGEST_TOOL if role == "tool" else LONGEST)
        for call in message.get("tool_calls") or ():
            self._body(call_text(call), LONGEST_TOOL, style="yellow")

    def _line(self, text: str, style: str) -> None:
        output.show(self._console, Text(text, style=style))

    def _body(self, text: str, longest: int, style: str = "") -> None:
        left = 0 if self._full else len(text) - longest
        shown = Text(clean_block(text[:longest] if left > 0 else text), style=style)
        if left > 0:
            shown.append(f"\n... ({left:,} characters more: --full)", style="dim")
        output.show(self._console, Padding(shown, (0, 0, 0, 2)))


def content_text(content: Any) -> str:
    """A text as it is; of a list its text parts, and what stands for each other part."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return _json(content)
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type') or 'part'}]"
    return _json(part)


def call_text(call: Any) -> str:
    """A tool call as ``name(arguments)``."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"calls {_json(call)}"
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else _json(arguments)
    return f"calls {function.get('name') or '?'}({text})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
