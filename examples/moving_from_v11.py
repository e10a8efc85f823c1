"""Moving from the old module: the same file, looked at, backed up, opened, and compared.

    python examples/moving_from_v11.py STORE

STORE is the state.db of the pure-Python module, of any schema version from 1
to 11. The backup is made beside it. Nothing has to be converted; programs on
the old module at version 11 may go on using the file at the same time.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from hermes_state import SCHEMA_VERSION, SessionDB, check_file


def before(path: Path) -> tuple[int, int, int]:
    """Version, sessions and messages as Python's own sqlite3 reads them."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as conn:
        version = conn.execute("SELECT max(version) FROM schema_version").fetchone()[0]
        sessions = conn.execute("SELECT count(*) FROM sessions").fetchone()[0]
        messages = conn.execute("SELECT count(*) FROM messages").fetchone()[0]
        return version, sessions, messages


def back_up(path: Path) -> Path:
    """A copy of the file as it is, made by SQLite while other programs may use it."""
    target = path.with_name(f"{path.name}.before-the-move")
    if target.exists():
        raise SystemExit(f"{target} exists: move it away first")
    with closing(sqlite3.connect(path)) as conn, closing(sqlite3.connect(target)) as copy:
        conn.backup(copy)
    target.chmod(0o600)
    return target


def main(path: Path) -> None:
    """Move the store at ``path``."""
    # First the look without this package: it and SessionDB are not to have the file open at once
    # in one process, unless SessionDB opened it first.
    version, sessions, messages = before(path)
    print(f"version {version}, {sessions} sessions, {messages} messages")
    found = check_file(path)
    print(f"check: {found['verdict']}")
    if found["verdict"] == "table":
        raise SystemExit("the file is damaged: hermes_state.salvage(path, into) reads what is readable")
    print(f"backup: {back_up(path).name}")

    # The move itself: opening. An older version is upgraded in one short transaction.
    with SessionDB(path) as db:
        assert (db.session_count(), db.message_count()) == (sessions, messages)
        for row in db.list_sessions_rich(limit=3):
            # A search first completes the index, so it finds everything from the first moment on.
            words = " ".join(str(row["preview"]).replace(".", " ").split()[:3])
            hits = db.search_messages(words, limit=1) if words else []
            print(f"{row['id']}: {row['message_count']} messages, {len(hits)} hit for {words!r}")
        report = db.repair()  # counters that the old module let drift, and the like
        print(f"after: {report['after']['verdict']}")
    assert before(path)[0] == SCHEMA_VERSION


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
