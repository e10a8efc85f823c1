"""The goals' table of stalls, size and memory: prune, delete, upgrade, growth of a process."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from . import corpus, rows_processes
from .rows_read import sessions
from .runner import Bench, Cpu, Goal, Measure, Side, Values, percentiles, row, shift_into_past

TABLE = "stalls, size, memory"
A_SESSION = 25
"""Messages of each session that is pruned."""


def _many_sessions(count: int) -> Iterator[corpus.Session]:
    """``count`` sessions of A_SESSION messages."""
    messages = (
        message for session in corpus.build(count * A_SESSION, "mixed") for message in session["messages"]
    )
    for number in range(count):
        start = corpus.EPOCH + 600.0 * number
        own = [
            {**message, "timestamp": start + place}
            for place, message in enumerate(islice(messages, A_SESSION))
        ]
        yield {"id": f"old-{number:05d}", "source": "cli", "model": None, "title": None, "started_at": start,
               "messages": own}  # fmt: skip


@row(
    "prune of 1,000 sessions", TABLE,
    Measure("worst append elsewhere", "ms", Goal(own=250), bound=False, latencies=True),
    Measure("prune", "s", Goal(most=0.7), bound=False), short=True,
)  # fmt: skip
def prune(bench: Bench, side: Side) -> Values:
    count = bench.scale(60, 1_000)

    def build(path: Path) -> None:
        corpus.bulk_load(path, _many_sessions(count))
        shift_into_past(path, 200)

    with bench.copied(bench.prepared(side, "old", build)) as path:
        store = side.open(path)
        try:
            with rows_processes.appending(side, path) as taken:
                started = time.perf_counter()
                gone = store.prune_sessions(90)
                seconds = time.perf_counter() - started
        finally:
            store.close()
    if gone != count:
        raise RuntimeError(f"{gone} of {count} sessions were pruned")
    spread = percentiles(taken or [0.0])
    return {"worst append elsewhere": spread["max"], "prune": seconds, **spread}


@row(
    "delete of a 5,000-message session", TABLE, Measure("time", "ms", Goal(most=0.7), bound=False),
    Measure("cpu", "s"), Measure("until the indexes have forgotten it", "ms", bound=False), short=True,
)  # fmt: skip
def delete(bench: Bench, side: Side) -> Values:
    # Of 12,500 messages the long session of the read files has 5,000.
    size = bench.scale(2_000, 12_500)
    source = bench.prepared(side, f"read-{size}", lambda path: corpus.bulk_load(path, sessions(size)))
    with bench.copied(source) as path:
        store = side.open(path)
        try:
            started = time.perf_counter()
            with Cpu(time.thread_time) as cpu:
                gone = store.delete_session("bench-long")
            taken = time.perf_counter() - started
            if not gone:
                raise RuntimeError("the session was not there")
            # Where the call leaves that for later, the connection for other programs' SQL waits for it.
            store._conn.execute("SELECT 1").fetchone()
            whole = time.perf_counter() - started
            return {
                "time": taken * 1000, "cpu": cpu.seconds, "until the indexes have forgotten it": whole * 1000,
            }  # fmt: skip
        finally:
            store.close()


def to_version_10(path: Path) -> None:
    """Give a v11 file the full-text tables of version 10: external content, of ``content`` alone."""
    conn = sqlite3.connect(path, isolation_level=None)
    try:
        conn.execute("BEGIN IMMEDIATE")
        for name in ("messages_fts", "messages_fts_trigram"):
            for event in ("insert", "delete", "update"):
                conn.execute(f"DROP TRIGGER {name}_{event}")
            conn.execute(f"DROP TABLE {name}")
            tokenizer = ", tokenize='trigram'" if name.endswith("trigram") else ""
            conn.execute(
                f"CREATE VIRTUAL TABLE {name}"
                f" USING fts5(content, content=messages, content_rowid=id{tokenizer})"
            )
            insert = f"INSERT INTO {name}(rowid, content) VALUES (new.id, new.content);"
            delete = f"INSERT INTO {name}({name}, rowid, content) VALUES ('delete', old.id, old.content);"
            for event, body in (("insert", insert), ("delete", delete), ("update", delete + insert)):
                conn.execute(
                    f"CREATE TRIGGER {name}_{event} AFTER {event.upper()} ON messages BEGIN {body} END"
                )
            conn.execute(f"INSERT INTO {name}({name}) VALUES ('rebuild')")
        conn.execute("UPDATE schema_version SET version = 10")
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        conn.close()


@row(
    "upgrade of a schema-10 file of size M", TABLE,
    Measure("until append_message works", "ms", Goal(own=1000), bound=False),
    Measure("total", "s", Goal(most=0.5), bound=False), Measure("cpu", "s"), short=True,
)  # fmt: skip
def upgrade(bench: Bench, side: Side) -> Values:
    old = bench.workspace / "version-10.db"
    if not old.exists():
        corpus.bulk_load(old, corpus.build(bench.scale(1_500, corpus.SIZES["M"])))
        to_version_10(old)
    with bench.copied(old) as path, Cpu() as cpu:
        started = time.perf_counter()
        store = side.open(path)
        store.create_session("after", "cli")
        store.append_message("after", "user", "the first message after the upgrade")
        usable = time.perf_counter() - started
        store.search_messages("upgrade")  # waits until the index holds every row
        store.close()
        total = time.perf_counter() - started
    return {"until append_message works": usable * 1000, "total": total, "cpu": cpu.seconds}


@row("memory while 200,000 messages are appended", TABLE, Measure("growth", "MB", Goal(own=64)), against="")
def memory_of_appends(bench: Bench, side: Side) -> Values:
    with bench.folder() as folder:
        count = bench.scale(5_000, 200_000)
        return {"growth": rows_processes.growth(rows_processes.append_many, side, folder / "state.db", count)}


@row("memory while 200,000 messages are exported", TABLE, Measure("growth", "MB", Goal(own=64)), against="")
def memory_of_exports(bench: Bench, side: Side) -> Values:
    """Session by session, as ``export_session`` gives them."""
    count = bench.scale(5_000, 200_000)
    path = bench.prepared(side, f"export-{count}", lambda base: corpus.bulk_load(base, corpus.build(count)))
    return {"growth": rows_processes.growth(rows_processes.export_many, side, path, 100)}
