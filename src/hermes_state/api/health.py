"""SessionDB by subject: check, repair, the index's upkeep, backup."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from hermes_state.api import repairing
from hermes_state.api.base import Handle
from hermes_state.api.checking import CheckReport, Examination, Progress
from hermes_state.api.repairing import RepairReport, Repairs
from hermes_state.engine import registry
from hermes_state.search import indexing
from hermes_state.store import health
from hermes_state.transfer import backup

T = TypeVar("T")
Record = dict[str, Any]


class HealthCalls(Handle):
    """Calls that look after the file itself."""

    # -- check --

    def check(self, progress: Progress = None, *, deep: bool = True) -> CheckReport:
        """Look for damage, drift between rows and indexes, wrong counters and orphans; changes nothing.

        Works beside live writers, a bounded piece at a time, each in a snapshot of its own.

        Args:
            progress: called with (pieces done, pieces in all).
            deep: also compare every full-text index with its own rows word by word, which takes the
                longest.

        Returns:
            A ``CheckReport``: ``ok``, ``verdict`` ("ok", "drift", "schema", "index" or "table") and the
            ``problems``, each with kind, table, count and some ids.
        """
        self._check_open("check")
        return Examination(self._check_step, self.db_path, progress).run(deep=deep)

    def _check_step(self, fn: Callable[..., T], /, *arguments: Any) -> T:
        """``fn(conn, *arguments)`` on one snapshot."""
        return self._read(lambda conn: fn(conn, *arguments), "check")

    def _repair_step(self, fn: Callable[..., T], /, *arguments: Any) -> T:
        """``fn(conn, *arguments)`` in one write transaction."""
        return self._write(lambda conn: fn(conn, *arguments), "repair")

    def _repairs(self) -> Repairs:
        engine = self._engine
        return Repairs(self._check_step, self._repair_step, engine.upkeep.index_now, engine.damage.mended)

    # -- repair --

    def repair(self, *, remove_orphans: bool = False, progress: Progress = None) -> RepairReport:
        """Mend what ``check`` finds: indexes, counters, missing objects; rows are never lost by it.

        Works in short transactions beside live writers. A damaged full-text table is made anew;
        until it is filled again, each search first fills it. With a damaged table nothing is
        changed: ``hermes_state.salvage`` reads what is readable into a new file.

        Args:
            remove_orphans: also delete messages whose session does not exist, and take parents
                that do not exist from their children.
            progress: as for ``check``, of the check that comes first.
        """
        self._check_open("repair")
        return self._repairs().repair(self.check, remove_orphans, progress)

    # -- the index's upkeep --

    def rebuild_index(self, progress: Progress = None) -> None:
        """Make every full-text index anew, in short steps; searches are right meanwhile.

        A sound table is renewed row by row and stays complete; a damaged one is dropped first.

        Args:
            progress: called with (messages done, messages in all).
        """
        self._check_open("rebuild_index")
        damaged = Examination(self._check_step, self.db_path).damaged_fts()
        self._repairs().rebuild(damaged, progress)

    def set_trigram_mode(self, mode: str, progress: Progress = None) -> None:
        """Change which rows the trigram index holds ("all" or "unspaced"), and make it so in steps.

        Every search is right at every moment. If it is cut off, call it (or ``repair``) again.

        Args:
            progress: called with (messages done, messages in all).

        Raises:
            ValueError: an unknown mode.
        """
        self._check_open("set_trigram_mode")
        self._repair_step(indexing.set_trigram_mode, mode)
        repairs = self._repairs()
        repairs.index_pending()
        repairs.each_indexed(repairing.touch, progress)

    def optimize(self, progress: Progress = None) -> int:
        """Merge the segments of the full-text indexes in short steps; how many steps were needed.

        Args:
            progress: called with (index pages merged, index pages in all), not where there is nothing
                to merge.
        """
        self._check_open("optimize")
        return self._repairs().optimize(progress)

    # -- backup --

    def backup(
        self, target: str | os.PathLike[str], progress: Progress = None, *, overwrite: bool = False
    ) -> Record:
        """Copy the store, as it is at this moment, into one whole file; readers and writers go on.

        The copy is verified, synced and then named at once; only its owner can read it. The WAL
        grows while it is made, and shrinks afterwards.

        Args:
            target: the file to make; its folder must exist.
            progress: called with (pages done, pages in all).
            overwrite: replace a file of that name (never a symbolic link or a database in use).

        Returns:
            ``{"path", "bytes", "sessions", "messages"}``.

        Raises:
            FileExistsError: the target is there.
            sqlite3.Error, OSError: the copy could not be made, or is not sound; nothing is left of it.
        """
        place = Path(target)
        if registry.is_open(place):
            raise FileExistsError(f"{place} is a database that this process has open")
        found = self._read(
            lambda conn: backup.copy(conn, place, table_faults, overwrite=overwrite, progress=progress),
            "backup",
        )
        return {"path": str(place), "bytes": place.stat().st_size, **found}


def table_faults(conn: apsw.Connection) -> list[str]:
    """What is damaged in the tables of a file, in SQLite's words."""
    there = {str(name) for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"sessions", "messages"} <= there:
        return ["file is not a database of sessions: the tables sessions and messages are missing"]
    return [
        fault.detail
        for table in health.TABLES
        if table in there
        for fault in health.structure(conn, table)
        if fault.kind == "table"
    ]
