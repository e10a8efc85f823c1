"""OpenAI's chat format: ``{"messages": [...]}`` a line, as its fine-tuning files and request logs have it.

Source of the form: OpenAI's API reference, "Create chat completion", request
body ``messages``. Roles are kept. A tool's ``name`` is our ``tool_name``; the
older ``function_call`` becomes a tool call.
"""

from __future__ import annotations

import hashlib
from typing import Any

from hermes_state._fastpath import json_text

from .jsonl import BadLine


def session_id(messages: list[Any]) -> str:
    """The id of a conversation that has none: the same conversation has the same one in every file.

    Raises:
        BadLine: it is nested too deeply to be written.
    """
    try:
        text = json_text.dumps(messages)
    except ValueError as error:
        raise BadLine(str(error)) from error
    return f"chat_{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def message(given: dict[str, Any]) -> dict[str, Any]:
    """The message under our names; other keys as they are."""
    made = dict(given)
    if made.get("role") in ("tool", "function") and isinstance(made.get("name"), str):
        made.setdefault("tool_name", made.pop("name"))
    call = made.get("function_call")
    if isinstance(call, dict) and not made.get("tool_calls"):
        made["tool_calls"] = [{"type": "function", "function": made.pop("function_call")}]
    return made
