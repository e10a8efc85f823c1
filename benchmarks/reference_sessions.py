"""The reference store's sessions: life cycle, tokens, titles, hand-off, meta values.

See `benchmarks.reference`. Stdlib only.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from typing import Any

from .reference_base import Base

_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffc\ufff9-\ufffb]")


def escape_like(text: str) -> str:
    """The text as a literal part of a LIKE pattern with ESCAPE '\\'."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


class Sessions(Base):
    """Sessions by id and title."""

    MAX_TITLE_LENGTH = 100

    def create_session(
        self,
        session_id: str,
        source: str,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        parent_session_id: str | None = None,
    ) -> str:
        """Make the session unless there is one of that id."""
        config = json.dumps(model_config) if model_config else None
        row = (session_id, source, user_id, model, config, system_prompt, parent_session_id, time.time())
        self._write(
            "INSERT OR IGNORE INTO sessions (id, source, user_id, model, model_config, system_prompt,"
            " parent_session_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return session_id

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **kwargs: Any
    ) -> str:
        """As `create_session`."""
        return self.create_session(session_id, source, model=model, **kwargs)

    def _write(self, sql: str, params: tuple[Any, ...]) -> int:
        """One statement in a transaction; the number of rows it changed."""
        return self._execute_write(lambda conn: conn.execute(sql, params).rowcount)

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End it unless it has ended."""
        self._write(
            "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL",
            (time.time(), end_reason, session_id),
        )

    def reopen_session(self, session_id: str) -> None:
        """Clear the end."""
        self._write("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", (session_id,))

    def update_system_prompt(self, session_id: str, system_prompt: str) -> None:
        """Store the whole prompt."""
        self._write("UPDATE sessions SET system_prompt = ? WHERE id = ?", (system_prompt, session_id))

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        api_call_count: int = 0,
        absolute: bool = False,
    ) -> None:
        """Add the counts to the session's, or set them when ``absolute``; unknown sessions are made."""
        now = time.time()
        counts = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens)
        texts = {
            "cost_status": cost_status,
            "cost_source": cost_source,
            "pricing_version": pricing_version,
        }
        firsts = {
            "model": model,
            "billing_provider": billing_provider,
            "billing_base_url": billing_base_url,
            "billing_mode": billing_mode,
        }
        cost = "?" if absolute else "COALESCE(estimated_cost_usd, 0) + COALESCE(?, 0)"
        settings = [f"{name} = ?" if absolute else f"{name} = COALESCE({name}, 0) + ?" for name in _TOKENS]
        settings.append(f"estimated_cost_usd = {cost}")
        settings.append("actual_cost_usd = COALESCE(?, actual_cost_usd)")
        settings += [f"{name} = COALESCE(?, {name})" for name in texts]
        settings += [f"{name} = COALESCE({name}, ?)" for name in firsts]
        sql = f"UPDATE sessions SET {', '.join(settings)} WHERE id = ?"
        values: list[Any] = [*counts, api_call_count, estimated_cost_usd, actual_cost_usd]
        values += [*texts.values(), *firsts.values(), session_id]

        def write(conn: sqlite3.Connection) -> None:
            conn.execute(
                "INSERT OR IGNORE INTO sessions (id, source, model, started_at) VALUES (?, 'unknown', ?, ?)",
                (session_id, model, now),
            )
            conn.execute(sql, values)

        self._execute_write(write)

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """The row, or None."""
        row = self._row("SELECT * FROM sessions WHERE id = ?", (session_id,))
        return None if row is None else dict(row)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The id itself, or the only one that begins so."""
        if self.get_session(session_id_or_prefix):
            return session_id_or_prefix
        pattern = escape_like(session_id_or_prefix) + "%"
        sql = "SELECT id FROM sessions WHERE id LIKE ? ESCAPE '\\' ORDER BY started_at DESC LIMIT 2"
        found = self._rows(sql, (pattern,))
        return found[0]["id"] if len(found) == 1 else None

    def session_count(self, source: str | None = None) -> int:
        """Sessions of a source, or all."""
        if source:
            return int(self._value("SELECT COUNT(*) FROM sessions WHERE source = ?", (source,)))
        return int(self._value("SELECT COUNT(*) FROM sessions"))

    # Titles

    @classmethod
    def sanitize_title(cls, title: str | None) -> str | None:
        """The title without control and invisible characters, white space folded; ValueError over 100."""
        if not title:
            return None
        text = " ".join(_INVISIBLE.sub("", _CONTROL.sub("", title)).split())
        if len(text) > cls.MAX_TITLE_LENGTH:
            raise ValueError(f"Title too long ({len(text)} chars, max {cls.MAX_TITLE_LENGTH})")
        return text or None

    def set_session_title(self, session_id: str, title: str) -> bool:
        """Set the title; ValueError where another session has it."""
        clean = self.sanitize_title(title)

        def write(conn: sqlite3.Connection) -> int:
            if clean:
                sql = "SELECT id FROM sessions WHERE title = ? AND id != ?"
                other = conn.execute(sql, (clean, session_id)).fetchone()
                if other:
                    raise ValueError(f"Title '{clean}' is already in use by session {other['id']}")
            return conn.execute("UPDATE sessions SET title = ? WHERE id = ?", (clean, session_id)).rowcount

        return self._execute_write(write) > 0

    def get_session_title(self, session_id: str) -> str | None:
        """The title, or None."""
        title: str | None = self._value("SELECT title FROM sessions WHERE id = ?", (session_id,))
        return title

    def get_session_by_title(self, title: str) -> dict[str, Any] | None:
        """The session with exactly that title."""
        row = self._row("SELECT * FROM sessions WHERE title = ?", (title,))
        return None if row is None else dict(row)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The newest of ``title #N``, else the exact one."""
        sql = "SELECT id FROM sessions WHERE title LIKE ? ESCAPE '\\' ORDER BY started_at DESC"
        exact = self.get_session_by_title(title)
        numbered = self._rows(sql, (escape_like(title) + " #%",))
        if numbered:
            return str(numbered[0]["id"])
        return exact["id"] if exact else None

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """The base if it is free, else ``base #N`` with the next number."""
        found = re.match(r"^(.*?) #(\d+)$", base_title)
        base = found.group(1) if found else base_title
        sql = "SELECT title FROM sessions WHERE title = ? OR title LIKE ? ESCAPE '\\'"
        taken = [row["title"] for row in self._rows(sql, (base, escape_like(base) + " #%"))]
        if not taken:
            return base
        numbers = [int(hit.group(1)) for name in taken if (hit := re.match(r"^.* #(\d+)$", name))]
        return f"{base} #{max([1, *numbers]) + 1}"

    # Meta values and hand-off

    def get_meta(self, key: str) -> str | None:
        """A value of ``state_meta``."""
        value: str | None = self._value("SELECT value FROM state_meta WHERE key = ?", (key,))
        return value

    def set_meta(self, key: str, value: str) -> None:
        """Insert or overwrite a value of ``state_meta``."""
        self._write(
            "INSERT INTO state_meta (key, value) VALUES (?, ?)"
            " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            (key, value),
        )

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask for a hand-off unless one is under way."""
        sql = (
            "UPDATE sessions SET handoff_state = 'pending', handoff_platform = ?, handoff_error = NULL"
            " WHERE id = ? AND (handoff_state IS NULL OR handoff_state IN ('completed', 'failed'))"
        )
        return self._write(sql, (platform, session_id)) > 0

    def get_handoff_state(self, session_id: str) -> dict[str, Any] | None:
        """State, platform and error, or None where nothing was asked for."""
        sql = (
            "SELECT handoff_state AS state, handoff_platform AS platform, handoff_error AS error"
            " FROM sessions WHERE id = ?"
        )
        row = self._row(sql, (session_id,))
        return dict(row) if row is not None and row["state"] else None

    def list_pending_handoffs(self) -> list[dict[str, Any]]:
        """Sessions that wait for a hand-off, oldest first."""
        sql = "SELECT * FROM sessions WHERE handoff_state = 'pending' ORDER BY started_at ASC"
        return [dict(row) for row in self._rows(sql)]

    def claim_handoff(self, session_id: str) -> bool:
        """Whether this caller got the pending hand-off."""
        sql = "UPDATE sessions SET handoff_state = 'running' WHERE id = ? AND handoff_state = 'pending'"
        return self._write(sql, (session_id,)) > 0

    def complete_handoff(self, session_id: str) -> None:
        """Mark it done."""
        self._write(
            "UPDATE sessions SET handoff_state = 'completed', handoff_error = NULL WHERE id = ?",
            (session_id,),
        )

    def fail_handoff(self, session_id: str, error: str) -> None:
        """Mark it failed, with the first 500 characters of the reason."""
        self._write(
            "UPDATE sessions SET handoff_state = 'failed', handoff_error = ? WHERE id = ?",
            (error[:500], session_id),
        )
