"""Make the files that ``record_cli.py`` runs the commands on.

    python tools/record_stores.py FOLDER 50000

In FOLDER: ``home/state.db``, a store of so many messages that end now, with a compressed conversation and its
sub-agent; ``v10.db``, its copy at schema version 10; ``index.db`` with a damaged index and ``pages.db`` with
damaged pages of messages; ``conversations.jsonl``, ``chat.jsonl`` (OpenAI's form), ``transcripts/`` (a file a
session) and ``bad.jsonl``. Prints one line: what the store holds.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from hermes_state import SessionDB

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import make_fixtures  # beside this program
from benchmarks import corpus

Session = dict[str, Any]
SPACING_S = 600.0
"""Between the starts of two sessions of the corpus, seconds."""
DAMAGED_PAGES = 5


def sessions(messages: int) -> Iterator[Session]:
    """The benchmarks' conversations, moved in time so that the last one starts about now."""
    count = sum(1 for _ in corpus.build(messages))
    shift = time.time() - corpus.EPOCH - SPACING_S * count
    for session in corpus.build(messages):
        session["started_at"] += shift
        for message in session["messages"]:
            message["timestamp"] += shift
        yield session


def store(path: Path, messages: int) -> str:
    """The store; every second session is ended, and one conversation has a history."""
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o700)
    corpus.bulk_load(path, sessions(messages))
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "UPDATE sessions SET end_reason = 'done', ended_at = started_at + 300,"
            " input_tokens = 900 + rowid, output_tokens = 90 + rowid,"
            " estimated_cost_usd = 0.001 * (rowid % 50) WHERE rowid % 2"
        )
    with SessionDB(path) as db:
        db.create_session("20260301_plan", "cli", model="model-a")
        db.set_session_title("20260301_plan", "plan")
        db.append_message("20260301_plan", "user", "Plan the trip to 桂林, and the hotel near the river.")
        db.append_message(
            "20260301_plan", "assistant", "Three days, and a hotel by the Li river: 漓江边的酒店。"
        )
        db.create_session("20260301_agent", "subagent", parent_session_id="20260301_plan")
        db.append_message("20260301_agent", "user", "Find hotels near the river.")
        db.end_session("20260301_plan", "compression")
        db.create_session("20260301_plan_2", "cli", model="model-a", parent_session_id="20260301_plan")
        db.append_message("20260301_plan_2", "user", "And the train from 广州?")
        db.append_message(
            "20260301_plan_2", "assistant", "Two hours and a half; the first one leaves at 7:10."
        )
        totals = f"{db.session_count():,} sessions and {db.message_count():,} messages"
    size = path.stat().st_size
    return f"{totals} ({size / 1e6:,.0f} MB) in English, Chinese, Japanese and Korean"


def older(path: Path) -> None:
    """Turn a store into one of schema version 10: full-text tables that keep no text of their own."""
    with closing(sqlite3.connect(path)) as conn, conn:
        listed = conn.execute(
            "SELECT type, name FROM sqlite_master WHERE name LIKE 'hs!_%' ESCAPE '!'"
        ).fetchall()
        fts = [("table", name) for name in ("messages_fts", "messages_fts_trigram")]
        triggers = conn.execute("SELECT type, name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        own = [
            (kind, name)
            for kind, name in listed
            if kind == "index" or "idempotency" in name or name == "hs_fts_words"
        ]
        for kind, name in (*triggers, *fts, *own):
            conn.execute(f'DROP {kind} IF EXISTS "{name}"')
        conn.execute("DELETE FROM state_meta WHERE key LIKE 'hermes!_state.%' ESCAPE '!'")
        conn.execute("UPDATE schema_version SET version = 10")
        make_fixtures._full_text(conn, 10)
        for _, name in fts:
            conn.execute(f"INSERT INTO {name}({name}) VALUES ('rebuild')")


def damage_index(path: Path) -> None:
    """Overwrite every tenth block of the word index."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "UPDATE messages_fts_data SET block = zeroblob(length(block)) WHERE id > 10 AND id % 10 = 3"
        )


def damage_pages(path: Path) -> None:
    """Overwrite some leaf pages of the table of messages, spread over it."""
    conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found: list[Any] = conn.execute(
        "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY pageno"
    ).fetchall()
    size: Any = conn.pragma("page_size")
    conn.close()
    with path.open("r+b") as file:
        for (page,) in found[len(found) // 4 :: max(1, len(found) // DAMAGED_PAGES)]:
            file.seek((page - 1) * size)
            file.write(b"\xa5" * size)


def texts(folder: Path, messages: int) -> None:
    """The conversations in the forms that ``import`` and ``demo`` take."""
    (folder / "transcripts").mkdir()
    with (folder / "conversations.jsonl").open("w") as whole, (folder / "chat.jsonl").open("w") as chat:
        for session in sessions(messages):
            whole.write(json.dumps(session) + "\n")
            kept = ("role", "content", "tool_calls", "tool_call_id")
            bare = [{key: m[key] for key in kept if key in m} for m in session["messages"]]
            chat.write(json.dumps({"messages": bare}) + "\n")
            with (folder / "transcripts" / f"{session['id']}.jsonl").open("w") as transcript:
                for message in session["messages"]:
                    transcript.write(json.dumps(message) + "\n")
    good = json.dumps(
        {"id": "piped", "source": "cli", "messages": [{"role": "user", "content": "one of a pipe"}]}
    )
    (folder / "bad.jsonl").write_text(f'{good}\n[1, 2]\n{{"role": "user", "content": "cut in the mid')


def main() -> int:
    """Make everything; the exit status."""
    folder, messages = Path(sys.argv[1]), int(sys.argv[2])
    path = folder / "home" / "state.db"
    says = store(path, messages)
    for name in ("v10.db", "index.db", "pages.db"):
        shutil.copy(path, folder / name)
    older(folder / "v10.db")
    damage_index(folder / "index.db")
    damage_pages(folder / "pages.db")
    texts(folder, messages)
    print(says)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
