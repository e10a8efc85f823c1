"""A mixed load for some seconds, with the resources it takes over time.

Threads append, search, list and read; another thread opens and closes handles;
a process writes as a v11 program does. Every second one line is taken: memory,
descriptors, size of the WAL, index lag (rows that wait for the index), rates.
At the end all that was acknowledged must be there, be found, and be counted.

    python tools/soak.py --seconds 30

Exit status: 0 when nothing was lost and nothing grew without end, 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hermes_state import SessionDB

PEER = Path(__file__).resolve().parent.parent / "tests" / "peers" / "v11_peer.py"
WORDS = (
    "docker",
    "deploy",
    "timeout",
    "kubernetes",
    "invoice",
    "广西",
    "桂林",
    "酒店",
    "ホテル",
    "배포",
    "report",
    "retry",
)
WAL_LIMIT_MB = 64.0
MEMORY_LIMIT_MB = 96.0


@dataclass
class Load:
    """What the threads share."""

    path: Path
    stop: threading.Event = field(default_factory=threading.Event)
    done: Counter[str] = field(default_factory=Counter)
    acknowledged: list[tuple[int, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run(self, name: str, step: object) -> threading.Thread:
        """A thread that calls ``step()`` until the end; an error is a problem, and the thread's end."""

        def loop() -> None:
            try:
                while not self.stop.is_set():
                    step()  # type: ignore[operator]
                    self.done[name] += 1
            except Exception as error:
                self.problems.append(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=loop, name=name)
        thread.start()
        return thread


@dataclass(frozen=True)
class Sample:
    """One line of the table."""

    second: int
    memory_mb: float
    descriptors: int
    wal_mb: float
    lag_rows: int
    done: Counter[str]


def text(number: int) -> tuple[str, str]:
    """A message and the word that only it has."""
    mark = f"mark{number:08d}x{random.getrandbits(32):08x}"
    return f"{' '.join(random.choices(WORDS, k=random.randint(3, 60)))} {mark}", mark


def start(load: Load, db: SessionDB, writers: int) -> list[threading.Thread]:
    """All threads of the mix."""
    lock = threading.Lock()
    numbers = iter(range(10**9))

    def append(session: str) -> None:
        with lock:
            number = next(numbers)
        content, mark = text(number)
        row = db.append_message(session, random.choice(("user", "assistant", "tool")), content)
        load.acknowledged.append((row, mark))

    def search() -> None:
        if load.acknowledged and random.random() < 0.5:
            row, mark = random.choice(load.acknowledged)
            hits = [hit["id"] for hit in db.search_messages(mark)]
            if hits != [row]:
                load.problems.append(f"{mark} is row {row}, a search finds {hits}")
        else:
            db.search_messages(random.choice(WORDS), limit=5)
        time.sleep(0.01)

    def read() -> None:
        db.list_sessions_rich(limit=5, order_by_last_active=True)
        db.get_messages(f"soak-{random.randrange(writers)}", limit=20)
        time.sleep(0.01)

    def handles() -> None:
        with SessionDB(load.path) as other:
            other.session_count()
        time.sleep(0.02)

    threads = [load.run("append", lambda n=n: append(f"soak-{n}")) for n in range(writers)]
    return [*threads, load.run("search", search), load.run("read", read), load.run("handle", handles)]


def sample(load: Load, db: SessionDB, second: int) -> Sample:
    """The state of this moment."""
    statm = Path("/proc/self/statm").read_text().split()
    wal = Path(f"{load.path}-wal")
    lag = db._engine.read(
        lambda conn: conn.execute(
            "SELECT COUNT(*) FROM messages WHERE id > (SELECT CAST(value AS INTEGER) FROM state_meta"
            " WHERE key = 'hermes_state.indexed_through')"
        ).fetchone()[0],
        "soak",
    )
    return Sample(
        second,
        int(statm[1]) * os.sysconf("SC_PAGESIZE") / 2**20,
        len(os.listdir("/proc/self/fd")),
        wal.stat().st_size / 2**20 if wal.exists() else 0.0,
        lag,
        Counter(load.done),
    )


