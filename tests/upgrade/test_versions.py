"""Files of every version, and files with something wrong, come to version 11 with every row."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from processes import fixtures, peer_says, sound, value

from hermes_state import SessionDB

make = fixtures().make


def _objects(path: Path) -> dict[str, str]:
    """Name -> SQL without white space, quotes and IF NOT EXISTS, of what both programs keep."""
    with closing(sqlite3.connect(path)) as conn:
        found = conn.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type <> 'table'"
            " OR name IN ('messages_fts', 'messages_fts_trigram')"
        ).fetchall()
    return {name: _squeezed(sql) for name, sql in found if not name.startswith("hs_")}


def _squeezed(sql: str) -> str:
    return re.sub(r"ifnotexists|[\s\"]", "", re.sub(r"\s", "", sql.lower())).replace(";end", "end")


def _columns(path: Path, table: str) -> dict[str, tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as conn:
        return {row[1]: tuple(row[2:]) for row in conn.execute(f"PRAGMA table_info({table})")}


def _rows(path: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as conn:
        conn.row_factory = sqlite3.Row
        return [dict(row) for row in conn.execute(f"SELECT * FROM {table} ORDER BY rowid")]


@pytest.fixture
def fresh_v11(tmp_path: Path) -> Path:
    """A file that the v11-style program made."""
    path = tmp_path / "fresh_v11.db"
    peer_says(path, "open")
    return path


def _opened(path: Path, **options: Any) -> None:
    with SessionDB(path, **options) as db:
        db.search_messages("anything")


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("upgraded", [False, True], ids=["as-made", "altered-before"])
def test_each_version_gets_the_tables_indexes_and_triggers_that_v11_has(
    tmp_path: Path, fresh_v11: Path, version: int, upgraded: bool
) -> None:
    path = tmp_path / "state.db"
    make(path, version, upgraded=upgraded)
    _opened(path)
    assert _objects(path) == _objects(fresh_v11)
    for table in ("sessions", "messages", "state_meta", "schema_version"):
        assert _columns(path, table) == _columns(fresh_v11, table)
    sound(path)


@pytest.mark.parametrize("version", range(1, 12))
def test_each_version_keeps_every_row_and_finds_every_word(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    facts = make(path, version)
    before = {table: _rows(path, table) for table in ("sessions", "messages")}
    losers = {session for bearers in facts.duplicates.values() for session in bearers[1:]}
    with SessionDB(path) as db:
        for word, message_id in {**facts.markers}.items():
            assert [hit["id"] for hit in db.search_messages(word)] == [message_id], word
        for word, ids in facts.late_markers.items():
            assert {hit["id"] for hit in db.search_messages(word, limit=-1)} == set(ids), word
        assert db.message_count() == facts.messages
    for table, old_rows in before.items():
        new_rows = _rows(path, table)
        assert len(new_rows) == len(old_rows)
        for old, new in zip(old_rows, new_rows, strict=True):
            kept = {name: new[name] for name in old}
            if table == "sessions" and old["id"] in losers:
                old = {**old, "title": None}
            assert kept == old


def test_of_sessions_with_one_title_the_newest_keeps_it_and_it_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"
    facts = make(path, 4, duplicate_titles=True)
    with caplog.at_level(logging.WARNING, "hermes_state"):
        _opened(path)
    titles = {row["id"]: row["title"] for row in _rows(path, "sessions")}
    assert facts.duplicates
    for title, (newest, *others) in facts.duplicates.items():
        assert titles[newest] == title
        assert [titles[session] for session in others] == [None] * len(others)
    assert [record for record in caplog.records if "title" in record.getMessage()]


def test_duplicate_titles_in_a_file_stamped_11_without_its_index_do_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make(path, 11, duplicate_titles=True)
    _opened(path)
    assert value(path, "SELECT 1 FROM sqlite_master WHERE name = 'idx_sessions_title_unique'") == 1
    sound(path)


@pytest.mark.parametrize(
    "column",
    ["sessions.handoff_state", "sessions.title", "sessions.api_call_count", "messages.codex_message_items"],
)
def test_a_column_that_the_stamp_promises_and_the_file_lacks_is_added(tmp_path: Path, column: str) -> None:
    path = tmp_path / "state.db"
    make(path, 11, drop_columns=[column])
    _opened(path)
    table, name = column.split(".")
    assert name in _columns(path, table)
    sound(path)


@pytest.mark.parametrize("version", [1, 6, 10, 11])
def test_a_file_without_a_version_row_is_stamped_and_complete(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    facts = make(path, version, no_version_row=True)
    _opened(path)
    assert len(sound(path)) == facts.messages


def test_a_newer_stamp_and_unknown_columns_stay(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    extra = ["sessions.mood TEXT DEFAULT 'calm'", "messages.weight REAL"]
    make(path, 11, stamp=99, extra_columns=extra)
    with SessionDB(path) as db:
        db.create_session("new", "cli")
        db.append_message("new", "user", "written beside unknown columns")
        assert len(db.search_messages("unknown columns")) == 1
        assert db.get_messages("new")[0]["weight"] is None
        assert db.get_session("new")["mood"] == "calm"
    assert value(path, "SELECT version FROM schema_version") == 99
    assert "mood" in _columns(path, "sessions")
    assert "weight" in _columns(path, "messages")


def test_a_hollow_trigram_index_under_a_stamp_of_11_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = make(path, 11, hollow_trigram=True)
    with SessionDB(path) as db:
        for word, message_id in facts.markers.items():
            assert [hit["id"] for hit in db.search_messages(word)] == [message_id]
    sound(path)


def test_a_file_of_the_v11_program_is_opened_without_indexing_again_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    said = peer_says(path, "append", "--count", 40, "--content", "peer row {n} 广西")
    before = _segments(path)
    with SessionDB(path) as db:
        assert len(db.search_messages("peer", limit=-1)) == 40
    assert _segments(path) == before, "the full-text tables were written again"
    assert sound(path) == set(said["ids"])


def _segments(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as conn:
        return [
            conn.execute(f"SELECT id, block FROM {name}_data ORDER BY id").fetchall()
            for name in ("messages_fts", "messages_fts_trigram")
        ]


def test_the_stamp_is_not_11_while_rows_wait_for_the_index(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = make(path, 10, 6000)
    db = SessionDB(path)
    try:
        stamp, through = _stamp_and_watermark(db)
        assert stamp == 11 or through < facts.messages
        assert db.message_count() == facts.messages
        db.create_session("during", "cli")
        new = db.append_message("during", "user", "written while the upgrade goes on")
        assert [hit["id"] for hit in db.search_messages('"upgrade goes on"')] == [new]
        assert _stamp_and_watermark(db) == (11, facts.messages + 1)
    finally:
        db.close()
    assert len(sound(path)) == facts.messages + 1


def _stamp_and_watermark(db: SessionDB) -> tuple[int, int]:
    """Both in one snapshot, by a reader that does not bring the index up to date first."""

    def read(conn: Any) -> tuple[int, int]:
        stamp = conn.execute("SELECT version FROM schema_version").fetchone()[0]
        through = conn.execute(
            "SELECT value FROM state_meta WHERE key = 'hermes_state.indexed_through'"
        ).fetchone()
        return stamp, int(through[0])

    return db._read(read, "test")


def test_an_external_content_index_under_a_stamp_of_11_is_made_inline(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = make(path, 10, stamp=11)
    _opened(path)
    assert "content=messages" not in json.dumps(_objects(path))
    assert len(sound(path)) == facts.messages


@pytest.mark.parametrize("name", ["messages_fts", "messages_fts_trigram"])
def test_an_index_that_was_emptied_behind_our_back_is_filled_at_the_next_open(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "state.db"
    facts = make(path, 10)
    _opened(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"DROP TABLE {name}")
        tokenizer = ", tokenize='trigram'" if name.endswith("trigram") else ""
        conn.execute(f"CREATE VIRTUAL TABLE {name} USING fts5(content{tokenizer})")
    with SessionDB(path) as db:
        for word, message_id in facts.markers.items():
            assert [hit["id"] for hit in db.search_messages(word)] == [message_id]
    assert len(sound(path)) == facts.messages
