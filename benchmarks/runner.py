"""Rows, what they measure, and running two sides in turn.

A row is one small function that does a piece of work on one side (our store, or
the one it is compared with) and returns named values. The runner calls it for
both sides in turn, A B A B ..., and keeps the median over the pairs of the ratio
ours / other. Ratios are what counts: the machine may be shared with other work.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import math
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import corpus

Values = dict[str, float]
"""What a run returns: a value for each measure; ``NAME.least`` beside ``NAME`` is the least of its calls."""
Run = Callable[["Bench", "Side"], Values]

SHORT_SECONDS = 1.5
"""A row of the short form begins no further pair after so many seconds: a slow disk costs no minutes."""
PERCENTILES = ("p50", "p90", "p99", "max")
"""The values of `percentiles`."""
TABLES = ("write", "read", "stalls, size, memory", "kernels")
SHORT_WRITES, SHORT_READS = 200, 2_000
"""Messages of the write rows and of the read files in the short form."""


@dataclass(frozen=True)
class Goal:
    """What is to be reached: all that are given hold.

    Attributes:
        most: the ratio ours / other at most.
        least: that ratio at least, for rates.
        own: our own value at most, in the measure's unit.
    """

    most: float | None = None
    least: float | None = None
    own: float | None = None

    def reached(self, ours: float, ratio: float | None) -> bool:
        """Whether a median of ours and a ratio reach it; a missing ratio reaches no ratio."""
        if self.own is not None and ours > self.own:
            return False
        if self.most is not None and (ratio is None or ratio > self.most):
            return False
        return self.least is None or (ratio is not None and ratio >= self.least)


@dataclass(frozen=True)
class Measure:
    """One value that a row returns.

    Attributes:
        name: its key in what the row returns.
        unit: "s", "ms", "us", "MB" or "/s" (rates: more is better; all others: less is better).
        goal: None for a value that is only shown.
        bound: False for what a stored bound cannot judge on a machine with other work: latency tails,
            and times that are waits for the disk.
        latencies: the row also returns PERCENTILES (milliseconds), to be kept beside this measure.
    """

    name: str
    unit: str
    goal: Goal | None = None
    bound: bool = True
    latencies: bool = False

    @property
    def more_is_better(self) -> bool:
        """True for rates."""
        return self.unit.endswith("/s")


@dataclass(frozen=True)
class Row:
    """A piece of work that is measured.

    Attributes:
        name: unique, in the words of the goals' table.
        table: one of TABLES.
        run: does the work on a side; each call stands alone.
        measures: what it returns.
        short: part of the short form.
        against: what it is compared with; "" for nothing (then it runs on our side alone).
        baseline: does the work of the other side, where that is not ``run`` on the other store.
    """

    name: str
    table: str
    run: Run
    measures: tuple[Measure, ...]
    short: bool = False
    against: str = "reference"
    baseline: Run | None = None


ROWS: list[Row] = []


def row(
    name: str,
    table: str,
    *measures: Measure,
    short: bool = False,
    against: str = "reference",
    baseline: Run | None = None,
) -> Callable[[Run], Run]:
    """Register the decorated function as a row."""

    def register(run: Run) -> Run:
        if any(other.name == name for other in ROWS):
            raise ValueError(f"two rows are called {name!r}")
        ROWS.append(Row(name, table, run, measures, short, against, baseline))
        return run

    return register


@dataclass(frozen=True)
class Side:
    """One of the two stores: where its ``SessionDB`` comes from.

    Picklable, so that processes can be started on it.

    Attributes:
        name: "ours" or "other".
        module: an importable module, or the path of a Python file.
    """

    name: str
    module: str

    @property
    def ours(self) -> bool:
        """True for the store under test."""
        return self.name == "ours"

    def store_class(self) -> Any:
        """The class ``SessionDB`` of the module. ImportError or AttributeError if it is not to be had."""
        return load(self.module).SessionDB

    def open(self, path: Path, **options: Any) -> Any:
        """A store on the file; ``options`` are ours alone, the other side has no choices."""
        return self.store_class()(path, **options) if self.ours else self.store_class()(path)


def load(module: str) -> Any:
    """The module of that name, or the Python file at that path (its folder importable, last)."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    path = Path(module).resolve()
    name = f"benchmarks_peer_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@dataclass