def verify(load: Load, v11_rows: int) -> None:
    """Open the file once more and look for all that was acknowledged."""
    with SessionDB(load.path) as db:
        stored = {
            row["id"]
            for session in db.list_sessions_rich(limit=-1, include_children=True)
            for row in db.iter_messages(session["id"])
        }
        lost = [row for row, _ in load.acknowledged if row not in stored]
        if lost:
            load.problems.append(f"{len(lost)} acknowledged rows are lost, such as {lost[:3]}")
        if len(stored) != len(load.acknowledged) + v11_rows:
            load.problems.append(f"{len(stored)} rows for {len(load.acknowledged)} + {v11_rows} acknowledged")
        for row, mark in random.sample(load.acknowledged, min(300, len(load.acknowledged))):
            if [hit["id"] for hit in db.search_messages(mark)] != [row]:
                load.problems.append(f"row {row} is not found by its word")
        for session in db.list_sessions_rich(limit=-1):
            if session["message_count"] != db.message_count(session["id"]):
                load.problems.append(f"{session['id']} counts {session['message_count']} messages")


def judge(load: Load, samples: list[Sample]) -> None:
    """Growth without end is a problem too."""
    settled = samples[len(samples) // 3 :]
    if not settled:
        return
    if max(s.descriptors for s in settled) > settled[0].descriptors + 24:
        load.problems.append("descriptors grow")
    if settled[-1].memory_mb - settled[0].memory_mb > MEMORY_LIMIT_MB:
        load.problems.append("memory grows")
    if max(s.wal_mb for s in settled) > WAL_LIMIT_MB:
        load.problems.append(f"the WAL grew to {max(s.wal_mb for s in settled):.0f} MB")


def show(samples: list[Sample]) -> None:
    """The table."""
    names = ("second", "memory MB", "fds", "WAL MB", "lag rows", "append/s", "search/s", "open/s")
    print(" ".join(f"{name:>9}" for name in names))
    before = Counter[str]()
    for s in samples:
        rate = s.done - before
        columns = (
            s.second, f"{s.memory_mb:.1f}", s.descriptors, f"{s.wal_mb:.1f}", s.lag_rows,
            rate["append"], rate["search"], rate["handle"],
        )  # fmt: skip
        print(" ".join(f"{column:>9}" for column in columns))
        before = s.done


def main() -> int:
    """Run the load; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=20, help="how long the load runs (at most 3600)")
    parser.add_argument("--writers", type=int, default=4, help="appending threads")
    parser.add_argument("--no-v11", action="store_true", help="leave out the process that writes as v11 does")
    options = parser.parse_args()
    seconds = max(1, min(3600, options.seconds))
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder) / "state.db")
        db = SessionDB(load.path)
        for number in range(options.writers):
            db.create_session(f"soak-{number}", "soak")
        peer = None
        v11_rows = 0 if options.no_v11 else seconds * 20
        if v11_rows:
            command = [
                sys.executable,
                str(PEER),
                str(load.path),
                "append",
                "--session",
                "v11",
                "--count",
                str(v11_rows),
            ]
            peer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        threads = start(load, db, options.writers)
        samples = []
        for second in range(1, seconds + 1):
            time.sleep(1)
            samples.append(sample(load, db, second))
        load.stop.set()
        for thread in threads:
            thread.join()
        if peer is not None and peer.wait(120) != 0:
            load.problems.append(f"the v11 process ended with {peer.returncode}")
        db.close()
        verify(load, v11_rows)
        judge(load, samples)
    show(samples)
    appended, searches = len(load.acknowledged), load.done["search"]
    print(f"{appended} appended by threads, {v11_rows} by a v11 process, {searches} searches")
    for problem in load.problems[:20]:
        print("PROBLEM:", problem)
    return 1 if load.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
