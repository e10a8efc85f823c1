"""A page of hits as the dicts that ``search_messages`` returns: columns, snippet, context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apsw

from hermes_state._fastpath import searchable
from hermes_state.store.rows import tuples

from .plan import Plan
from .snippet import marker

CONTEXT_CHARS = 200
"""Characters of a neighbour's content that a hit's context shows."""

MULTIMODAL = "[multimodal content]"

_MARKER = "\x00json:"
_CHUNK = 200
# Of a neighbour the content as bytes, 4 a character at most; all of it where it is structured, since JSON
# cannot be read from its beginning.
_BEGINNING = (
    "CASE WHEN substr(CAST({0}.content AS BLOB), 1, 6) = x'006a736f6e3a' THEN CAST({0}.content AS BLOB)"
    " ELSE substr(CAST({0}.content AS BLOB), 1, 804) END"
)
# One row a hit, with the message before it by id in its session, and the one after.
_HITS_SQL = f"""\
SELECT m.id, m.session_id, m.role, m.timestamp, m.tool_name, s.source, s.model, s.started_at, m.content,
    m.tool_calls, b.id, b.role, {_BEGINNING.format("b")}, a.id, a.role, {_BEGINNING.format("a")}
FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value CROSS JOIN sessions s ON s.id = m.session_id
LEFT JOIN messages b ON b.id = (
    SELECT max(p.id) FROM messages p WHERE p.session_id = m.session_id AND p.id < m.id)
LEFT JOIN messages a ON a.id = (
    SELECT min(n.id) FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id)
"""  # noqa: S608 - constant text


def page(conn: apsw.Connection, ids: list[int], plan: Plan) -> list[dict[str, Any]]:
    """The hits ``ids`` in that order; ids whose message or session is gone are left out."""
    out: list[dict[str, Any]] = []
    if not ids:
        return out
    snippet = marker(plan.wanted).snippet
    for chunk in _chunks(ids):
        found = {row[0]: row for row in tuples(conn, _HITS_SQL, (json.dumps(chunk),))}
        for row in [found[row_id] for row_id in chunk if row_id in found]:
            row_id, session_id, role, stamp, tool_name, source, model, started, content, calls, *beside = row
            before, before_role, before_content, after, after_role, after_content = beside
            context = [{"role": role, "content": _shown(content)}]
            if before is not None:
                context.insert(0, {"role": before_role, "content": _shown(before_content)})
            if after is not None:
                context.append({"role": after_role, "content": _shown(after_content)})
            out.append(
                {
                    "id": row_id,
                    "session_id": session_id,
                    "role": role,
                    "timestamp": stamp,
                    "tool_name": tool_name,
                    "snippet": snippet(searchable.text(content, tool_name, calls)),
                    "context": context,
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


def _shown(content: object) -> str:
    """The beginning of a stored content: NUL as a space, structured content by its text parts."""
    if content is None:
        return ""
    if isinstance(content, bytes):
        content = content.decode("utf-8", "replace")
    elif not isinstance(content, str):
        content = str(content)
    if content.startswith(_MARKER):
        try:
            shown = " ".join(searchable.parts(json.loads(content[len(_MARKER) :]))).strip() or MULTIMODAL
        except (ValueError, RecursionError):
            shown = content
        shown = shown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    else:
        shown = content
    return shown[:CONTEXT_CHARS].replace("\x00", " ")
