"""Pure twin of the ``decode`` kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ._encode_py import decode_content
from ._json_parse_py import loads

CONVERSATION_COLUMNS: Final = (
    "role",
    "content",
    "tool_call_id",
    "tool_name",
    "tool_calls",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
"""Order of the columns in the rows that ``rows_to_conversation`` takes."""

# Possessive and atomic: no input makes these patterns look at a character more than a few times.
_TAG = re.compile(r"<(/?)\s*+memory-context(?:\s[^<>]*+)?>", re.IGNORECASE)
_NOTE = re.compile(
    r"\[System note:\s*+The following is recalled memory context,\s*+NOT new user input\.\s*+"
    r"Treat as\s(?>[^\[\]]*?data)[^\[\]]*+\]\s*+",
    re.IGNORECASE,
)


def rows_to_messages(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return each row as a dict of its columns in order, as ``get_messages`` gives them.

    ``content`` is decoded; ``tool_calls`` is parsed where it is set, and is []
    where its JSON is broken. All other columns, known or not, are as stored.
    Raises ValueError where a row is not as long as ``names``.
    """
    messages = []
    for row in rows:
        message = dict(zip(names, row, strict=True))
        if "content" in message:
            message["content"] = decode_content(message["content"])
        calls = message.get("tool_calls")
        if calls:
            message["tool_calls"] = parsed(calls, [])
        messages.append(message)
    return messages


def rows_to_conversation(rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows of CONVERSATION_COLUMNS as messages for replay to a model.

    Every message has ``role`` and ``content``; ``tool_call_id``, ``tool_name``
    and ``tool_calls`` are there where set; assistant messages have also
    ``finish_reason``, ``reasoning``, ``reasoning_content`` (where not NULL),
    ``reasoning_details``, ``codex_reasoning_items`` and ``codex_message_items``,
    the last three parsed. Broken JSON is [] in ``tool_calls`` and None in the
    other three. Text of users and assistants passes ``strip_memory``.
    """
    return [_conversation_message(*row) for row in rows]


def strip_memory(text: str) -> str:
    """Return ``text`` without recalled memory and without white space at its ends.

    What goes: each ``<memory-context>`` block up to the next closing tag, the
    bracketed system note that announces recalled memory, and tags of that name
    that are left over. Takes time linear in the length of the text.
    """
    if "<" in text:
        text = _without_blocks(text)
    if "[" in text:
        text = _NOTE.sub("", text)
    if "<" in text:
        text = _TAG.sub("", text)
    return text.strip()


def _without_blocks(text: str) -> str:
    kept: list[str] = []
    position = 0
    opened = -1
    for tag in _TAG.finditer(text):
        if opened < 0:
            if not tag[1]:
                opened = tag.start()
        elif tag[1]:
            kept.append(text[position:opened])
            position = tag.end()
            opened = -1
    kept.append(text[position:])
    return "".join(kept)


def _conversation_message(
    role: Any,
    content: Any,
    tool_call_id: Any,
    tool_name: Any,
    tool_calls: Any,
    finish_reason: Any,
    reasoning: Any,
    reasoning_content: Any,
    reasoning_details: Any,
    codex_reasoning_items: Any,
    codex_message_items: Any,
) -> dict[str, Any]:
    content = decode_content(content)
    if role in ("user", "assistant") and type(content) is str:
        content = strip_memory(content)
    message = {"role": role, "content": content}
    if tool_call_id:
        message["tool_call_id"] = tool_call_id
    if tool_name:
        message["tool_name"] = tool_name
    if tool_calls:
        message["tool_calls"] = parsed(tool_calls, [])
    if role != "assistant":
        return message
    if finish_reason:
        message["finish_reason"] = finish_reason
    if reasoning:
        message["reasoning"] = reasoning
    if reasoning_content is not None:
        message["reasoning_content"] = reasoning_content
    if reasoning_details:
        message["reasoning_details"] = parsed(reasoning_details, None)
    if codex_reasoning_items:
        message["codex_reasoning_items"] = parsed(codex_reasoning_items, None)
    if codex_message_items:
        message["codex_message_items"] = parsed(codex_message_items, None)
    return message


def parsed(stored: Any, broken: Any) -> Any:
    """Return what the JSON ``stored`` says, or ``broken`` where it is not JSON."""
    try:
        return loads(stored)
    except (ValueError, TypeError, RecursionError):
        return broken
