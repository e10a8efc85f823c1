"""The goals' write table: what an append costs until acknowledged, and until searchable and closed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import rows_bare, rows_processes
from .runner import (
    Bench,
    Cpu,
    Goal,
    Measure,
    Side,
    Values,
    arguments,
    on_disk,
    percentile,
    percentiles,
    row,
)

BATCH = 100
Messages = list[dict[str, Any]]


@contextmanager
def fresh(bench: Bench, side: Side, **options: Any) -> Iterator[Any]:
    """A store on a new file, closed and removed afterwards."""
    with bench.folder() as folder:
        store = side.open(folder / "state.db", **options)
        try:
            yield store
        finally:
            store.close()


def append_one_by_one(store: Any, messages: Messages) -> list[float]:
    """Append into the messages' own sessions; seconds of each append."""
    for session in dict.fromkeys(message["session"] for message in messages):
        store.create_session(session, "cli")
    taken = []
    for message in messages:
        given = arguments(message)
        started = time.perf_counter()
        store.append_message(message["session"], **given)
        taken.append(time.perf_counter() - started)
    return taken


def append_in_threads(store: Any, messages: Messages, threads: int) -> tuple[float, list[float]]:
    """Append from threads that start together, a session each; seconds until the last ends, and of each."""
    for number in range(threads):
        store.create_session(f"thread-{number}", "cli")
    ready = threading.Barrier(threads + 1)
    taken: list[list[float]] = [[] for _ in range(threads)]
    failed: list[BaseException] = []

    def work(number: int) -> None:
        mine = [arguments(message) for message in messages[number::threads]]
        ready.wait()
        try:
            for given in mine:
                started = time.perf_counter()
                store.append_message(f"thread-{number}", **given)
                taken[number].append(time.perf_counter() - started)
        except BaseException as error:
            failed.append(error)

    pool = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in pool:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in pool:
        thread.join()
    total = time.perf_counter() - started
    if failed:
        raise failed[0]
    return total, [seconds for each in taken for seconds in each]


def append_in_batches(store: Any, messages: Messages, size: int = BATCH) -> None:
    """Append by ``append_messages`` where the store has it, else one by one, as a v11 program does."""
    store.create_session("batch", "cli")
    batches = [
        [arguments(message) for message in messages[i : i + size]] for i in range(0, len(messages), size)
    ]
    for batch in batches:
        if hasattr(store, "append_messages"):
            store.append_messages("batch", batch)
        else:
            for message in batch:
                store.append_message("batch", **message)


def latencies(taken: list[float], total: float) -> Values:
    """The values of a row of many appends: total in seconds, percentiles in milliseconds."""
    return {"total": total, **percentiles(taken)}


# -- until acknowledged --


def _tail(most: float) -> Measure:
    """The 99th percentile of single appends, with the others kept beside it."""
    return Measure("p99", "ms", Goal(most=most), bound=False, latencies=True)


@row(
    "append_message, 1 thread, acknowledged", "write",
    Measure("total", "s", Goal(most=0.28), bound=False), _tail(0.15), Measure("cpu", "s"), short=True,
)  # fmt: skip
def append_alone(bench: Bench, side: Side) -> Values:
    messages = bench.messages("mixed", bench.writes)
    with fresh(bench, side) as store, Cpu(time.thread_time) as cpu:
        taken = append_one_by_one(store, messages)
    return {**latencies(taken, sum(taken)), "cpu": cpu.seconds}


@row(
    "append_message, 1 thread, against bare APSW", "write",
    Measure("total", "s", Goal(most=1.15), bound=False), Measure("cpu", "s"), short=True,
    against="bare APSW", baseline=rows_bare.append,
)  # fmt: skip
def append_beside_bare(bench: Bench, side: Side) -> Values:
    return append_alone(bench, side)


def _threads(count: int, most: float, tail: float) -> None:
    @row(
        f"append_message, {count} threads, acknowledged", "write",
        Measure("total", "s", Goal(most=most), bound=False), _tail(tail), short=True,
    )  # fmt: skip
    def run(bench: Bench, side: Side) -> Values:
        messages = bench.messages("mixed", bench.writes)
        with fresh(bench, side) as store:
            total, taken = append_in_threads(store, messages, count)
        return latencies(taken, total)


_threads(16, 0.07, 0.07)
_threads(64, 0.05, 0.05)


@row(
    "append_messages, 100 a call, acknowledged", "write",
    Measure("total", "s", Goal(most=0.025), bound=False), Measure("cpu", "s"), short=True,
)  # fmt: skip
def append_batches(bench: Bench, side: Side) -> Values:
    messages = bench.messages("mixed", bench.writes)
    with fresh(bench, side) as store:
        started = time.perf_counter()
        with Cpu(time.thread_time) as cpu:
            append_in_batches(store, messages)
        return {"total": time.perf_counter() - started, "cpu": cpu.seconds}


# -- until everything is searchable and the file closed --


def closed(
    bench: Bench, side: Side, kind: str, append: Callable[[Any, Messages], Any], **options: Any
) -> Values:
    """Seconds of appends and ``close()``, all threads' processor seconds, megabytes of the closed file."""
    messages = bench.messages(kind, bench.writes)
    with bench.folder() as folder:
        path: Path = folder / "state.db"
        store = side.open(path, **options)
        started = time.perf_counter()
        with Cpu() as cpu:
            try:
                append(store, messages)
            finally:
                store.close()
        total = time.perf_counter() - started
        return {"total": total, "cpu": cpu.seconds, "file": on_disk(path) / 1e6}


def _sixteen(store: Any, messages: Messages) -> None:
    append_in_threads(store, messages, 16)


