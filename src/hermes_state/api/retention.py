"""SessionDB by subject: export, deletion in small steps, VACUUM."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import apsw

from hermes_state.api.base import Handle
from hermes_state.api.stepping import Bounds, Progress, Steps, Stop, asked
from hermes_state.engine import rewriting
from hermes_state.store import export, figures, lineage, retention

log = logging.getLogger("hermes_state")
Record = dict[str, Any]
Folder = str | os.PathLike[str] | None
Step = Callable[[apsw.Connection, list[str], retention.Forget, Bounds], retention.Step]


def _delete(
    conn: apsw.Connection, ids: list[str], forget: retention.Forget, bounds: Bounds
) -> retention.Step:
    return retention.delete_step(conn, ids, forget, **bounds)


def _delete_ghosts(
    conn: apsw.Connection, ids: list[str], forget: retention.Forget, bounds: Bounds
) -> retention.Step:
    return retention.ghost_step(conn, ids, forget, **bounds)


def _free(conn: apsw.Connection, bounds: Bounds) -> retention.Freed:
    return retention.free_step(conn, bounds["max_bytes"])


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

    def _in_steps(
        self,
        ids: Iterable[str],
        operation: str,
        step: Step = _delete,
        *,
        sessions_dir: Folder = None,
        stop: Stop = None,
        progress: Progress = None,
    ) -> list[str]:
        """Delete sessions and their files in short transactions, letting other writers in; the ids that went.

        Between two steps ``stop`` is asked, and ``progress`` called with (sessions treated, in all).
        """
        remaining = list(ids)
        total = len(remaining)
        stopped = asked(stop)
        steps = Steps(self._engine, operation)
        deleted: list[str] = []
        try:
            while remaining and not stopped():
                self._check_open(operation)

                def work(conn: apsw.Connection, most: Bounds, page: list[str] = remaining) -> retention.Step:
                    return step(conn, page, steps.forget, most)

                done = steps.run(work)
                deleted += done.deleted
                remaining = done.remaining
                if progress is not None:
                    progress(total - len(remaining), total)
            steps.seal()
        finally:
            # Also after an error: no other call would look for the files of sessions that are gone.
            self._remove_files(sessions_dir, deleted)
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
        return bool(self._in_steps([session_id], "delete_session", sessions_dir=sessions_dir))

    def delete_conversation(self, session_id: str, sessions_dir: Folder = None) -> list[str]:
        """Delete every link of the compression chain that the session belongs to; their ids, root first."""
        chain = self._read(lambda conn: lineage.compression_chain(conn, session_id), "delete_conversation")
        return self._in_steps(chain, "delete_conversation", sessions_dir=sessions_dir)

    def clear_messages(self, session_id: str) -> None:
        """Delete the messages that the session has now; the session stays, with counts of what is left.

        A long session goes in several transactions, oldest messages first. What another program
        appends meanwhile stays.
        """
        steps = Steps(self._engine, "clear_messages")
        through: int | None = None
        while True:
            self._check_open("clear_messages")

            def work(conn: apsw.Connection, most: Bounds, upto: int | None = through) -> retention.Cleared:
                return retention.clear_step(conn, session_id, steps.forget, upto, **most)

            through = steps.run(work).through
            if through is None:
                steps.seal()
                return

    def prune_candidates(self, older_than_days: float = 90, source: str | None = None) -> list[str]:
        """The ids that ``prune_sessions`` would delete now, oldest start first; deletes nothing.

        Raises:
            ValueError: ``older_than_days`` is negative.
        """
        old = retention.age(older_than_days, source)
        return self._read(lambda conn: retention.candidates(conn, old), "prune_candidates")

    def prune_report(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        *,
        per_source: Mapping[str, float | None] | None = None,
    ) -> Record:
        """What ``prune_sessions`` would delete now, and what it would keep and why; deletes nothing.

        Returns:
            ``{"sessions", "messages", "sample", "kept"}``: how many sessions would go, how many
            messages with them (by the sessions' counters), the ids of the first 20; and for each reason
            in ``kept`` ``{"sessions", "sample"}``: ``live`` (not ended), ``active_since`` (not old enough),
            ``never`` (its source is never pruned), ``continued`` (a kept session goes on from it by
            compression), ``other_source``.

        Raises:
            ValueError: an age is negative.
        """
        old = retention.age(older_than_days, source, per_source)
        return self._read(lambda conn: retention.report(conn, old), "prune_report", single=True)

    def prune_sessions(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        sessions_dir: Folder = None,
        *,
        per_source: Mapping[str, float | None] | None = None,
        stop: Stop = None,
        progress: Progress = None,
        dry_run: bool = False,
    ) -> int:
        """Delete the ended sessions whose last activity is older; how many.

        A session that a kept session continues by compression stays. Works in short
        transactions, so that other writers get in between; all of it is durable at the end.

        Args:
            older_than_days: days without activity.
            source: only sessions of this source.
            sessions_dir: also remove the deleted sessions' files there.
            per_source: days for the sources in it, in place of ``older_than_days``; None for never.
            stop: a ``threading.Event`` or a function, looked at between two steps; once it is set
                or answers true, what was deleted so far is the result. A session of which a part
                was deleted has its newest messages and right counters, and goes with the next prune.
            progress: called with (sessions treated, sessions in all) after each step.
            dry_run: delete nothing; the result is how many would go.

        Raises:
            ValueError: an age is negative; nothing was deleted.
            TypeError: an age, a source or ``stop`` is of another type; nothing was deleted.
        """
        old = retention.age(older_than_days, source, per_source)
        asked(stop)
        ids = self._read(lambda conn: retention.candidates(conn, old), "prune_sessions")
        if dry_run:
            return len(ids)

        def step(
            conn: apsw.Connection, page: list[str], forget: retention.Forget, most: Bounds
        ) -> retention.Step:
            return retention.prune_step(conn, page, forget, old, **most)

        deleted = self._in_steps(
            ids, "prune_sessions", step, sessions_dir=sessions_dir, stop=stop, progress=progress
        )
        return len(deleted)

    def prune_empty_ghost_sessions(self, sessions_dir: Folder = None) -> int:
        """Delete the sessions that a terminal opened and never used, a day old or more; how many."""
        ids = self._read(retention.ghosts, "prune_empty_ghost_sessions")
        return len(
            self._in_steps(ids, "prune_empty_ghost_sessions", _delete_ghosts, sessions_dir=sessions_dir)
        )

    # -- the file --

    def vacuum(self, *, incremental: bool = False, stop: Stop = None, progress: Progress = None) -> None:
        """Write the file anew without its free pages. Other writers wait meanwhile.

        Args:
            incremental: give free pages back in short steps, letting other writers in between. The file
                is not written anew, so what is spread over it stays so. Only a file that was made for it
                can do that (``auto_vacuum=INCREMENTAL``): any other is written anew as a whole this once
                and can from then on, at the price of a page of pointers for each thousand pages.
            stop: as for ``prune_sessions``; asked between the steps of ``incremental``.
            progress: called with (pages done, pages in all): between the steps of ``incremental``, else
                from a thread of its own, since the caller's is in SQLite until all is done.
        """
        self._check_open("vacuum")
        stopped = asked(stop)
        # What is left of deleted messages in the indexes would be written anew with the rest.
        with self._engine.inside("vacuum"):
            self._engine._writable("vacuum")
            self._engine.upkeep.catch_up()
        if incremental and self._read(retention.frees_in_steps, "vacuum", single=True):
            steps = Steps(self._engine, "vacuum")
            total = self._read(figures.pages, "vacuum", single=True)["free_pages"]
            while not stopped() and steps.run(_free).weight:
                self._check_open("vacuum")
                if progress is not None:
                    left = self._read(figures.pages, "vacuum", single=True)["free_pages"]
                    progress(max(0, total - left), total)
            steps.seal()
            return
        with self._engine.exclusive("vacuum") as conn:
            if incremental:
                conn.execute("PRAGMA auto_vacuum=INCREMENTAL")
            rewriting.rewrite(conn, self.db_path, progress)

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
