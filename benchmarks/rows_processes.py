"""What runs in processes of its own: appends that start together, appends beside a prune, memory.

Processes are spawned, so that a side's module is loaded fresh in each; only
picklable values cross.
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import corpus
from .runner import Side

SPAWN = multiprocessing.get_context("spawn")
PATIENCE_S = 300.0
"""How long a process is waited for."""
TEXT = "an answer of ordinary length about the build, the tests and what was changed in them. " * 5


def append(side: Side, path: Path, processes: int, count: int) -> tuple[float, list[float]]:
    """``count`` appends in each of so many processes that start together.

    Returns:
        Seconds from the start until the last has ended, and the seconds of every append. An
        append that the store gave up counts with the time until it did.
    """
    side.open(path).close()
    barrier = SPAWN.Barrier(processes + 1)
    results = SPAWN.Queue()
    pool = [
        SPAWN.Process(target=_appender, args=(side, path, f"process-{number}", count, barrier, results))
        for number in range(processes)
    ]
    for process in pool:
        process.start()
    barrier.wait(PATIENCE_S)
    started = time.perf_counter()
    taken = [seconds for _ in pool for seconds in results.get(timeout=PATIENCE_S)]
    total = time.perf_counter() - started
    for process in pool:
        process.join()
    return total, taken


def _appender(side: Side, path: Path, session: str, count: int, barrier: Any, results: Any) -> None:
    store = side.open(path)
    store.create_session(session, "cli")
    barrier.wait(PATIENCE_S)
    taken = [_timed(store, session) for _ in range(count)]
    results.put(taken)
    store.close()


def _timed(store: Any, session: str) -> float:
    started = time.perf_counter()
    try:
        store.append_message(session, "assistant", TEXT)
    except sqlite3.OperationalError as error:
        if "locked" not in str(error) and "busy" not in str(error):
            raise
    return time.perf_counter() - started


@contextmanager
def appending(side: Side, path: Path) -> Iterator[list[float]]:
    """Another process appends all the time while the block runs; the list then has its latencies."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_until_told, args=(side, path, theirs))
    process.start()
    theirs.close()  # if the process fails, what is waited for ends with EOFError
    taken: list[float] = []
    try:
        ours.recv()  # it has appended once
        yield taken
    finally:
        ours.send(None)
        taken += ours.recv()
        process.join()


def _until_told(side: Side, path: Path, told: Connection) -> None:
    store = side.open(path)
    store.create_session("beside", "cli")
    _timed(store, "beside")
    told.send(None)
    taken = []
    while not told.poll(0.002):
        taken.append(_timed(store, "beside"))
    told.recv()
    told.send(taken)
    store.close()


# -- memory --


Steps = Callable[[Side, Path, int], Iterator[None]]
"""Work whose first step is the warm-up; memory is looked at after each further step."""


def growth(work: Steps, side: Side, path: Path, count: int) -> float:
    """Megabytes by which a process of its own grows at most while ``work`` goes on."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_measured, args=(work, side, path, count, theirs))
    process.start()
    theirs.close()
    try:
        found: float | BaseException = ours.recv()
    finally:
        process.join()
    if isinstance(found, BaseException):
        raise found
    return found


def _measured(work: Steps, side: Side, path: Path, count: int, told: Connection) -> None:
    try:
        steps = work(side, path, count)
        next(steps)
        before = most = resident()
        for _ in steps:
            most = max(most, resident())
        told.send((max(most, resident()) - before) / 1e6)
    except BaseException as error:
        told.send(error)
        raise


def resident() -> int:
    """Bytes of this process that are in memory (``/proc/self/statm``, see proc(5))."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def append_many(side: Side, path: Path, count: int) -> Iterator[None]:
    """Append ``count`` messages by batches, a step a session; the first step is the warm-up."""
    store = side.open(path)
    for _ in _stored(store, "warm", 2_000):
        pass
    yield
    yield from _stored(store, "many", count)
    store.close()
    yield


def _stored(store: Any, prefix: str, count: int) -> Iterator[None]:
    for session in corpus.build(count, "mixed"):
        name = f"{prefix}-{session['id']}"
        store.create_session(name, "cli")
        store.append_messages(name, session["messages"])
        yield


def export_many(side: Side, path: Path, count: int) -> Iterator[None]:
    """Export the sessions of a file one by one, a step each; ``count`` is how many warm it up."""
    store = side.open(path)
    ids = [session["id"] for session in store.search_sessions(limit=1_000_000)]
    for session_id in islice(ids, count):
        store.export_session(session_id)
    yield
    for session_id in ids:
        store.export_session(session_id)
        yield
    store.close()
