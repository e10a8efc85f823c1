"""What a check looks at, in which order, and the report that it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol, TypedDict, TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine.damage import is_damage
from hermes_state.schema import migrate
from hermes_state.search import forgetting, tables
from hermes_state.search import health as index_health
from hermes_state.search.tables import TRIGRAM
from hermes_state.store import health
from hermes_state.store.rows import scalar

T = TypeVar("T")
Progress = Callable[[int, int], object] | None
"""Called with (pieces done, pieces in all); a piece is a row looked at, or a table's structure."""

SAMPLE: Final = 10
"""Ids of rows, at most, that a problem of the report names."""

TABLE_KINDS: Final = frozenset({"table_damage"})
_UNKNOWN_ROWS: Final = frozenset({"table_damage", "index_damage"})
INDEX_KINDS: Final = frozenset({"index_damage", "fts_damage"})


class Step(Protocol):
    """Runs ``fn(conn, *arguments)`` on one snapshot."""

    def __call__(self, fn: Callable[..., T], /, *arguments: Any) -> T: ...


class Problem(TypedDict):
    """One thing that is wrong.

    ``kind``: ``"table_damage"`` (rows may be lost; salvage), ``"fts_damage"`` (a full-text table),
    ``"index_damage"`` (another index), ``"schema"`` (an object is missing), ``"missing_rows"``,
    ``"surplus_rows"``, ``"different_rows"``, ``"unwanted_rows"`` (drift of a full-text table),
    ``"counters"``, ``"orphan_messages"``, ``"orphan_parents"``, ``"watermark"``. ``where``: the table or
    index. ``count``: how many rows, 1 for damage. ``sample``: some of their ids. ``detail``: in words.
    """

    kind: str
    where: str
    count: int
    sample: list[Any]
    detail: str


class CheckReport(TypedDict):
    """What ``check`` found.

    ``verdict``: the worst of ``"ok"``, ``"drift"`` (rows and indexes or counters differ), ``"schema"``,
    ``"index"`` (only an index is damaged: repair), ``"table"`` (salvage); from ``check_file`` also
    ``"missing"``, ``"empty"``, ``"zeroed"``, ``"not a database"``, ``"unreadable"``. ``pending``: messages
    above the index watermark, ``forgetting``: deleted ones whose entries are still to leave the indexes;
    neither is a fault.
    """

    path: str
    ok: bool
    verdict: str
    problems: list[Problem]
    sessions: int
    messages: int
    indexed: dict[str, int]
    pending: int
    forgetting: int
    trigram: str


def empty_report(path: Path | str, verdict: str = "ok") -> CheckReport:
    """A report with nothing in it."""
    return CheckReport(
        path=str(path), ok=verdict == "ok", verdict=verdict, problems=[], sessions=0, messages=0,
        indexed={}, pending=0, forgetting=0, trigram="all",
    )  # fmt: skip


