"""Kill programs that use the store, again and again, and look at what they leave.

Each round starts a program that does one kind of work on a file of its own,
kills it with SIGKILL at a random moment, some times over, opens the file once
more and compares: every acknowledged message must be there and found, counters
must equal rows, both indexes must cover every row, and SQLite's and FTS5's own
checks must pass. One table is printed; the exit status is 1 when anything is wrong.

    python tools/crash.py --rounds 5 --seconds 60
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import make_fixtures

KINDS = ("append", "batch", "index", "checkpoint", "replace", "prune", "delete", "upgrade")
INDEXES = ("messages_fts", "messages_fts_trigram")
LONGEST_S = 0.5
"""A program is killed at a random moment of this span after it has begun."""

WORK = r"""
import json, sys
from hermes_state import SessionDB
path, kind = sys.argv[1:]

def say(*ids):
    sys.stdout.write(json.dumps(ids) + "\n")
    sys.stdout.flush()

if kind == "upgrade":
    say()
db = SessionDB(path)
db.ensure_session("s", "cli")
if kind != "upgrade":
    say()
n = 0
while True:
    n += 1
    if kind in ("append", "checkpoint"):
        say(db.append_message("s", "user", f"crash {n} 广西 " + "x" * (n * 37 % 3000)))
        if kind == "checkpoint":
            db._engine.upkeep.checkpoint()
    elif kind in ("batch", "index", "upgrade"):
        say(*db.append_messages("s", [{"role": "user", "content": f"crash {n} {m} 广西"} for m in range(40)]))
        if kind != "batch":
            db.search_messages("crash", limit=1)
    elif kind == "delete":
        db.create_session(f"gone{n}", "cli")
        db.append_messages(f"gone{n}", [{"role": "user", "content": f"crash {m} 广西"} for m in range(150)])
        say(db.append_message("s", "user", f"crash kept {n} 广西"))
        db.search_messages("crash", limit=1)
        db.delete_session(f"gone{n}")
    elif kind == "replace":
        db.replace_messages("s", [{"role": "user", "content": f"crash {n} {m} 广西"} for m in range(30)])
    else:
        db.create_session(f"old{n}", "cli")
        db.append_messages(f"old{n}", [{"role": "user", "content": f"crash {m} 广西"} for m in range(30)])
        db.end_session(f"old{n}", "done")
        say(db.append_message("s", "user", f"crash kept {n} 广西"))
        if n % 5 == 0:
            db.prune_sessions(0)
"""


@dataclass
class Tally:
    """What the rounds of one kind came to."""

    kills: int = 0
    acknowledged: int = 0
    rows: int = 0
    faults: list[str] = field(default_factory=list)


def kill_one(path: Path, kind: str, chance: random.Random) -> list[int]:
    """Start the work, kill it at a random moment; the ids that it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, str(path), kind], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        time.sleep(chance.uniform(0, LONGEST_S))
        running.send_signal(signal.SIGKILL)
        out = running.stdout.read()
    return [i for line in out[: out.rfind("\n") + 1].splitlines() for i in json.loads(line)]


def faults_of(path: Path, acknowledged: set[int], others: int) -> tuple[int, list[str]]:
    """Open the file once more and check it: (rows, what is wrong).

    ``others``: how many rows were there before, which the query does not find.
    """
    from hermes_state import SessionDB

    faults = []
    with SessionDB(path) as db:
        for query in ("crash", "广西"):
            found = {hit["id"] for hit in db.search_messages(query, limit=-1)}
            if lost := acknowledged - found:
                faults.append(f"{len(lost)} acknowledged rows not found by {query!r}")
        rows = db.message_count()
        found = {hit["id"] for hit in db.search_messages("crash", limit=-1)}
        db._conn.execute("SELECT 1")  # waits until the indexes have forgotten what was deleted
        if len(found) != rows - others:
            faults.append(f"{len(found)} rows found of {rows - others}")
    with closing(sqlite3.connect(path)) as conn:
        faults += [f"file: {text}" for (text,) in conn.execute("PRAGMA integrity_check") if text != "ok"]
        stamp = conn.execute("SELECT version FROM schema_version").fetchall()
        if stamp != [(11,)]:
            faults.append(f"stamp {stamp}")
        wrong = conn.execute(
            "SELECT count(*) FROM sessions s WHERE message_count IS NOT NULL AND message_count <>"
            " (SELECT count(*) FROM messages m WHERE m.session_id = s.id)"
        ).fetchone()[0]
        if wrong:
            faults.append(f"{wrong} counters differ")
        faults += [fault for name in INDEXES for fault in index_faults(conn, name)]
    return rows, faults


def index_faults(conn: sqlite3.Connection, name: str) -> list[str]:
    """What FTS5's own check and a comparison of ids say about an index."""
    faults = []
    try:
        conn.execute(f"INSERT INTO {name}({name}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        faults.append(f"{name}: {error}")
    for lacks, sql in (
        (True, f"SELECT count(*) FROM messages WHERE id NOT IN (SELECT id FROM {name}_docsize)"),
        (False, f"SELECT count(*) FROM {name}_docsize WHERE id NOT IN (SELECT id FROM messages)"),
    ):
        if number := conn.execute(sql).fetchone()[0]:
            faults.append(f"{name} {'lacks' if lacks else 'has too many'}: {number}")
    return faults


def run(kind: str, rounds: int, kills: int, folder: Path, chance: random.Random, deadline: float) -> Tally:
    """The rounds of one kind, until ``deadline`` (monotonic seconds)."""
    tally = Tally()
    for number in range(rounds):
        if time.monotonic() > deadline:
            break
        path = folder / f"{kind}{number}.db"
        others = make_fixtures.make(path, 10, 1200, seed=number).messages if kind == "upgrade" else 0
        acknowledged: set[int] = set()
        for _ in range(kills):
            acknowledged.update(kill_one(path, kind, chance))
            tally.kills += 1
        rows, faults = faults_of(path, acknowledged, others)
        tally.acknowledged += len(acknowledged)
        tally.rows += rows
        tally.faults += [f"{kind} {number}: {fault}" for fault in faults]
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print the table; 1 when something was lost or is wrong, else 0."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], epilog="Exit status 1: something was lost or is wrong."
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"comma-separated, of {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=3, help="files a kind (default 3)")
    parser.add_argument("--kills", type=int, default=3, help="kills a file before it is checked (default 3)")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no round after (default 120)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments (default 0)")
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown kind: {', '.join(sorted(unknown))}")
    chance = random.Random(options.seed)
    deadline = time.monotonic() + options.seconds
    print(f"{'kind':12} {'kills':>6} {'acknowledged':>13} {'rows':>8} {'faults':>7}")
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hermes_state-crash-") as folder:
        for kind in kinds:
            tally = run(kind, options.rounds, options.kills, Path(folder), chance, deadline)
            print(
                f"{kind:12} {tally.kills:6} {tally.acknowledged:13} {tally.rows:8} {len(tally.faults):7}",
                flush=True,
            )
            faults += tally.faults
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