class Bench:
    """What rows work with: sizes, data, folders, prepared files.

    Attributes:
        workspace: a folder on the disk that is measured.
        writes: messages of a write row.
        reads: "S", "M", "L" or a number: messages of the read files.
        short: the short form.
    """

    workspace: Path
    writes: int = SHORT_WRITES
    reads: str | int = SHORT_READS
    short: bool = True
    _messages: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    _files: dict[tuple[str, str], Path] = field(default_factory=dict)

    @property
    def read_messages(self) -> int:
        """How many messages a read file has."""
        return corpus.SIZES[self.reads] if isinstance(self.reads, str) else self.reads

    def scale(self, short: int, long: int) -> int:
        """A count for the short form, or for the long one."""
        return short if self.short else long

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A fresh folder for one run, removed afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.workspace))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def messages(self, kind: str, count: int) -> list[dict[str, Any]]:
        """``count`` messages with the keys that ``append_message`` takes, and ``session`` before them."""
        key = (kind, count)
        if key not in self._messages:
            self._messages[key] = [
                {"session": session["id"], **{k: v for k, v in message.items() if k != "timestamp"}}
                for session in corpus.build(count, kind)
                for message in session["messages"]
            ]
        return self._messages[key]

    def prepared(self, side: Side, name: str, build: Callable[[Path], object]) -> Path:
        """The side's file ``name``: made once by ``build`` in the form of v11, then copied for each side.

        Our engine opens its copy, so that it has added what it adds and has indexed all of it.
        """
        key = (side.name, name)
        if key in self._files:
            return self._files[key]
        base = self.workspace / f"{name}.db"
        if not base.exists():
            build(base)
        path = self.workspace / f"{name}-{side.name}.db"
        shutil.copyfile(base, path)
        store = side.open(path)
        store.search_messages("index")  # a search waits until the index holds every row
        store.close()
        wal = Path(f"{path}-wal")
        if wal.exists() and wal.stat().st_size:
            # A copy of the main file alone would be torn.
            raise RuntimeError(f"{side.module} left {wal.stat().st_size} bytes in the WAL of a closed file")
        self._files[key] = path
        return path

    @contextmanager
    def copied(self, path: Path) -> Iterator[Path]:
        """A copy of a prepared (closed) file for one run that changes it."""
        with self.folder() as folder:
            yield Path(shutil.copyfile(path, folder / "state.db"))


