"""The fixture files hold what `make_fixtures.Facts` says, and the v11-style program works on them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import processes
import pytest

ROOT = Path(__file__).resolve().parents[2]


fixtures: Any = processes.fixtures()


def _value(conn: sqlite3.Connection, sql: str, *params: Any) -> Any:
    return conn.execute(sql, params).fetchone()[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_each_version_has_its_columns_rows_and_a_sound_index(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    facts = fixtures.make(path, version)
    with closing(sqlite3.connect(path)) as conn:
        assert _value(conn, "SELECT version FROM schema_version") == version
        for table in ("sessions", "messages"):
            live = tuple(row[1] for row in conn.execute(f"PRAGMA table_info({table})"))
            assert live == fixtures.columns(version, table)
        assert _value(conn, "PRAGMA integrity_check") == "ok"
        assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
        assert _value(conn, "SELECT count(*) FROM messages") == facts.messages == 120
        assert (
            tuple(row[0] for row in conn.execute("SELECT id FROM sessions ORDER BY rowid")) == facts.sessions
        )
        for name in ("messages_fts",) + (("messages_fts_trigram",) if version >= 10 else ()):
            conn.execute(f"INSERT INTO {name}({name}) VALUES ('integrity-check')")
            assert _value(conn, f"SELECT count(*) FROM {name}_docsize") == facts.messages
        assert _value(conn, "PRAGMA journal_mode") == "wal"


@pytest.mark.parametrize("version", range(1, 12))
def test_counters_and_ends_are_those_the_facts_tell(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    facts = fixtures.make(path, version, messages=200, seed=3)
    sql = "SELECT id, message_count, tool_call_count, ended_at FROM sessions"
    rows = "SELECT count(*) FROM messages WHERE session_id = ?"
    with closing(sqlite3.connect(path)) as conn:
        for session, messages, calls, ended in conn.execute(sql).fetchall():
            assert _value(conn, rows, session) == facts.per_session[session]
            if session in facts.null_counters:
                assert (messages, calls) == (None, None)
            else:
                assert (messages, calls) == (facts.per_session[session], facts.tool_calls[session])
            assert (ended is None) == (session in facts.live)
        for parent, child in zip(facts.chain, facts.chain[1:], strict=False):
            assert _value(conn, "SELECT parent_session_id FROM sessions WHERE id = ?", child) == parent
            assert _value(conn, "SELECT end_reason FROM sessions WHERE id = ?", parent) == "compression"


@pytest.mark.parametrize("version", [1, 9, 10, 11])
def test_markers_are_found_at_their_ids_and_late_ones_from_version_eleven(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "state.db"
    facts = fixtures.make(path, version)
    match = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid"
    assert len(facts.markers) == 5
    with closing(sqlite3.connect(path)) as conn:
        for word, expected in facts.markers.items():
            assert conn.execute("SELECT id FROM messages WHERE instr(content, ?)", (word,)).fetchall() == [
                (expected,)
            ]
        assert conn.execute(match, ("quokkabridge",)).fetchall() == [(facts.markers["quokkabridge"],)]
        for word, ids in facts.late_markers.items():
            found = conn.execute(match, (f'"{word}"',)).fetchall()
            assert found == ([(one,) for one in ids] if version == 11 else [])


def test_same_arguments_give_the_same_rows_and_another_seed_others(tmp_path: Path) -> None:
    dumps = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fixtures.make(tmp_path / name, 9, seed=seed)
        with closing(sqlite3.connect(tmp_path / name)) as conn:
            dumps.append(conn.execute("SELECT * FROM messages").fetchall())
    assert dumps[0] == dumps[1] != dumps[2]


def test_duplicate_titles_are_listed_newest_first(tmp_path: Path) -> None:
    facts = fixtures.make(tmp_path / "v3.db", 3)
    later = fixtures.make(tmp_path / "v11.db", 11, duplicate_titles=True)
    assert facts.duplicates == later.duplicates == fixtures.TITLE_DUPLICATES
    for name in ("v3.db", "v11.db"):
        with closing(sqlite3.connect(tmp_path / name)) as conn:
            for title, owners in facts.duplicates.items():
                found = conn.execute(
                    "SELECT id FROM sessions WHERE title = ? ORDER BY started_at DESC", (title,)
                ).fetchall()
                assert tuple(row[0] for row in found) == owners
            assert not [row for row in conn.execute("PRAGMA index_list(sessions)") if "title" in row[1]]


def test_variants_lack_or_add_what_they_are_told_to(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fixtures.make(path, 11, drop_columns=("messages.reasoning", "sessions.title"))
    with closing(sqlite3.connect(path)) as conn:
        assert "reasoning" not in {row[1] for row in conn.execute("PRAGMA table_info(messages)")}
        assert "title" not in {row[1] for row in conn.execute("PRAGMA table_info(sessions)")}
    facts = fixtures.make(path, 9, no_version_row=True)
    assert facts.stamp is None
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT * FROM schema_version").fetchall() == []
    fixtures.make(path, 11, extra_columns=("messages.mood TEXT DEFAULT 'calm'",), stamp=99)
    with closing(sqlite3.connect(path)) as conn:
        assert _value(conn, "SELECT version FROM schema_version") == 99
        assert _value(conn, "SELECT DISTINCT mood FROM messages") == "calm"
    fixtures.make(path, 8, upgraded=True)
    with closing(sqlite3.connect(path)) as conn:
        names = [row[1] for row in conn.execute("PRAGMA table_info(sessions)")]
        assert sorted(names) == sorted(fixtures.columns(8, "sessions"))
        assert names[-1] == "api_call_count"
        assert names.index("title") < names.index("billing_mode")


@pytest.mark.parametrize("version", [10, 11])
def test_hollow_trigram_leaves_the_word_index_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    facts = fixtures.make(path, version, hollow_trigram=True)
    with closing(sqlite3.connect(path)) as conn:
        assert _value(conn, "SELECT count(*) FROM messages_fts_trigram_docsize") == 0
        assert _value(conn, "SELECT count(*) FROM messages_fts_docsize") == facts.messages


def test_large_files_get_more_sessions(tmp_path: Path) -> None:
    facts = fixtures.make(tmp_path / "state.db", 1, messages=3000)
    assert facts.messages == sum(facts.per_session.values()) == 3000
    assert len(facts.sessions) == 27


@pytest.mark.parametrize("version", range(1, 12))
def test_committed_file_is_what_the_tool_makes_today(tmp_path: Path, version: int) -> None:
    fixtures.make(tmp_path / "new.db", version, page_size=1024)
    committed = tmp_path / "committed.db"
    committed.write_bytes((ROOT / "tests" / "fixtures" / f"v{version}.db").read_bytes())
    with closing(sqlite3.connect(committed)) as old, closing(sqlite3.connect(tmp_path / "new.db")) as new:
        for sql in (
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' OR name NOT LIKE 'messages_fts%'",
            "SELECT * FROM sessions",
            "SELECT * FROM messages",
            "SELECT * FROM schema_version",
        ):
            assert old.execute(sql).fetchall() == new.execute(sql).fetchall()


def test_versions_outside_one_to_eleven_are_refused(tmp_path: Path) -> None:
    for version in (0, 12):
        with pytest.raises(ValueError, match="no such schema version"):
            fixtures.make(tmp_path / "state.db", version)


def _peer(path: Path, *arguments: str) -> dict[str, Any]:
    """The last answer of one run of the v11-style program."""
    script = str(ROOT / "tests" / "peers" / "v11_peer.py")
    command = [sys.executable, script, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, input="\n", check=False)
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("version", [1, 3, 9, 10, 11])
def test_peer_upgrades_a_file_and_finds_both_indexes_complete(tmp_path: Path, version: int) -> None:
    path = tmp_path / "state.db"
    facts = fixtures.make(path, version)
    assert _peer(path, "open")["from_version"] == version
    report = _peer(path, "check")
    assert report["ok"], report
    assert report["version"] == 11
    assert report["messages_fts_trigram"]["rows"] == facts.messages
    for word, ids in facts.late_markers.items():
        assert _peer(path, "search", "--query", word)["ids"] == list(ids)


def test_peer_makes_the_schema_of_the_v11_fixture(tmp_path: Path) -> None:
    _peer(tmp_path / "peer.db", "open")
    fixtures.make(tmp_path / "made.db", 11)
    found = []
    for name in ("peer.db", "made.db"):
        with closing(sqlite3.connect(tmp_path / name)) as conn:
            names = {row[0] for row in conn.execute("SELECT name FROM sqlite_master")}
            tables = {
                table: [row[1:] for row in conn.execute(f"PRAGMA table_info({table})")]
                for table in ("sessions", "messages", "state_meta", "schema_version")
            }
            found.append((names, tables))
    assert found[0] == found[1]


def test_peer_reports_rows_that_an_index_lacks(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = fixtures.make(path, 11, hollow_trigram=True)
    report = _peer(path, "check")
    assert not report["ok"]
    assert report["messages_fts_trigram"]["missing_count"] == facts.messages
    assert report["messages_fts"]["missing_count"] == 0


def test_peer_writes_updates_deletes_and_replaces_with_counters_and_index_in_step(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    calls = '[{"id": "c1"}, {"id": "c2"}]'
    added = _peer(path, "append", "--count", "3", "--content", "quince {n}", "--tool-calls", calls)
    assert _peer(path, "search", "--query", "quince")["ids"] == added["ids"] == [1, 2, 3]
    assert _peer(path, "update", "--id", "2", "--content", "medlar")["changed"] == 1
    assert _peer(path, "search", "--query", "medlar", "--route", "trigram")["ids"] == [2]
    assert _peer(path, "replace", "--count", "4", "--content", "sorb {n}")["messages"] == 4
    assert _peer(path, "search", "--query", "quince", "--route", "like")["ids"] == []
    assert _peer(path, "check")["ok"]
    assert _peer(path, "delete")["changed"] == 1
    assert _peer(path, "check")["messages"] == 0


def test_peer_holding_the_write_lock_keeps_another_out_until_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fixtures.make(path, 11)
    script = str(ROOT / "tests" / "peers" / "v11_peer.py")
    holder = subprocess.Popen(
        [sys.executable, script, str(path), "hold-lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "READY\n"
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as conn:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            conn.execute("BEGIN IMMEDIATE")
        answer, _ = holder.communicate("\n")
        assert json.loads(answer)["done"] == "hold-lock"
        conn.execute("BEGIN IMMEDIATE")
