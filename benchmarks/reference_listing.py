"""The reference store's lists and lineage: rich lists, compression tips, resume.

See `benchmarks.reference`. Stdlib only.
"""

from __future__ import annotations

from typing import Any

from .reference_base import Base

Session = dict[str, Any]

_PREVIEW = """COALESCE((SELECT SUBSTR(REPLACE(REPLACE(m.content, X'0A', ' '), X'0D', ' '), 1, 63)
    FROM messages m WHERE m.session_id = s.id AND m.role = 'user' AND m.content IS NOT NULL
    ORDER BY m.timestamp, m.id LIMIT 1), '') AS _preview_raw"""
_LAST_ACTIVE = """COALESCE((SELECT MAX(m2.timestamp) FROM messages m2 WHERE m2.session_id = s.id),
    s.started_at) AS last_active"""
_NO_CHILDREN = """(s.parent_session_id IS NULL OR EXISTS (SELECT 1 FROM sessions p
    WHERE p.id = s.parent_session_id AND p.end_reason = 'branched' AND s.started_at >= p.ended_at))"""
_CHAINS = """WITH RECURSIVE chain(root_id, cur_id) AS (
    SELECT s.id, s.id FROM sessions s {where}
    UNION ALL
    SELECT c.root_id, child.id FROM chain c
    JOIN sessions parent ON parent.id = c.cur_id
    JOIN sessions child ON child.parent_session_id = c.cur_id
    WHERE parent.end_reason = 'compression' AND child.started_at >= parent.ended_at
), chain_max AS (
    SELECT root_id, MAX(COALESCE(
        (SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = cur_id),
        (SELECT ss.started_at FROM sessions ss WHERE ss.id = cur_id))) AS effective_last_active
    FROM chain GROUP BY root_id
)"""
_TIP_FIELDS = (
    "id",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "title",
    "last_active",
    "preview",
    "model",
    "system_prompt",
)


def _finished(row: Any) -> Session:
    """A listed row with its preview cut to 60 characters and dots."""
    session = dict(row)
    raw = (session.pop("_preview_raw") or "").strip()
    session["preview"] = raw[:60] + ("..." if len(raw) > 60 else "")
    return session


class Listing(Base):
    """Lists of sessions and the way through a lineage."""

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: list[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
    ) -> list[Session]:
        """Sessions with preview and last activity; compression roots under their tip."""
        clauses = [] if include_children else [_NO_CHILDREN]
        values: list[Any] = []
        if source:
            clauses.append("s.source = ?")
            values.append(source)
        if exclude_sources:
            clauses.append(f"s.source NOT IN ({','.join('?' for _ in exclude_sources)})")
            values += exclude_sources
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        if order_by_last_active:
            sql = (
                f"{_CHAINS.format(where=where)} SELECT s.*, {_PREVIEW}, {_LAST_ACTIVE} FROM sessions s"
                f" LEFT JOIN chain_max cm ON cm.root_id = s.id {where}"
                " ORDER BY COALESCE(cm.effective_last_active, s.started_at) DESC, s.started_at DESC,"
                " s.id DESC LIMIT ? OFFSET ?"
            )
            params = [*values, *values, limit, offset]
        else:
            sql = (
                f"SELECT s.*, {_PREVIEW}, {_LAST_ACTIVE} FROM sessions s {where}"
                " ORDER BY s.started_at DESC LIMIT ? OFFSET ?"
            )
            params = [*values, limit, offset]
        sessions = [_finished(row) for row in self._rows(sql, params)]
        if project_compression_tips and not include_children:
            return [self._under_tip(session) for session in sessions]
        return sessions

    def _under_tip(self, session: Session) -> Session:
        """A compression root as its tip shows it."""
        if session["end_reason"] != "compression":
            return session
        tip_id = self.get_compression_tip(session["id"])
        if tip_id is None or tip_id == session["id"]:
            return session
        row = self._row(f"SELECT s.*, {_PREVIEW}, {_LAST_ACTIVE} FROM sessions s WHERE s.id = ?", (tip_id,))
        if row is None:
            return session
        tip = _finished(row)
        shown = session | {name: tip[name] for name in _TIP_FIELDS}
        shown["_lineage_root_id"] = session["id"]
        return shown

    def get_compression_tip(self, session_id: str) -> str | None:
        """The last continuation, at most 100 links on."""
        current = session_id
        for _ in range(100):
            found = self._value(
                "SELECT id FROM sessions WHERE parent_session_id = ? AND started_at >= (SELECT ended_at"
                " FROM sessions WHERE id = ? AND end_reason = 'compression')"
                " ORDER BY started_at DESC LIMIT 1",
                (current, current),
            )
            if found is None:
                break
            current = found
        return current

    def resolve_resume_session_id(self, session_id: str) -> str:
        """The session itself if it has messages, else the nearest newest descendant that has."""
        current = session_id
        seen = {current}
        for _ in range(32):
            if self._row("SELECT 1 FROM messages WHERE session_id = ? LIMIT 1", (current,)):
                return current
            child = self._value(
                "SELECT id FROM sessions WHERE parent_session_id = ? ORDER BY started_at DESC, id DESC"
                " LIMIT 1",
                (current,),
            )
            if child is None or child in seen:
                break
            seen.add(child)
            current = child
        return session_id

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[Session]:
        """Sessions by last activity, newest first."""
        where = "WHERE s.source = ?" if source else ""
        sql = (
            "SELECT s.*, COALESCE(m.last_active, s.started_at) AS last_active FROM sessions s"
            " LEFT JOIN (SELECT session_id, MAX(timestamp) AS last_active FROM messages GROUP BY session_id)"
            f" m ON m.session_id = s.id {where}"
            " ORDER BY last_active DESC, s.started_at DESC, s.id DESC LIMIT ? OFFSET ?"
        )
        params = [source, limit, offset] if source else [limit, offset]
        return [dict(row) for row in self._rows(sql, params)]
