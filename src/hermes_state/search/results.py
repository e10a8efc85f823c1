"""A page of hits as the dicts that ``search_messages`` returns: columns, snippet, context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apsw

from hermes_state._fastpath import searchable
from hermes_state.store.rows import rows

from .plan import Plan
from .snippet import Marker

CONTEXT_CHARS = 200
"""Characters of a neighbour's content that a hit's context shows."""

MULTIMODAL = "[multimodal content]"

_MARKER = b"\x00json:"
_CHUNK = 200
_HITS_SQL = """\
SELECT m.id, m.session_id, m.role, m.timestamp, m.tool_name, s.source, s.model, s.started_at, m.content,
    m.tool_calls
FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value JOIN sessions s ON s.id = m.session_id
ORDER BY j.key"""

# For each hit: the message before it by id in its session, itself, the message after. Content as bytes,
# 4 a character at most; all of it where it is structured, since JSON cannot be read from its beginning.
_CONTEXT_SQL = """\
SELECT m.id, n.role,
    CASE WHEN substr(CAST(n.content AS BLOB), 1, 6) = x'006a736f6e3a' THEN CAST(n.content AS BLOB)
    ELSE substr(CAST(n.content AS BLOB), 1, 804) END
FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value
CROSS JOIN messages n ON n.id IN (
    (SELECT max(b.id) FROM messages b WHERE b.session_id = m.session_id AND b.id < m.id),
    m.id,
    (SELECT min(a.id) FROM messages a WHERE a.session_id = m.session_id AND a.id > m.id))
ORDER BY j.key, n.id"""


def page(conn: apsw.Connection, ids: list[int], plan: Plan) -> list[dict[str, Any]]:
    """The hits ``ids`` in that order; ids whose message or session is gone are left out."""
    out: list[dict[str, Any]] = []
    if not ids:
        return out
    marker = Marker(plan.wanted)
    for chunk in _chunks(ids):
        bound = json.dumps(chunk)
        contexts = _contexts(conn, bound)
        _, found = rows(conn, _HITS_SQL, (bound,))
        for row_id, session_id, role, stamp, tool_name, source, model, started, content, calls in found:
            out.append(
                {
                    "id": row_id,
                    "session_id": session_id,
                    "role": role,
                    "timestamp": stamp,
                    "tool_name": tool_name,
                    "snippet": marker.snippet(searchable.text(content, tool_name, calls)),
                    "context": contexts.get(row_id, []),
                    "source": source,
                    "model": model,
                    "session_started": started,
                }
            )
    return out


def _chunks(ids: list[int]) -> Iterator[list[int]]:
    """Without a limit a search may hit every row; their texts are read some at a time."""
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _contexts(conn: apsw.Connection, bound: str) -> dict[int, list[dict[str, Any]]]:
    out: dict[int, list[dict[str, Any]]] = {}
    _, found = rows(conn, _CONTEXT_SQL, (bound,))
    for row_id, role, content in found:
        out.setdefault(row_id, []).append({"role": role, "content": _shown(content)})
    return out


def _shown(content: bytes | None) -> str:
    """The beginning of a stored content as text: NUL as a space, structured content by its text parts."""
    if content is None:
        return ""
    if content.startswith(_MARKER):
        try:
            value = json.loads(content[len(_MARKER) :])
        except (ValueError, RecursionError):
            value = content.decode("utf-8", "replace")
        shown = " ".join(searchable.parts(value)).strip() or MULTIMODAL
        shown = shown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    else:
        shown = content.decode("utf-8", "replace")
    return shown[:CONTEXT_CHARS].replace("\x00", " ")
