"""The short text a list shows for a session: how its first user message begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from hermes_state._fastpath.encode import MARKER, decode_content
from hermes_state.store.rows import rows, scalar
from hermes_state.store.values import json_list

LENGTH = 60
"""Characters shown; a longer text ends in ``...``."""

_HEAD_BYTES = 4096
_MARKER = MARKER.encode()
_TEXT_KEYS = ("text", "content")

# substr() of TEXT ends at a NUL, that of a BLOB does not (but is NULL for an empty one).
_HEADS = f"""\
SELECT q.session, m.id,
       COALESCE(substr(CAST(m.content AS BLOB), 1, {_HEAD_BYTES}), x''), octet_length(m.content)
FROM (SELECT e.value AS session,
             (SELECT f.id FROM messages f
              WHERE f.session_id = e.value AND f.role = 'user' AND f.content IS NOT NULL
              ORDER BY f.id LIMIT 1) AS first
      FROM json_each(?) e) q
JOIN messages m ON m.id = q.first
"""  # noqa: S608 -- the only thing put in is a number of this module

_WHOLE = "SELECT CAST(content AS BLOB) FROM messages WHERE id = ?"


def previews(conn: apsw.Connection, ids: Iterable[Any]) -> dict[str, str]:
    """Session id -> preview, for those of ``ids`` that have a user message with content.

    A content list is shown by its text parts. NUL and line ends are shown as spaces.
    """
    shown: dict[str, str] = {}
    for session_id, message_id, head, size in rows(conn, _HEADS, (json_list(ids),))[1]:
        text = "" if head.startswith(_MARKER) else shorten(head.decode("utf-8", "replace"))
        if len(text) <= LENGTH and (size > len(head) or head.startswith(_MARKER)):
            whole = scalar(conn, _WHOLE, (message_id,)).decode("utf-8", "replace")
            text = shorten(content_text(decode_content(whole)))
        shown[session_id] = text
    return shown


def shorten(text: str) -> str:
    """The first 60 characters of ``text`` on one line, with ``...`` when there are more."""
    line = text.translate({0: " ", 10: " ", 13: " "}).strip()
    return line if len(line) <= LENGTH else line[:LENGTH] + "..."


def content_text(content: Any) -> str:
    """The text of a decoded content: itself, or the text parts of a list or dict joined by spaces."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return "" if content is None else str(content)
    parts = (part if isinstance(part, str) else _part_text(part) for part in content)
    return " ".join(part for part in parts if part)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return ""
    return next((value for key in _TEXT_KEYS if isinstance(value := part.get(key), str)), "")
