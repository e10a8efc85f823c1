"""How a repair works: in short transactions, letting other writers in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, TypedDict, TypeVar

import apsw

from hermes_state import errors
from hermes_state.api.checking import CheckReport, Progress, Step
from hermes_state.api.stepping import REST_S
from hermes_state.engine.worker import StepSize
from hermes_state.schema import migrate, renew
from hermes_state.search import health as index_health
from hermes_state.search import indexing, segments, tables
from hermes_state.store import health

T = TypeVar("T")

HOLD_S = 0.040
"""How long one step of a repair should hold the write lock, seconds."""
ROUNDS = 3
"""Rounds of mending and looking again: some things can be compared only once others are mended."""
MERGE_PAGES = 32
"""Pages that the first step of a merge writes; later ones are fitted to ``HOLD_S``."""


class RepairReport(TypedDict):
    """What ``repair`` did.

    ``before`` and ``after``: the checks. ``rebuilt``: full-text tables and indexes made anew.
    ``rows``: messages indexed anew. ``counters``: sessions counted anew. ``orphans``: orphan messages
    deleted. ``parents``: sessions that lost a parent that does not exist. ``vacuum_advised``: pages were
    left that only ``vacuum()`` frees. ``advice``: what is left to do, in words; empty when all is well.
    """

    before: CheckReport
    after: CheckReport
    rebuilt: list[str]
    rows: int
    counters: int
    orphans: int
    parents: int
    vacuum_advised: bool
    advice: list[str]


class Repairs:
    """The work of ``repair`` and its neighbours on one store.

    Args:
        see: runs a function on one snapshot.
        do: runs a function in one write transaction.
        index_now: one index transaction of so many rows; (rows treated, seconds of lock held).
        mended: called when damaged full-text tables have been made anew.
    """

    def __init__(
        self,
        see: Step,
        do: Step,
        index_now: Callable[[int], tuple[int, float]],
        mended: Callable[[], None],
    ) -> None:
        self._see = see
        self._do = do
        self._index_now = index_now
        self._mended = mended

    def repair(
        self, check: Callable[[Progress], CheckReport], remove_orphans: bool, progress: Progress
    ) -> RepairReport:
        """Mend what ``check`` finds, and look again."""
        before = check(progress)
        report = RepairReport(
            before=before, after=before, rebuilt=[], rows=0, counters=0, orphans=0, parents=0,
            vacuum_advised=False, advice=[],
        )  # fmt: skip
        for _ in range(ROUNDS):
            found = report["after"]
            if found["ok"] or found["verdict"] == "table":
                break
            self.mend(found, report, remove_orphans)
            report["after"] = check(None)
        report["advice"] = advice(report)
        return report

    def rebuild(self, damaged: Collection[str], progress: Progress = None) -> None:
        """Make the damaged full-text tables anew, index every row of the others again, and merge."""
        self.renew(damaged)
        self._mended()
        total = self._see(health.message_total)
        self.index_pending(progress, total)
        if not self._see(tables.present) <= set(damaged):
            self.each_indexed(reindex, progress)
        self.optimize()

    def mend(self, found: CheckReport, report: RepairReport, remove_orphans: bool) -> None:
        """Mend the problems of ``found``, and note in ``report`` what was done."""
        kinds: dict[str, set[str]] = {}
        for problem in found["problems"]:
            kinds.setdefault(problem["kind"], set()).add(problem["where"])
        if "schema" in kinds:
            self._do(migrate.upgrade)
        if "watermark" in kinds:
            self._do(_lower_watermark)
        for name in sorted(kinds.get("index_damage", ())):
            done, left = self._by_force(renew.renew_index, name)
            if done:
                report["rebuilt"].append(name)
                report["vacuum_advised"] |= left
        self.renew(sorted(kinds.get("fts_damage", ())), report)
        self._mended()
        self.index_pending()
        if kinds.keys() & {"missing_rows", "different_rows", "unwanted_rows"}:
            report["rows"] += self._mend_rows()
        if "surplus_rows" in kinds:
            self._mend_surplus(sorted(kinds["surplus_rows"]))
        if remove_orphans and "orphan_messages" in kinds:
            report["orphans"] += self._delete_orphans()
        if kinds.keys() & {"counters", "orphan_parents"}:
            self._mend_sessions(report, remove_orphans)

    def renew(self, damaged: Collection[str], report: RepairReport | None = None) -> None:
        """Make full-text tables anew, each in one short transaction."""
        for table in damaged:
            _, left = self._by_force(renew.renew_fts, table)
            if report is not None:
                report["rebuilt"].append(table)
                report["vacuum_advised"] |= left

    def _by_force(self, fn: Callable[..., T], name: str) -> tuple[T, bool]:
        """``fn(conn, name)``; where damage stops it, again with the old pages left where they are.

        Returns its result, and whether pages were left.
        """
        try:
            return self._do(partial(fn, leave_pages=False), name), False
        except errors.StoreCorruptError:
            return self._do(partial(fn, leave_pages=True), name), True

    def index_pending(self, progress: Progress = None, total: int = 0) -> None:
        """Index every row above the watermark, in steps."""
        size, done = StepSize(HOLD_S), 0
        while True:
            asked = size.rows
            treated, held = self._index_now(asked)
            size.learn(treated, held)
            done += treated
            if progress is not None and treated:
                progress(done, max(total, done))
            if not treated:
                return
            time.sleep(REST_S)

    def _in_pieces(self, ids: Sequence[int], size: StepSize, fn: Callable[..., int], *more: Any) -> int:
        """``fn(conn, piece, *more)`` for pieces of ``ids``, each in a short write transaction; its sum."""
        total = at = 0
        while at < len(ids):
            piece = ids[at : at + size.rows]
            started = time.monotonic()
            total += self._do(fn, piece, *more)
            size.learn(len(piece), time.monotonic() - started)
            at += len(piece)
            time.sleep(REST_S)
        return total

    def _pages(self, page: Callable[[apsw.Connection, int], list[int]]) -> Iterator[list[int]]:
        """Every page of ids that ``page(conn, after)`` gives, each read in a snapshot of its own."""
        after = -(2**63)
        while ids := self._see(page, after):
            yield ids
            after = ids[-1]

    def _mend_rows(self) -> int:
        """Index the messages anew that an index lacks, has in another form, or need not have."""
        size, total = StepSize(HOLD_S), 0
        have = self._see(tables.present)
        for ids in self._pages(index_health.indexed_page):
            wrong = self._see(index_health.drift_of, ids, have).ids()
            total += self._in_pieces(wrong, size, _reindex_wrong, have)
        return total

    def _mend_surplus(self, damaged: Collection[str]) -> None:
        size = StepSize(HOLD_S)
        for table in damaged:
            after: int | None = -(2**63)
            while after is not None:
                after, _, ids = self._see(index_health.surplus, table, after)
                self._in_pieces(ids, size, index_health.forget_surplus)

    def _mend_sessions(self, report: RepairReport, remove_orphans: bool) -> None:
        size = StepSize(HOLD_S)
        for rowids in self._pages(health.session_page):
            wrong = self._see(health.wrong_sessions, rowids)
            ids = [s.rowid for s in wrong]
            report["counters"] += self._in_pieces(ids, size, _recount)
            if remove_orphans:
                report["parents"] += self._in_pieces(
                    [s.rowid for s in wrong if s.orphan], size, _drop_parents
                )

    def _delete_orphans(self) -> int:
        size, total = StepSize(HOLD_S), 0
        after: int | None = -(2**63)
        while after is not None:
            after, _, ids = self._see(health.orphan_messages, after)
            total += self._in_pieces(ids, size, _delete_orphans)
        return total

    def each_indexed(self, fn: Callable[..., int], progress: Progress) -> None:
        """``fn`` for every indexed message, in pieces."""
        size, done = StepSize(HOLD_S), 0
        total = self._see(health.message_total)
        for ids in self._pages(index_health.indexed_page):
            self._in_pieces(ids, size, fn)
            done += len(ids)
            if progress is not None:
                progress(done, max(total, done))

    def optimize(self, progress: Progress = None) -> int:
        """Merge the segments of every full-text table in steps; how many steps were needed."""
        steps = 0
        size = StepSize(HOLD_S)
        size.rows = MERGE_PAGES
        names = sorted(self._see(tables.present))
        waiting = {
            table: segments.to_read(self._see(segments.pages, table), merging=False) for table in names
        }
        total = sum(waiting.values())
        for table in names:
            start = more = True
            while more:
                started = time.monotonic()
                more = self._do(partial(index_health.merge_step, start=start), table, size.rows)
                size.learn(size.rows, time.monotonic() - started)
                start = False
                steps += 1
                if progress is not None and total:
                    left = segments.to_read(self._see(segments.pages, table), merging=True)
                    # What others index meanwhile comes on top, and is not for this merge to do.
                    waiting[table] = min(waiting[table], left if more else 0)
                    progress(total - sum(waiting.values()), total)
                time.sleep(REST_S)
        return steps


def _lower_watermark(conn: apsw.Connection) -> None:
    tables.set_meta(conn, tables.META_WATERMARK, str(min(tables.watermark(conn), health.highest_id(conn))))


def _reindex_wrong(conn: apsw.Connection, ids: Sequence[int], have: Collection[str]) -> int:
    wrong = index_health.drift_of(conn, ids, have).ids()
    indexing.index_rows(conn, wrong)
    return len(wrong)


def _recount(conn: apsw.Connection, rowids: Sequence[int]) -> int:
    return health.set_counters(conn, health.wrong_sessions(conn, rowids))


def _drop_parents(conn: apsw.Connection, rowids: Sequence[int]) -> int:
    return health.drop_parents(conn, health.wrong_sessions(conn, rowids))


def _delete_orphans(conn: apsw.Connection, ids: Sequence[int]) -> int:
    lost = health.still_orphans(conn, ids)
    indexing.forget(conn, lost)
    health.delete_messages(conn, lost)
    return len(lost)


def reindex(conn: apsw.Connection, ids: Sequence[int]) -> int:
    """Index these messages again, whatever stands there."""
    indexing.index_rows(conn, ids)
    return len(ids)


def touch(conn: apsw.Connection, ids: Sequence[int]) -> int:
    """Let every table hold of these messages what the present mode asks for."""
    indexing.touch(conn, ids)
    return len(ids)


def advice(report: RepairReport) -> list[str]:
    """What is left to do after a repair, in words."""
    after = report["after"]
    kinds = {problem["kind"] for problem in after["problems"]}
    out = []
    if after["verdict"] == "table" or "index_damage" in kinds:
        out.append(
            "close the store and read what is readable into a new file: hermes_state.salvage(path, into)"
        )
    if kinds & {"orphan_messages", "orphan_parents"}:
        out.append("repair(remove_orphans=True) removes what belongs to no session")
    if report["vacuum_advised"]:
        out.append("vacuum() frees the pages of what was damaged")
    return out
