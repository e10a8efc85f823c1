"""Let processes and threads write one file at once, and see who waited, how long, and whether all is there.

P processes with T threads each append M messages; a number of programs on
the older, pure-stdlib store append beside them. One row a process is
printed: latency of an append at the median, the 99th percentile and the worst, and
when the process was done. Below it: throughput, fairness (the slowest process's time over
the quickest's), rows lost, rows that an index lacks. The exit status is 1 when
anything was lost.

    python tools/contention.py --processes 8 --threads 2 --messages 150 --peers 1
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "tests" / "peers" / "v11_peer.py"
INDEXES = ("messages_fts", "messages_fts_trigram")
MOST = {"processes": 64, "threads": 64, "messages": 10_000, "peers": 16}
"""Bounds, so that a slip of the finger does not fill the machine."""

WRITER = r"""
import json, sys, threading, time
from hermes_state import SessionDB
path, me, threads, count, size, indexing = sys.argv[1:]
db = SessionDB(path, indexing=indexing)
took, ids, failed = [], [], []

def write(number):
    session = f"{me}.{number}"
    for n in range(int(count)):
        began = time.monotonic()
        try:
            ids.append(db.append_message(session, "user", f"contention {session} {n} " + "x" * int(size)))
        except Exception as error:
            failed.append(repr(error))
        took.append(time.monotonic() - began)

for number in range(int(threads)):
    db.ensure_session(f"{me}.{number}", "cli")
workers = [threading.Thread(target=write, args=(number,)) for number in range(int(threads))]
print("READY", flush=True)
sys.stdin.readline()
began = time.monotonic()
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
done = time.monotonic() - began
db.close()
print(json.dumps({"took": took, "ids": ids, "failed": failed, "done": done}))
"""


@dataclass(frozen=True)
class Part:
    """What one program did: its appends' latencies in seconds, ids, failures, seconds until it was done."""

    name: str
    took: list[float]
    ids: list[int]
    failed: list[str]
    done: float

    def row(self) -> str:
        """The line of the table."""
        times = sorted(self.took) or [0.0]
        median, late, worst = (times[min(len(times) - 1, int(len(times) * q))] for q in (0.5, 0.99, 1.0))
        return (
            f"{self.name:10} {len(self.ids):8} {len(self.failed):7} {median * 1e3:9.2f} {late * 1e3:9.2f}"
            f" {worst * 1e3:9.2f} {self.done:8.2f}"
        )


def start(stack: ExitStack, arguments: list[str]) -> subprocess.Popen[str]:
    """A program that stands at its barrier."""
    running = stack.enter_context(
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    )
    stack.callback(running.kill)
    assert running.stdout is not None
    if running.stdout.readline().strip() != "READY":
        raise RuntimeError("a writer did not start")
    return running


def measure(path: Path, options: argparse.Namespace) -> list[Part]:
    """Run all writers at once; their parts, the older programs' last."""
    from hermes_state import SessionDB

    SessionDB(path).close()
    ours, theirs = [], []
    with ExitStack() as stack:
        for number in range(options.processes):
            arguments = [str(path), f"p{number}", str(options.threads), str(options.messages)]
            arguments += [str(options.size), options.indexing]
            ours.append(start(stack, [sys.executable, "-c", WRITER, *arguments]))
        for number in range(options.peers):
            text = f"contention peer{number} {{n}} " + "x" * options.size
            arguments = [str(path), "append", "--session", f"peer{number}", "--content", text]
            arguments += ["--count", str(options.messages), "--start-barrier"]
            theirs.append(start(stack, [sys.executable, str(PEER), *arguments]))
        began = time.monotonic()
        for running in (*ours, *theirs):
            assert running.stdin is not None
            running.stdin.write("\n")
            running.stdin.flush()
        parts = [
            Part(f"p{number}", **last_answer(running, options.seconds)) for number, running in enumerate(ours)
        ]
        for number, running in enumerate(theirs):
            said = last_answer(running, options.seconds)
            failed = [said["message"]] if "error" in said else []
            worst = [said["worst_seconds"]] if "worst_seconds" in said else []
            parts.append(Part(f"v11 {number}", worst, said.get("ids", []), failed, time.monotonic() - began))
    return parts


