"""The reference store's full-text search: sanitizer, unicode61 and trigram MATCH, LIKE for short CJK.

See `benchmarks.reference`. Stdlib only.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from .reference_base import Base

_OPERATORS = ("AND", "OR", "NOT")
_CJK_RANGES = (
    (0x3000, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7AF),
    (0x20000, 0x2A6DF),
)
_COLUMNS = (
    "m.id, m.session_id, m.role, {snippet} AS snippet, m.content, m.timestamp, m.tool_name,"
    " s.source, s.model, s.started_at AS session_started"
)
_CONTEXT_SQL = """
WITH target AS (SELECT session_id, timestamp, id FROM messages WHERE id = ?)
SELECT role, content FROM (
    SELECT m.role, m.content FROM messages m JOIN target t ON t.session_id = m.session_id
    WHERE m.timestamp < t.timestamp OR (m.timestamp = t.timestamp AND m.id < t.id)
    ORDER BY m.timestamp DESC, m.id DESC LIMIT 1
)
UNION ALL
SELECT role, content FROM messages WHERE id = ?
UNION ALL
SELECT role, content FROM (
    SELECT m.role, m.content FROM messages m JOIN target t ON t.session_id = m.session_id
    WHERE m.timestamp > t.timestamp OR (m.timestamp = t.timestamp AND m.id > t.id)
    ORDER BY m.timestamp ASC, m.id ASC LIMIT 1
)
"""


def count_cjk(text: str) -> int:
    """How many characters of ``text`` are Han, kana or Hangul."""
    return sum(any(low <= ord(char) <= high for low, high in _CJK_RANGES) for char in text)


class Search(Base):
    """`search_messages` and what it needs."""

    @staticmethod
    def _contains_cjk(text: str) -> bool:
        """Whether a CJK character is in the text."""
        return any(low <= ord(char) <= high for char in text for low, high in _CJK_RANGES)

    @staticmethod
    def _sanitize_fts5_query(query: str) -> str:
        """The user's text as an FTS5 query: phrases kept, syntax characters and loose operators dropped."""
        phrases: list[str] = []

        def keep(found: re.Match[str]) -> str:
            phrases.append(found.group(0))
            return f"\x00Q{len(phrases) - 1}\x00"

        text = re.sub(r'"[^"]*"', keep, query)
        text = re.sub(r"[+{}()\"^]", " ", text)
        text = re.sub(r"\*+", "*", text)
        text = re.sub(r"(^|\s)\*", r"\1", text)
        text = re.sub(r"(?i)^(?:AND|OR|NOT)\b\s*", "", text.strip())
        text = re.sub(r"(?i)\s+(?:AND|OR|NOT)\s*$", "", text.strip())
        text = re.sub(r"\b(\w+(?:[._-]\w+)+)\b", r'"\1"', text)
        for number, phrase in enumerate(phrases):
            text = text.replace(f"\x00Q{number}\x00", phrase)
        return text.strip()

    def search_messages(
        self,
        query: str,
        source_filter: list[str] | None = None,
        exclude_sources: list[str] | None = None,
        role_filter: list[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
    ) -> list[dict[str, Any]]:
        """Hits with snippet and context; a query that FTS5 refuses finds nothing."""
        if not query or not query.strip():
            return []
        text = self._sanitize_fts5_query(query)
        if not text:
            return []
        filters, given = _filters(source_filter, exclude_sources, role_filter)
        page = [limit, offset]
        raw = query.strip().strip('"').strip()
        if not self._contains_cjk(text):
            found = self._match("messages_fts", text, filters, given, page, sort)
            hits = [] if found is None else found
        else:
            trigram = self._trigram_query(raw)
            found = None
            if trigram is not None:
                found = self._match("messages_fts_trigram", trigram, filters, given, page, sort)
            hits = self._scan(raw, filters, given, page, sort) if found is None else found
        for hit in hits:
            hit["context"] = self._context(hit["id"])
            hit.pop("content")
        return hits

    def _match(
        self, table: str, text: str, filters: str, given: list[Any], page: list[int], sort: str | None
    ) -> list[dict[str, Any]] | None:
        """The hits of one FTS5 table, or None where it refuses the query."""
        columns = _COLUMNS.format(snippet=f"snippet({table}, 0, '>>>', '<<<', '...', 40)")
        order = {"newest": "m.timestamp DESC, rank", "oldest": "m.timestamp ASC, rank"}.get(
            sort or "", "rank"
        )
        sql = (
            f"SELECT {columns} FROM {table} JOIN messages m ON m.id = {table}.rowid"
            f" JOIN sessions s ON s.id = m.session_id WHERE {table} MATCH ?{filters}"
            f" ORDER BY {order} LIMIT ? OFFSET ?"
        )
        try:
            return [dict(row) for row in self._rows(sql, [text, *given, *page])]
        except sqlite3.OperationalError:
            return None

    @staticmethod
    def _trigram_query(raw: str) -> str | None:
        """Each token quoted for the trigram table, or None where a CJK token is too short for it."""
        tokens = raw.split()
        words = [token for token in tokens if token.upper() not in _OPERATORS]
        short = any(0 < count_cjk(word) < 3 for word in words)
        if short or count_cjk(raw) < 3:
            return None
        return " ".join(
            token if token.upper() in _OPERATORS else '"' + token.replace('"', '""') + '"' for token in tokens
        )

    def _scan(
        self, raw: str, filters: str, given: list[Any], page: list[int], sort: str | None
    ) -> list[dict[str, Any]]:
        """LIKE over content, tool name and tool calls: rows with any of the words, newest first."""
        words = [token for token in raw.split() if token.upper() not in _OPERATORS] or [raw]
        columns = _COLUMNS.format(snippet="substr(m.content, max(1, instr(m.content, ?) - 40), 120)")
        one = " OR ".join(f"m.{name} LIKE ? ESCAPE '\\'" for name in ("content", "tool_name", "tool_calls"))
        where = " OR ".join(f"({one})" for _ in words)
        patterns = [pattern for word in words for pattern in [_like(word)] * 3]
        direction = "ASC" if sort == "oldest" else "DESC"
        sql = (
            f"SELECT {columns} FROM messages m JOIN sessions s ON s.id = m.session_id"
            f" WHERE ({where}){filters} ORDER BY m.timestamp {direction} LIMIT ? OFFSET ?"
        )
        return [dict(row) for row in self._rows(sql, [words[0], *patterns, *given, *page])]

    def _context(self, message_id: int) -> list[dict[str, Any]]:
        """The message before, the hit and the one after by time and id, each cut at 200 characters."""
        rows = self._rows(_CONTEXT_SQL, (message_id, message_id))
        return [{"role": row["role"], "content": self._context_text(row["content"])} for row in rows]

    def _context_text(self, stored: Any) -> str:
        content = self._decode_content(stored)
        if isinstance(content, list):
            parts = [part.get("text", "") for part in content if isinstance(part, dict)]
            return " ".join(part for part in parts if part)[:200] or "[multimodal content]"
        return str(content or "")[:200]


def _filters(
    sources: list[str] | None, excluded: list[str] | None, roles: list[str] | None
) -> tuple[str, list[Any]]:
    """The WHERE clauses of the three filters, and their values."""
    sql = ""
    values: list[Any] = []
    if sources is not None:
        sql += f" AND s.source IN ({_marks(sources)})"
        values += sources
    if excluded:
        sql += f" AND s.source NOT IN ({_marks(excluded)})"
        values += excluded
    if roles:
        sql += f" AND m.role IN ({_marks(roles)})"
        values += roles
    return sql, values


def _marks(values: list[str]) -> str:
    return ",".join("?" for _ in values)


def _like(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
