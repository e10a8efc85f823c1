"""Files with damage of a chosen kind, and a look at what a store holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw

from hermes_state import SessionDB

PAGES = {
    "fts leaf": "SELECT pageno FROM dbstat WHERE name = 'messages_fts_data' AND pagetype = 'leaf' LIMIT 1",
    "fts root": "SELECT rootpage FROM sqlite_master WHERE name = 'messages_fts_data'",
    "fts content": "SELECT pageno FROM dbstat WHERE name = 'messages_fts_content'"
    " AND pagetype = 'leaf' LIMIT 1",
    "fts docsize": "SELECT rootpage FROM sqlite_master WHERE name = 'messages_fts_docsize'",
    "trigram leaf": "SELECT pageno FROM dbstat WHERE name = 'messages_fts_trigram_data'"
    " AND pagetype = 'leaf' LIMIT 1",
    "trigram root": "SELECT rootpage FROM sqlite_master WHERE name = 'messages_fts_trigram_data'",
    "words root": "SELECT rootpage FROM sqlite_master WHERE name = 'hs_fts_words_data'",
    "index": "SELECT rootpage FROM sqlite_master WHERE name = 'idx_messages_session'",
    "our index": "SELECT rootpage FROM sqlite_master WHERE name = 'hs_idx_messages_session'",
    "key index": "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_sessions_1'",
    "messages leaf": "SELECT pageno FROM dbstat WHERE name = 'messages'"
    " AND pagetype = 'leaf' LIMIT 1 OFFSET 2",
    "messages root": "SELECT rootpage FROM sqlite_master WHERE name = 'messages'",
    "sessions root": "SELECT rootpage FROM sqlite_master WHERE name = 'sessions'",
}
FTS = ["fts leaf", "fts root", "fts content", "fts docsize", "trigram leaf", "trigram root", "words root"]


def make(path: Path, sessions: int = 4, messages: int = 60, **options: Any) -> dict[str, list[str]]:
    """A closed store with messages in several scripts; session id -> contents in order."""
    stored: dict[str, list[str]] = {}
    db = SessionDB(path, **options)
    for number in range(sessions):
        session_id = f"s{number}"
        db.create_session(session_id, "cli")
        texts = [
            f"hello word{number * messages + i} 中文{i}字 fix{i}修改 " + "lorem ipsum " * 20
            for i in range(messages)
        ]
        db.append_messages(session_id, [{"role": "user", "content": text} for text in texts])
        stored[session_id] = texts
    db.search_messages("hello")
    db.close()
    fold_in(path)
    return stored


def fold_in(path: Path) -> None:
    """Bring the WAL into the closed file, so that its pages are what is read."""
    conn = apsw.Connection(str(path))
    conn.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    conn.close()


def page_of(path: Path, kind: str) -> int:
    """The number of a page of the kind in the closed file."""
    conn = apsw.Connection(str(path))
    row = conn.execute(PAGES[kind]).fetchone()
    conn.close()
    assert row is not None, kind
    return int(row[0])


def hit(path: Path, kind: str, fill: bytes | None = None) -> int:
    """Overwrite a page of the kind; its number."""
    number = page_of(path, kind)
    size = int.from_bytes(path.read_bytes()[16:18], "big")
    with path.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(fill if fill is not None else os.urandom(size))
    return number


def run(path: Path, *statements: str) -> None:
    """Change the closed file behind the store's back, without triggers."""
    conn = apsw.Connection(str(path))
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    for sql in statements:
        conn.execute(sql)
    conn.close()


def kinds(report: Any) -> set[tuple[str, str]]:
    """(kind, where) of the problems of a check."""
    return {(problem["kind"], problem["where"]) for problem in report["problems"]}
