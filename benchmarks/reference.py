"""The reference store: the user's document in plain stdlib ``sqlite3``, for benchmarks to compare with.

One connection, one lock, the six v11 triggers, one transaction a message with
``synchronous=FULL``, ``BEGIN IMMEDIATE`` with jittered retries, a PASSIVE
checkpoint every 50 writes, search and lists as version 11 does them. It takes no
shortcut that v11 would not, and does nothing slower than v11. The Telegram
methods are left out: nothing is measured there.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from .reference_base import FTS_SQL, FTS_TRIGRAM_SQL, SCHEMA_SQL, SCHEMA_VERSION
from .reference_listing import Listing
from .reference_messages import Messages
from .reference_search import Search
from .reference_sessions import Sessions

__all__ = ["FTS_SQL", "FTS_TRIGRAM_SQL", "SCHEMA_SQL", "SCHEMA_VERSION", "SessionDB"]


class SessionDB(Sessions, Messages, Listing, Search):
    """The store of the document; methods and arguments as in ``hermes_state.SessionDB``."""

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """The session's row with its messages, or None."""
        session = self.get_session(session_id)
        return None if session is None else {**session, "messages": self.get_messages(session_id)}

    def export_all(self, source: str | None = None) -> list[dict[str, Any]]:
        """Every session with its messages."""
        sessions = self.search_sessions(source=source, limit=100_000)
        return [{**session, "messages": self.get_messages(session["id"])} for session in sessions]

    def delete_session(self, session_id: str, sessions_dir: Path | None = None) -> bool:
        """Delete a session and its messages in one transaction; its children lose their parent."""

        def write(conn: sqlite3.Connection) -> bool:
            found = conn.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone()
            if found is None:
                return False
            conn.execute(
                "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?", (session_id,)
            )
            conn.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            conn.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return True

        deleted = self._execute_write(write)
        if deleted:
            _remove_files(sessions_dir, [session_id])
        return deleted

    def prune_sessions(
        self, older_than_days: int = 90, source: str | None = None, sessions_dir: Path | None = None
    ) -> int:
        """Delete ended sessions that began before the cutoff, all in one transaction."""
        cutoff = time.time() - older_than_days * 86_400
        old = "SELECT id FROM sessions WHERE started_at < ? AND ended_at IS NOT NULL"
        given: tuple[Any, ...] = (cutoff,)
        if source:
            old, given = f"{old} AND source = ?", (cutoff, source)

        def write(conn: sqlite3.Connection) -> list[str]:
            ids = [row["id"] for row in conn.execute(old, given)]
            if ids:
                marks = ",".join("?" for _ in ids)
                conn.execute(
                    f"UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN ({marks})", ids
                )
            for session_id in ids:
                conn.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
                conn.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return ids

        pruned = self._execute_write(write)
        _remove_files(sessions_dir, pruned)
        return len(pruned)

    def prune_empty_ghost_sessions(self, sessions_dir: Path | None = None) -> int:
        """Delete untitled, ended 'tui' sessions without messages that began over a day ago."""
        sql = (
            "SELECT id FROM sessions WHERE source = 'tui' AND title IS NULL AND ended_at IS NOT NULL"
            " AND started_at < ? AND NOT EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id)"
        )

        def write(conn: sqlite3.Connection) -> list[str]:
            ids = [row["id"] for row in conn.execute(sql, (time.time() - 86_400,))]
            for session_id in ids:
                conn.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return ids

        pruned = self._execute_write(write)
        _remove_files(sessions_dir, pruned)
        return len(pruned)

    def finalize_orphaned_compression_sessions(self) -> int:
        """End week-old continuations that never called a model, with ``orphaned_compression``."""
        sql = (
            "UPDATE sessions SET ended_at = ?, end_reason = 'orphaned_compression' WHERE ended_at IS NULL"
            " AND COALESCE(api_call_count, 0) = 0 AND started_at < ?"
            " AND EXISTS (SELECT 1 FROM sessions p WHERE p.id = sessions.parent_session_id"
            " AND p.end_reason = 'compression')"
            " AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = sessions.id)"
        )
        now = time.time()
        return self._write(sql, (now, now - 7 * 86_400))

    def vacuum(self) -> None:
        """Checkpoint and VACUUM."""
        with self._lock:
            self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._conn.execute("VACUUM")

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: int = 90,
        min_interval_hours: int = 24,
        vacuum: bool = True,
        sessions_dir: Path | None = None,
    ) -> dict[str, Any]:
        """Prune once in a while, and vacuum where something was pruned."""
        result: dict[str, Any] = {"skipped": False, "pruned": 0, "vacuumed": False}
        try:
            last = self.get_meta("last_auto_prune")
            if last and time.time() - float(last) < min_interval_hours * 3600:
                return {**result, "skipped": True}
            result["pruned"] = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
            if vacuum and result["pruned"]:
                self.vacuum()
                result["vacuumed"] = True
            self.set_meta("last_auto_prune", str(time.time()))
        except (sqlite3.Error, ValueError) as error:
            result["error"] = str(error)
        return result


def _remove_files(folder: Path | None, ids: list[str]) -> None:
    """The transcript files of sessions, where there is a folder of them."""
    if folder is None:
        return
    for session_id in ids:
        for suffix in (".json", ".jsonl"):
            (Path(folder) / f"{session_id}{suffix}").unlink(missing_ok=True)
        for dump in Path(folder).glob(f"request_dump_{session_id}_*.json"):
            dump.unlink(missing_ok=True)
