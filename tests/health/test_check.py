"""check() tells kinds of damage and drift apart, and says nothing of a sound store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import damage
import processes
import pytest

import hermes_state
from hermes_state import SessionDB


@pytest.mark.parametrize("trigram", ["all", "unspaced"])
def test_a_sound_store_has_no_problem(db_path: Path, make_db: Any, trigram: str) -> None:
    damage.make(db_path, trigram=trigram)
    db = make_db()
    report = db.check()
    assert report["ok"]
    assert report["verdict"] == "ok"
    assert report["problems"] == []
    assert report["messages"] == 240
    assert report["sessions"] == 4
    assert report["trigram"] == trigram
    assert report["indexed"]["messages_fts"] == 240


def test_every_fixture_version_is_sound_once_opened(tmp_path: Path) -> None:
    for version in range(1, 12):
        path = tmp_path / f"v{version}.db"
        processes.fixtures().make(path, version)
        with SessionDB(path) as db:
            report = db.check()
        real = [p for p in report["problems"] if p["kind"] not in ("counters", "orphan_parents")]
        assert real == [], f"version {version}"


@pytest.mark.parametrize("version", range(1, 12))
def test_an_older_file_that_was_never_opened_lacks_things_and_is_not_damaged(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "state.db"
    processes.fixtures().make(path, version)
    before = path.read_bytes()
    report = hermes_state.check_file(path)
    assert report["verdict"] == "schema"
    assert {problem["kind"] for problem in report["problems"]} == {"schema"}
    assert path.read_bytes() == before
    told = {problem["where"]: problem["detail"] for problem in report["problems"]}
    with closing(sqlite3.connect(path)) as conn:
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    lacking = {name for name in ("sessions", "messages", "state_meta") if "column" in told.get(name, "")}
    assert lacking <= tables, "a table that is not there has no columns"
    assert all("missing; opening the store makes it" in told[name] for name in {"state_meta"} - tables)


def test_a_pending_row_is_no_drift(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    with processes.program(
        "db = SessionDB(path)\nfrom hermes_state.engine.upkeep import Upkeep\n"
        "Upkeep.index_step = lambda self, rows: (0, 0.0)\n"
        "db.append_message('s0', 'user', 'pending row')\nsay(done=1)\nos._exit(0)\n",
        db_path,
    ) as other:
        assert other.answer() == {"done": 1}
    report = hermes_state.check_file(db_path)
    assert report["pending"] == 1
    assert report["ok"]


def test_progress_rises_to_the_total(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    seen: list[tuple[int, int]] = []
    make_db().check(lambda done, total: seen.append((done, total)))
    assert len(seen) > 5
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("fill", [None, bytes(4096)], ids=["random", "zeroed"])
@pytest.mark.parametrize("kind", damage.FTS)
def test_damage_of_a_full_text_table_is_index_damage(
    db_path: Path, make_db: Any, kind: str, fill: bytes | None
) -> None:
    damage.make(db_path)
    damage.hit(db_path, kind, fill)
    report = make_db().check()
    table = {"fts": "messages_fts", "trigram": "messages_fts_trigram", "words": "hs_fts_words"}[
        kind.split()[0]
    ]
    assert report["verdict"] == "index"
    assert damage.kinds(report) == {("fts_damage", table)}


@pytest.mark.parametrize(
    ("kind", "name"), [("index", "idx_messages_session"), ("our index", "hs_idx_messages_session")]
)
def test_damage_of_a_plain_index_is_index_damage(db_path: Path, make_db: Any, kind: str, name: str) -> None:
    damage.make(db_path)
    damage.hit(db_path, kind)
    report = hermes_state.check_file(db_path)
    assert ("index_damage", name) in damage.kinds(report)
    assert report["verdict"] == "index"


@pytest.mark.parametrize("kind", ["messages leaf", "messages root", "sessions root"])
def test_damage_of_a_table_is_table_damage(db_path: Path, kind: str) -> None:
    damage.make(db_path)
    damage.hit(db_path, kind)
    report = hermes_state.check_file(db_path)
    assert report["verdict"] == "table"
    assert ("table_damage", kind.split()[0]) in damage.kinds(report)


def test_words_that_are_not_those_of_the_rows_are_found_by_the_deep_check(
    db_path: Path, make_db: Any
) -> None:
    damage.make(db_path)
    damage.run(db_path, "UPDATE messages_fts_content SET c0 = 'other words' WHERE id = 7",
               "UPDATE messages SET content = 'other words' WHERE id = 7")  # fmt: skip
    db = make_db()
    assert ("fts_damage", "messages_fts") in damage.kinds(db.check())
    assert ("fts_damage", "messages_fts") not in damage.kinds(db.check(deep=False))


DRIFT = {
    "missing": (
        ["DELETE FROM messages_fts WHERE rowid IN (3, 9)", "DELETE FROM messages_fts_trigram WHERE rowid = 5",
         "DELETE FROM hs_fts_words WHERE rowid = 6"],
        {("missing_rows", "messages_fts"), ("missing_rows", "messages_fts_trigram"),
         ("missing_rows", "hs_fts_words")},
    ),
    "surplus": (
        ["INSERT INTO messages_fts(rowid, content) VALUES (900001, 'nobody')",
         "INSERT INTO messages_fts_trigram(rowid, content) VALUES (900002, 'nobody')",
         "INSERT INTO hs_fts_words(rowid, content) VALUES (900003, 'nobody')"],
        {("surplus_rows", "messages_fts"), ("surplus_rows", "messages_fts_trigram"),
         ("surplus_rows", "hs_fts_words")},
    ),
    "another text": (
        ["UPDATE messages SET content = 'changed behind the index' WHERE id = 4"],
        {("different_rows", "messages_fts"), ("different_rows", "messages_fts_trigram"),
         ("unwanted_rows", "hs_fts_words")},
    ),
    "counters": (
        ["UPDATE sessions SET message_count = 7 WHERE id = 's1'",
         "UPDATE sessions SET tool_call_count = 3 WHERE id = 's2'"],
        {("counters", "sessions")},
    ),
    "orphan parent": (
        ["PRAGMA foreign_keys=OFF", "UPDATE sessions SET parent_session_id = 'nobody' WHERE id = 's1'"],
        {("orphan_parents", "sessions")},
    ),
    "orphan messages": (
        ["PRAGMA foreign_keys=OFF", "DELETE FROM sessions WHERE id = 's3'"],
        {("orphan_messages", "messages")},
    ),
    "watermark": (
        ["UPDATE state_meta SET value = '99999' WHERE key = 'hermes_state.indexed_through'"],
        {("watermark", "state_meta")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRIFT)
def test_drift_is_found_by_kind_and_repair_mends_it(db_path: Path, make_db: Any, name: str) -> None:
    damage.make(db_path)
    statements, expected = DRIFT[name]
    damage.run(db_path, *statements)
    db = make_db()
    report = db.check()
    assert report["verdict"] == "drift"
    assert damage.kinds(report) == expected
    mended = db.repair(remove_orphans=True)
    assert mended["after"]["ok"], mended["after"]
    assert mended["advice"] == []
    db.append_message("s0", "user", "a word afterwards")
    assert [hit["role"] for hit in db.search_messages("afterwards")] == ["user"]
    db.close()
    processes.sound(db_path)


@pytest.mark.parametrize("trigram", ["all", "unspaced"])
def test_rows_that_an_older_sqlite_indexed_up_to_a_nul_are_drift_and_no_damage(
    db_path: Path, make_db: Any, trigram: str
) -> None:
    damage.make(db_path, trigram=trigram)
    with closing(sqlite3.connect(db_path)) as conn, conn:
        sql = "UPDATE messages SET content = 'before ' || char(0) || ' behind 广西' WHERE id IN (3, 4)"
        conn.execute(sql)
    db = make_db()
    report = db.check()
    assert ("different_rows", "messages_fts_trigram") in damage.kinds(report)
    assert "fts_damage" not in {kind for kind, _ in damage.kinds(report)}
    assert db.repair()["after"]["ok"]
    assert [hit["id"] for hit in db.search_messages("广西", sort="oldest")] == [3, 4]
    db.close()


def test_orphans_stay_unless_their_removal_is_asked_for(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    damage.run(db_path, "PRAGMA foreign_keys=OFF", "DELETE FROM sessions WHERE id = 's3'")
    db = make_db()
    report = db.repair()
    assert damage.kinds(report["after"]) == {("orphan_messages", "messages")}
    assert report["advice"] == ["repair(remove_orphans=True) removes what belongs to no session"]
    assert db.message_count() == 240
    assert db.repair(remove_orphans=True)["orphans"] == 60
    assert db.message_count() == 180


def test_a_hit_whose_surplus_row_has_a_session_is_never_shown(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    damage.run(db_path, "INSERT INTO messages_fts(rowid, content) VALUES (900001, 'ghostword')")
    assert make_db().search_messages("ghostword") == []


def test_counters_of_calls_in_odd_json_are_counted_as_the_store_counts_them(
    db_path: Path, make_db: Any
) -> None:
    damage.make(db_path, sessions=1, messages=2)
    damage.run(
        db_path,
        'UPDATE messages SET tool_calls = \'[{"a": NaN}, {"b": 2}]\' WHERE id = 1',
        "UPDATE messages SET tool_calls = 'no json' WHERE id = 2",
        "UPDATE sessions SET tool_call_count = 3",
    )
    assert ("counters", "sessions") not in damage.kinds(make_db().check())


def test_what_is_no_database_is_told_apart(tmp_path: Path) -> None:
    text, zeros, empty = tmp_path / "t.db", tmp_path / "z.db", tmp_path / "e.db"
    text.write_bytes(b"hello " * 1000)
    zeros.write_bytes(bytes(3 << 20))
    empty.write_bytes(b"")
    assert hermes_state.check_file(text)["verdict"] == "not a database"
    assert hermes_state.check_file(zeros)["verdict"] == "zeroed"
    assert hermes_state.check_file(empty)["verdict"] == "empty"
    assert hermes_state.check_file(tmp_path / "none.db")["verdict"] == "missing"
    assert not (tmp_path / "none.db").exists()
    assert text.read_bytes() == b"hello " * 1000


def test_a_damaged_schema_page_is_unreadable(db_path: Path) -> None:
    damage.make(db_path)
    with db_path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 400)
    assert hermes_state.check_file(db_path)["verdict"] == "unreadable"


def test_a_check_beside_a_writer_finds_nothing(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    with processes.program(
        "db = SessionDB(path)\nbarrier()\n"
        "for i in range(300):\n    db.append_message('s1', 'user', f'beside {i} 中文')\n"
        "    if i % 50 == 0: db.replace_messages('s2', [{'role': 'user', 'content': f'new {i}'}])\n"
        "db.close()\n",
        db_path,
    ) as other:
        other.ready()
        db = make_db()
        other.go()
        reports = []
        while other.process.poll() is None:
            reports.append(db.check())
        other.finish()
    assert all(report["ok"] for report in reports), [r["problems"] for r in reports if not r["ok"]]


def test_a_check_in_delete_mode_and_of_a_read_only_file_works(db_path: Path) -> None:
    damage.make(db_path)
    conn = apsw.Connection(str(db_path))
    conn.execute("PRAGMA journal_mode=DELETE")
    conn.close()
    db_path.chmod(0o400)
    assert hermes_state.check_file(db_path)["ok"]