def last_answer(running: subprocess.Popen[str], seconds: float) -> Any:
    """The last line that a program says, from JSON; it is killed after ``seconds``."""
    try:
        out, _ = running.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        running.kill()
        raise SystemExit(f"a writer was not done after {seconds:g} s") from None
    return json.loads(out.splitlines()[-1])


def losses(path: Path, parts: list[Part]) -> dict[str, int]:
    """How many acknowledged rows are gone, rows each index lacks, counters that differ, damage found."""
    acknowledged = {i for part in parts for i in part.ids}
    with closing(sqlite3.connect(path)) as conn:
        rows = {row[0] for row in conn.execute("SELECT id FROM messages")}
        found = {"rows lost": len(acknowledged - rows)}
        for name in INDEXES:
            indexed = {row[0] for row in conn.execute(f"SELECT id FROM {name}_docsize")}
            found[f"rows {name} lacks"] = len(rows - indexed)
        found["counters that differ"] = conn.execute(
            "SELECT count(*) FROM sessions s WHERE message_count <>"
            " (SELECT count(*) FROM messages m WHERE m.session_id = s.id)"
        ).fetchone()[0]
        found["damage"] = int(conn.execute("PRAGMA integrity_check").fetchone()[0] != "ok")
    found["ids given twice"] = sum(len(part.ids) for part in parts) - len(acknowledged)
    return found


def report(parts: list[Part], lost: dict[str, int]) -> None:
    """Print the table and what follows from it."""
    print(
        f"{'writer':10} {'appends':>8} {'failed':>7} {'p50 ms':>9} {'p99 ms':>9}"
        f" {'worst ms':>9} {'done s':>8}"
    )
    for part in parts:
        print(part.row())
    ours = [part for part in parts if part.name.startswith("p")]
    if ours:
        slowest = max(part.done for part in ours)
        quickest = min(part.done for part in ours)
        total = sum(len(part.ids) for part in ours)
        print(
            f"{total / max(slowest, 1e-9):.0f} appends a second, slowest over quickest process"
            f" {slowest / max(quickest, 1e-9):.2f}"
        )
    print(", ".join(f"{name} {number}" for name, number in lost.items()))
    for part in parts:
        for failure in sorted(set(part.failed)):
            print(f"{part.name}: {failure}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the writers and print the table; 1 when something of ours was lost or failed, else 0."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], epilog="Exit status 1: something was lost."
    )
    parser.add_argument("--processes", type=int, default=4, help="processes on this store (default 4)")
    parser.add_argument("--threads", type=int, default=2, help="threads in each (default 2)")
    parser.add_argument("--messages", type=int, default=150, help="messages a thread (default 150)")
    parser.add_argument("--peers", type=int, default=1, help="programs on the older store (default 1)")
    parser.add_argument("--size", type=int, default=1000, help="characters a message (default 1000)")
    parser.add_argument("--indexing", choices=("background", "inline"), default="background")
    parser.add_argument("--seconds", type=float, default=120.0, help="give up after this (default 120)")
    options = parser.parse_args(arguments)
    for name, most in MOST.items():
        if not 0 <= getattr(options, name) <= most:
            parser.error(f"--{name} must be 0 to {most}")
    with tempfile.TemporaryDirectory(prefix="hermes_state-contention-") as folder:
        path = Path(folder) / "state.db"
        parts = measure(path, options)
        lost = losses(path, parts)
    report(parts, lost)
    ours_failed = any(part.failed for part in parts if part.name.startswith("p"))
    return 1 if ours_failed or any(lost.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