@row(
    "1 thread, all searchable, closed, trigram all",
    "write",
    Measure("total", "s", Goal(most=0.33), bound=False),
    Measure("cpu", "s"),
    short=True,
)
def closed_alone(bench: Bench, side: Side) -> Values:
    return closed(bench, side, "mixed", append_one_by_one, trigram="all")


@row("16 threads, all searchable, closed, trigram all", "write", Measure("total", "s", Goal(most=0.16)))
def closed_sixteen(bench: Bench, side: Side) -> Values:
    return closed(bench, side, "mixed", _sixteen, trigram="all")


@row("16 threads, all searchable, closed, unspaced, English", "write", Measure("total", "s", Goal(most=0.09)))
def closed_sixteen_unspaced(bench: Bench, side: Side) -> Values:
    return closed(bench, side, "english", _sixteen, trigram="unspaced")


@row(
    "append_messages of 100, all searchable, closed, trigram all", "write",
    Measure("total", "s", Goal(most=0.15), bound=False), Measure("cpu", "s"), short=True,
)  # fmt: skip
def closed_batches(bench: Bench, side: Side) -> Values:
    return closed(bench, side, "mixed", append_in_batches, trigram="all")


@row(
    "append_messages of 100, closed, against a bare APSW bulk load", "write",
    Measure("total", "s", Goal(most=1.25), bound=False), Measure("cpu", "s"), short=True,
    against="bare APSW", baseline=rows_bare.bulk,
)  # fmt: skip
def closed_batches_beside_bare(bench: Bench, side: Side) -> Values:
    return closed(bench, side, "mixed", append_in_batches, trigram="all")


@row(
    "append_messages of 100, all searchable, closed, unspaced, English", "write",
    Measure("total", "s", Goal(most=0.06), bound=False), Measure("cpu", "s"),
    Measure("file", "MB", Goal(most=0.50)), short=True,
)  # fmt: skip
def closed_batches_unspaced(bench: Bench, side: Side) -> Values:
    return closed(bench, side, "english", append_in_batches, trigram="unspaced")


def _inline(threads: int, most: float) -> None:
    @row(f'indexing="inline", {threads} thread(s)', "write", Measure("total", "s", Goal(most=most)))
    def run(bench: Bench, side: Side) -> Values:
        messages = bench.messages("mixed", bench.writes)
        with fresh(bench, side, indexing="inline") as store:
            if threads == 1:
                return {"total": sum(append_one_by_one(store, messages))}
            return {"total": append_in_threads(store, messages, threads)[0]}


_inline(1, 0.80)
_inline(16, 0.30)


# -- in company --


@contextmanager
def burning(threads: int) -> Iterator[None]:
    """So many Python threads that compute without end while the block runs."""
    stop = threading.Event()
    started = threading.Barrier(threads + 1)

    def burn() -> None:
        started.wait()
        number = 0
        while not stop.is_set():
            for _ in range(1000):
                number = (number * 31 + 7) % 1_000_003

    pool = [threading.Thread(target=burn) for _ in range(threads)]
    for thread in pool:
        thread.start()
    started.wait()
    try:
        yield
    finally:
        stop.set()
        for thread in pool:
            thread.join()


@row(
    "one append while two threads burn CPU", "write", _tail(0.35), Measure("median", "ms", bound=False),
)  # fmt: skip
def append_beside_burning(bench: Bench, side: Side) -> Values:
    messages = bench.messages("mixed", bench.scale(40, 200))
    with fresh(bench, side) as store, burning(2):
        taken = append_one_by_one(store, messages)
    found = percentiles(taken)
    return {**found, "median": found["p50"]}


@row(
    "1 MB message, acknowledged", "write", Measure("total", "ms", Goal(most=0.02), bound=False),
    Measure("cpu", "s"), short=True,
)  # fmt: skip
def append_large(bench: Bench, side: Side) -> Values:
    chance = random.Random(7)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(9000)
    ]
    text = " ".join(chance.choices(words, k=135_000))[:1_000_000]
    with fresh(bench, side) as store:
        store.create_session("large", "cli")
        store.append_message("large", "user", "the statement is prepared now")
        started = time.perf_counter()
        with Cpu(time.thread_time) as cpu:
            store.append_message("large", "tool", text)
        return {"total": (time.perf_counter() - started) * 1000, "cpu": cpu.seconds}


@row(
    "8 processes x 150 appends", "write",
    Measure("worst", "ms", Goal(most=0.2, own=1000), bound=False, latencies=True),
    Measure("total", "s", bound=False),
)  # fmt: skip
def append_in_processes(bench: Bench, side: Side) -> Values:
    with bench.folder() as folder:
        total, taken = rows_processes.append(
            side, folder / "state.db", bench.scale(4, 8), bench.scale(30, 150)
        )
    found = percentiles(taken)
    return {**found, "worst": found["max"], "total": total}


@row(
    "replace_messages, 500 messages, only the tail changed", "write",
    Measure("total", "ms", Goal(most=0.05), bound=False), Measure("cpu", "s"), short=True,
)  # fmt: skip
def replace_tail(bench: Bench, side: Side) -> Values:
    messages = [arguments(message) for message in bench.messages("mixed", 500)]
    with fresh(bench, side) as store:
        store.create_session("replaced", "cli")
        store.replace_messages("replaced", messages)
        store.search_messages("index")
        history = store.get_messages("replaced")
        taken, used = [], []
        for number in range(3):
            history[-1] = {**history[-1], "content": f"another end, number {number}"}
            started = time.perf_counter()
            with Cpu(time.thread_time) as cpu:
                store.replace_messages("replaced", history)
            taken.append(time.perf_counter() - started)
            used.append(cpu.seconds)
        return {"total": percentile(taken, 0.5) * 1000, "cpu": min(used)}
