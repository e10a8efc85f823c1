"""Two processes on one file: both write, both search, one is killed.

    python examples/two_processes.py [STORE]

A gateway and a command line often run at the same time. Each opens the file for
itself; writers wait in line, readers never wait. What a process has had
acknowledged is stored, also if it is killed right afterwards; what it had not
indexed yet, the next search of any process indexes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from hermes_state import SessionDB

MESSAGES = 50


def gateway(path: Path) -> None:
    """The other process: stores messages and prints the id of each, until it is killed."""
    db = SessionDB(path)
    db.ensure_session("gateway", "telegram")
    number = 0
    while True:
        print(db.append_message("gateway", "user", f"gateway message {number}"), flush=True)
        number += 1


def main(path: Path) -> None:
    """Start the gateway, work on the same file, kill the gateway, and look at what is there."""
    command = [sys.executable, __file__, str(path), "gateway"]
    with SessionDB(path) as db, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:  # noqa: S603
        assert other.stdout is not None
        db.create_session("cli", "cli")
        acknowledged = []
        for number in range(MESSAGES):
            acknowledged.append(int(other.stdout.readline()))
            db.append_message("cli", "user", f"command line message {number}")
        other.kill()
        acknowledged += [int(line) for line in other.stdout if line.endswith("\n")]
        stored = {message["id"] for message in db.iter_messages("gateway")}
        assert stored.issuperset(acknowledged), "an acknowledged message is lost"
        assert db.message_count("cli") == MESSAGES
        found = db.search_messages("gateway message", source_filter=["telegram"], limit=-1)
        assert len(found) == len(stored), "the search sees every message of both processes"
        assert db.check()["ok"]
    print("both processes wrote; every acknowledged message of the killed one is stored and found")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        gateway(Path(sys.argv[1]))
    elif len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "state.db")
