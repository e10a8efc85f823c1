"""SessionDB by subject: export, deletion in small steps, VACUUM."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Any

import apsw

from hermes_state.api.base import Handle
from hermes_state.engine.worker import StepSize
from hermes_state.search import indexing
from hermes_state.store import export, lineage, retention

log = logging.getLogger("hermes_state")
Record = dict[str, Any]
Folder = str | os.PathLike[str] | None
Step = Callable[[apsw.Connection, list[str], int], retention.Step]

HOLD_S = 0.040
"""How long one step of a deletion should hold the write lock, seconds."""
REST_S = 0.005
"""Pause between two steps, in which another process's writer gets the lock."""


def _delete(conn: apsw.Connection, ids: list[str], most: int) -> retention.Step:
    return retention.delete_step(conn, ids, indexing.forget, max_messages=most)


def _delete_ghosts(conn: apsw.Connection, ids: list[str], most: int) -> retention.Step:
    return retention.ghost_step(conn, ids, indexing.forget, max_messages=most)


class RetentionCalls(Handle):
    """Calls that export or delete whole sessions."""

    # -- export --

    def export_session(self, session_id: str) -> Record | None:
        """The session as a dict with its ``messages``, ready for ``json.dumps``; None if there is none."""
        return self._read(lambda conn: export.session(conn, session_id), "export_session")

    def export_all(self, source: str | None = None) -> list[Record]:
        """Every session (of one source, or all) as ``export_session`` gives it."""
        return self._read(lambda conn: export.sessions(conn, source), "export_all")

    # -- deletion --

    def _in_steps(self, ids: Iterable[str], operation: str, step: Step = _delete) -> list[str]:
        """Delete sessions in short transactions, letting other writers in between; the ids that went."""
        size = StepSize(HOLD_S)
        deleted: list[str] = []
        remaining = list(ids)
        while remaining:

            def work(conn: apsw.Connection, page: list[str] = remaining) -> retention.Step:
                started = time.monotonic()
                done = step(conn, page, size.rows)
                size.learn(done.messages, time.monotonic() - started)
                return done

            done = self._write(work, operation)
            deleted += done.deleted
            remaining = done.remaining
            if remaining:
                time.sleep(REST_S)
        return deleted

    def _remove_files(self, sessions_dir: Folder, ids: list[str]) -> None:
        """Remove the transcripts of sessions that are gone; an id is never a path nor a pattern."""
        if sessions_dir is None or not ids:
            return
        kept = self._read(lambda conn: retention.longer_ids(conn, ids), "remove session files")
        retention.remove_files(sessions_dir, ids, kept)

    def delete_session(self, session_id: str, sessions_dir: Folder = None) -> bool:
        """Delete a session, its messages and, in ``sessions_dir``, its files; False if there is none.

        Its children stay and lose their parent. A long session goes in several transactions.
        """
        deleted = self._in_steps([session_id], "delete_session")
        self._remove_files(sessions_dir, deleted)
        return bool(deleted)

    def delete_conversation(self, session_id: str, sessions_dir: Folder = None) -> list[str]:
        """Delete every link of the compression chain that the session belongs to; their ids, root first."""
        chain = self._read(lambda conn: lineage.compression_chain(conn, session_id), "delete_conversation")
        deleted = self._in_steps(chain, "delete_conversation")
        self._remove_files(sessions_dir, deleted)
        return deleted

    def prune_candidates(self, older_than_days: float = 90, source: str | None = None) -> list[str]:
        """The ids that ``prune_sessions`` would delete now, oldest start first; deletes nothing.

        Raises:
            ValueError: ``older_than_days`` is negative.
        """
        before = retention.cutoff(older_than_days)
        return self._read(lambda conn: retention.candidates(conn, before, source), "prune_candidates")

    def prune_sessions(
        self, older_than_days: float = 90, source: str | None = None, sessions_dir: Folder = None
    ) -> int:
        """Delete the ended sessions whose last activity is older; how many.

        A session that a kept session continues by compression stays. Works in short
        transactions, so that other writers get in between.

        Raises:
            ValueError: ``older_than_days`` is negative; nothing was deleted.
        """
        before = retention.cutoff(older_than_days)
        ids = self._read(lambda conn: retention.candidates(conn, before, source), "prune_sessions")

        def step(conn: apsw.Connection, page: list[str], most: int) -> retention.Step:
            return retention.prune_step(conn, page, indexing.forget, before, source, max_messages=most)

        deleted = self._in_steps(ids, "prune_sessions", step)
        self._remove_files(sessions_dir, deleted)
        return len(deleted)

    def prune_empty_ghost_sessions(self, sessions_dir: Folder = None) -> int:
        """Delete the sessions that a terminal opened and never used, a day old or more; how many."""
        ids = self._read(retention.ghosts, "prune_empty_ghost_sessions")
        deleted = self._in_steps(ids, "prune_empty_ghost_sessions", _delete_ghosts)
        self._remove_files(sessions_dir, deleted)
        return len(deleted)

    # -- the file --

    def vacuum(self) -> None:
        """Write the file anew without its free pages. Other writers wait meanwhile."""
        self._check_open("vacuum")
        with self._engine.exclusive("vacuum") as conn:
            conn.execute("VACUUM")

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: Folder = None,
    ) -> Record:
        """Prune, and VACUUM if something went, at most once in so many hours. Never raises.

        Returns:
            ``{"skipped": bool, "pruned": int, "vacuumed": bool}`` and, on failure, ``"error"``.
        """
        result: Record = {"skipped": False, "pruned": 0, "vacuumed": False}
        try:
            if not self._read(
                lambda conn: retention.auto_prune_due(conn, min_interval_hours), "maybe_auto_prune_and_vacuum"
            ):
                result["skipped"] = True
                return result
            result["pruned"] = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
            if vacuum and result["pruned"]:
                self.vacuum()
                result["vacuumed"] = True
            self._write(retention.mark_auto_prune, "maybe_auto_prune_and_vacuum")
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            log.warning("automatic prune failed: %s", error)
            result["error"] = str(error)
        return result