class Examination:
    """One check of one file, a bounded piece at a time.

    Args:
        step: runs each piece in a snapshot of its own.
        path: the file, for the report.
        progress: see ``Progress``.
    """

    def __init__(self, step: Step, path: Path | str, progress: Progress = None) -> None:
        self._step = step
        self._progress = progress
        self._done = 0
        self._total = 0
        self.report = empty_report(path)
        self._collected: dict[tuple[str, str], Problem] = {}
        self._sound: list[str] = []
        self._tables: list[str] = []
        self._comparable = True

    def run(self, *, deep: bool = True) -> CheckReport:
        """Look at everything; ``deep`` compares each full-text index with its own rows, word by word."""
        have = self._guarded("sqlite_schema", self._overview)
        if have is not None:
            self._look(have, deep)
        report = self.report
        report["problems"] = list(self._collected.values())
        report["verdict"] = verdict(report["problems"])
        report["ok"] = report["verdict"] == "ok"
        self._advance(max(0, self._total - self._done))
        return report

    def damaged_fts(self, *, deep: bool = True) -> list[str]:
        """The full-text tables that are there and damaged."""
        have = sorted(self._step(tables.present))
        self._full_text(have, deep)
        return [where for kind, where in self._collected if kind == "fts_damage"]

    # -- the pieces, in order --

    def _overview(self, conn: apsw.Connection) -> list[str]:
        """Counts for the report and for the progress; the full-text tables that are there."""
        have = sorted(tables.present(conn))
        found = migrate.inspect(conn)
        self._tables = [table for table in health.TABLES if table in found.objects]
        if "state_meta" in found.objects:
            self.report["trigram"] = tables.trigram_mode(conn)
        for table in self._tables:
            if names := [name for owner, name in found.missing if owner == table]:
                what = f"the column {names[0]} is" if len(names) == 1 else f"{len(names)} columns are"
                self._add("schema", table, len(names), names, f"{what} missing; opening the store mends it")
        for table in found.stale_fts:
            self._add("schema", table, 1, [], "the full-text table is missing or not as version 11 has it")
        for name in migrate.missing_objects(found):
            self._add("schema", name, 1, [], "missing; opening the store makes it")
        # Older full-text tables keep no text of their own and are made anew by the upgrade.
        have = [table for table in have if table not in found.stale_fts]
        self._comparable = not found.missing and found.watermark
        self._total = len(health.TABLES) + sum(len(index_health.shadows(conn, table)) + 1 for table in have)
        return have

    def _look(self, have: list[str], deep: bool) -> None:
        for table in self._tables:
            self._structure(table, "table_damage", "index_damage")
        self._full_text(have, deep)
        if not self._comparable or any(kind in _UNKNOWN_ROWS for kind, _ in self._collected):
            # What the rows or the indexes ought to say is not known, so nothing can be compared with it.
            return
        try:
            self._compare()
        except (apsw.Error, errors.StoreCorruptError) as error:
            if not is_damage(error):
                raise
            self._add("table_damage", "messages", 1, [], str(error))

    def _compare(self) -> None:
        """Compare the rows with the indexes and counters."""
        self._step(self._count)
        self._drift()
        self._sessions()
        self._orphans()
        self._step(self._watermark)

    def _count(self, conn: apsw.Connection) -> None:
        report = self.report
        report["sessions"] = scalar(conn, "SELECT count(*) FROM sessions")
        report["messages"] = scalar(conn, "SELECT count(*) FROM messages")
        after = tables.watermark(conn)
        report["pending"] = scalar(conn, "SELECT count(*) FROM messages WHERE id > ?", (after,))
        report["forgetting"] = forgetting.count(conn)
        for table in self._sound:
            report["indexed"][table] = index_health.size(conn, table)
        self._total += report["sessions"] + 2 * report["messages"] + sum(report["indexed"].values())

    def _structure(self, table: str, of_table: str, of_index: str, where: str | None = None) -> bool:
        """Check the b-trees of ``table``; True where they are sound."""
        faults = self._guarded(where or table, health.structure, table)
        for fault in faults or ():
            kind = of_table if fault.kind == "table" else of_index
            self._add(kind, where or fault.where, 1, [], fault.detail)
        self._advance(1)
        return not faults

    def _full_text(self, have: Iterable[str], deep: bool) -> None:
        """Check what FTS5 keeps of each full-text table, and whether its words are those of its rows."""
        for table in have:
            shadows = self._step(index_health.shadows, table)
            if len(shadows) < len(index_health.SHADOWS):
                self._add(
                    "fts_damage", table, 1, [], f"only {', '.join(shadows) or 'none'} of its tables exist"
                )
                continue
            sound = [self._structure(name, "fts_damage", "fts_damage", table) for name in shadows]
            said = None
            if deep and all(sound):
                said = self._step(self._disagreement, table)
            if said is not None:
                self._add("fts_damage", table, 1, [], said)
            elif all(sound):
                self._sound.append(table)
            self._advance(1)

    @staticmethod
    def _disagreement(conn: apsw.Connection, table: str) -> str | None:
        said = index_health.disagreement(conn, table)
        if said is not None and table == TRIGRAM and index_health.nul_rows(conn):
            # An older SQLite tokenized those only up to the NUL, which looks the same; they count as
            # rows with another text below.
            return None
        return said

    def _drift(self) -> None:
        after = -(2**63)
        while True:
            last, seen, wrong = self._step(index_health.drift, after, self._sound)
            for kind, ids_by_table in (
                ("missing_rows", wrong.missing),
                ("different_rows", wrong.different),
                ("unwanted_rows", wrong.unwanted),
            ):
                for table, ids in ids_by_table.items():
                    self._add(kind, table, len(ids), ids, _DRIFT[kind])
            self._advance(seen)
            if last is None:
                break
            after = last
        for table in self._sound:
            self._surplus(table)

    def _surplus(self, table: str) -> None:
        after = -(2**63)
        while True:
            last, seen, ids = self._step(index_health.surplus, table, after)
            if ids:
                self._add("surplus_rows", table, len(ids), ids, _DRIFT["surplus_rows"])
            self._advance(seen)
            if last is None:
                return
            after = last

    def _sessions(self) -> None:
        after = -(2**63)
        while page := self._step(health.session_page, after):
            wrong = self._step(health.wrong_sessions, page)
            counters = [s.id for s in wrong if s.counters is not None]
            orphans = [s.id for s in wrong if s.orphan]
            if counters:
                self._add("counters", "sessions", len(counters), counters, "counters differ from the rows")
            if orphans:
                self._add("orphan_parents", "sessions", len(orphans), orphans, "the parent does not exist")
            self._advance(len(page))
            after = page[-1]

    def _orphans(self) -> None:
        after = -(2**63)
        while True:
            last, seen, ids = self._step(health.orphan_messages, after)
            if ids:
                self._add("orphan_messages", "messages", len(ids), ids, "their session does not exist")
            self._advance(seen)
            if last is None:
                return
            after = last

    def _watermark(self, conn: apsw.Connection) -> None:
        through, highest = tables.watermark(conn), health.highest_id(conn)
        if through > highest:
            words = f"the watermark {through} is above {highest}, the highest id ever given"
            self._add("watermark", "state_meta", 1, [], words)

    # -- bookkeeping --

    def _guarded(self, where: str, fn: Callable[..., T], *arguments: Any) -> T | None:
        """``fn`` in a step; damage that stops it is a problem of ``where``, and gives None."""
        try:
            return self._step(fn, *arguments)
        except (apsw.Error, errors.StoreCorruptError) as error:
            if not is_damage(error):
                raise
            self._add("table_damage", where, 1, [], str(error))
            return None

    def _add(self, kind: str, where: str, count: int, sample: list[Any], detail: str) -> None:
        known = self._collected.get((kind, where))
        if known is None:
            self._collected[kind, where] = Problem(
                kind=kind, where=where, count=count, sample=sample[:SAMPLE], detail=detail
            )
        else:
            known["count"] += count
            known["sample"] = (known["sample"] + sample)[:SAMPLE]

    def _advance(self, pieces: int) -> None:
        self._done += pieces
        if self._progress is not None and pieces:
            self._total = max(self._total, self._done)
            self._progress(self._done, self._total)


_DRIFT: Final = {
    "missing_rows": "messages that are not in it",
    "different_rows": "messages that are in it with another text",
    "unwanted_rows": "messages that are in it and need not be",
    "surplus_rows": "rows without a message",
}


def verdict(problems: Iterable[Problem]) -> str:
    """The worst that the problems say."""
    kinds = {problem["kind"] for problem in problems}
    if kinds & TABLE_KINDS:
        return "table"
    if kinds & INDEX_KINDS:
        return "index"
    if "schema" in kinds:
        return "schema"
    return "drift" if kinds else "ok"