@dataclass(frozen=True)
class Result:
    """One measure of one row: medians, and the ratio of each pair.

    Attributes:
        ours, other: medians over the runs; ``other`` is None for rows of our side alone.
        ratios: ours / other of each pair.
        best: the best of our runs and the best of the other's (rates: the highest), or None.
        percentiles: "ours" and "other" -> PERCENTILES -> median over the runs, in milliseconds.
    """

    row: str
    table: str
    size: str
    against: str
    measure: Measure
    ours: float
    other: float | None
    ratios: tuple[float, ...]
    best: tuple[float, float] | None = None
    percentiles: Mapping[str, Mapping[str, float]] | None = None

    @property
    def key(self) -> str:
        """The name under which a bound is stored."""
        return f"{self.row}: {self.measure.name}"

    @property
    def ratio(self) -> float | None:
        """Median of the pairs' ratios ours / other; None for rows of our side alone."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def two_ratios(self) -> tuple[float, ...]:
        """The median of the pairs and the ratio of the best runs, the better first; empty without a ratio.

        Other work on the machine disturbs the one or the other; a change of the code shows in both.
        """
        if self.ratio is None:
            return ()
        best = self.best[0] / self.best[1] if self.best and self.best[1] else self.ratio
        return tuple(sorted((self.ratio, best), reverse=self.measure.more_is_better))

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        goal = self.measure.goal
        return None if goal is None else goal.reached(self.ours, self.ratio)


def measure(
    bench: Bench, chosen: Row, sides: Sequence[Side], pairs: int, size: str, seconds: float = math.inf
) -> list[Result]:
    """Run a row in turn on both sides, ``pairs`` times; one result a measure.

    No pair begins after so many ``seconds``, but for the first.
    """
    ours, other = sides
    mine: list[Values] = []
    theirs: list[Values] = []
    started = time.monotonic()
    for _ in range(pairs):
        if mine and time.monotonic() - started > seconds:
            break
        mine.append(_one(bench, chosen.run, ours))
        if chosen.against:
            theirs.append(_one(bench, chosen.baseline or chosen.run, other))
    return [_result(chosen, what, size, mine, theirs) for what in chosen.measures]


def _one(bench: Bench, run: Run, side: Side) -> Values:
    gc.collect()
    return run(bench, side)


def _result(chosen: Row, what: Measure, size: str, mine: list[Values], theirs: list[Values]) -> Result:
    own = [values[what.name] for values in mine]
    rest = [values[what.name] for values in theirs if what.name in values]
    ratios = tuple(a / b for a, b in zip(own, rest, strict=True) if b > 0) if rest else ()
    percentiles = {
        name: {key: statistics.median(values[key] for values in runs) for key in PERCENTILES}
        for name, runs in (("ours", mine), ("other", theirs))
        if what.latencies and runs
    }
    return Result(
        chosen.name, chosen.table, size, chosen.against, what,
        statistics.median(own), statistics.median(rest) if rest else None, ratios,
        (_best(what, mine), _best(what, theirs)) if ratios else None, percentiles or None,
    )  # fmt: skip


def _best(what: Measure, runs: list[Values]) -> float:
    found = [values.get(f"{what.name}.least", values[what.name]) for values in runs]
    return max(found) if what.more_is_better else min(found)


# -- what rows share --


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of ``values`` do not exceed (nearest rank). ValueError if empty."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def percentiles(taken: Sequence[float]) -> Values:
    """PERCENTILES of latencies given in seconds, in milliseconds."""
    shares = (0.5, 0.9, 0.99, 1.0)
    return {name: percentile(taken, share) * 1000 for name, share in zip(PERCENTILES, shares, strict=True)}


def repeated(
    call: Callable[[], Any], unit: float, *, least: int = 3, seconds: float = 0.1, most: int = 50
) -> Values:
    """The median ``time`` of one call, and the least, in units of ``unit`` seconds.

    One call is not counted; then there are at least ``least``, and more until ``seconds`` are over.
    """
    call()
    taken: list[float] = []
    while len(taken) < least or (sum(taken) < seconds and len(taken) < most):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return {"time": statistics.median(taken) / unit, "time.least": min(taken) / unit}


class Cpu:
    """Processor seconds that a block takes: ``with Cpu() as cpu: ...``, then ``cpu.seconds``.

    Waits for the disk and for a turn on the processor do not count, so ratios of it hold on a busy machine.

    Args:
        clock: ``time.process_time`` for all threads of the process, ``time.thread_time`` for this one.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.seconds = 0.0

    def __enter__(self) -> Cpu:
        self._started = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._clock() - self._started


def arguments(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the session that it belongs to."""
    return {key: value for key, value in message.items() if key != "session"}


def on_disk(path: Path) -> int:
    """Bytes of a closed store's file and of what lies beside it."""
    return sum(os.path.getsize(found) for found in path.parent.glob(f"{path.name}*"))


def shift_into_past(path: Path, days: float) -> None:
    """Move every session and message so many days before now, and end the sessions."""
    conn = sqlite3.connect(path, isolation_level=None)
    try:
        newest = conn.execute("SELECT max(timestamp) FROM messages").fetchone()[0]
        by = time.time() - days * 86_400 - newest
        conn.execute("BEGIN IMMEDIATE")
        for name in ("messages_fts_update", "messages_fts_trigram_update"):
            conn.execute(f"DROP TRIGGER {name}")
        conn.execute("UPDATE messages SET timestamp = timestamp + ?", (by,))
        conn.execute(
            "UPDATE sessions SET started_at = started_at + :by, ended_at = started_at + :by + 60,"
            " end_reason = 'user_exit'",
            {"by": by},
        )
        for name in ("messages_fts", "messages_fts_trigram"):
            conn.execute(_trigger(name))
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        conn.close()


def _trigger(name: str) -> str:
    from .reference_base import fts_sql

    found = [f"{part}END;" for part in fts_sql(name)[1].split("END;") if f"{name}_update" in part]
    return found[0]
