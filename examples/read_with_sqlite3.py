"""The file without this package: Python's own sqlite3 is enough to read it.

    python examples/read_with_sqlite3.py STORE

Do this in a process that has no SessionDB open on the file, or one that opened
its SessionDB first (docs/reliability.md tells why two copies of SQLite in a
process need care). A content that is a list or an object stands in the file as
"\\x00json:" and its JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

MARK = "\x00json:"


def content(stored: str | None) -> object:
    """A message's content as the program gave it."""
    if stored is not None and stored.startswith(MARK):
        try:
            return json.loads(stored[len(MARK) :])
        except ValueError:
            return stored  # text that happens to begin so
    return stored


def main(path: Path) -> None:
    """Print the latest sessions, and how the newest of them begins."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as conn:
        conn.row_factory = sqlite3.Row
        sessions = conn.execute("SELECT * FROM sessions ORDER BY started_at DESC LIMIT 5").fetchall()
        for row in sessions:
            print(f"{row['id']}  {row['source']}  {row['message_count']} messages  {row['title'] or ''}")
        busiest = conn.execute("SELECT id FROM sessions ORDER BY message_count DESC, id LIMIT 1").fetchone()
        if busiest is None:
            return
        # The order of a conversation is that of the ids, never of the times.
        messages = conn.execute(
            "SELECT role, content FROM messages WHERE session_id = ? ORDER BY id LIMIT 5", (busiest["id"],)
        )
        for row in messages:
            print(f"  {row['role']}: {str(content(row['content']))[:80]}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
