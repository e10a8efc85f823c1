"""With only an index damaged the store goes on, says so once, and repair() makes it whole."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import apsw
import damage
import processes
import pytest

import hermes_state
from hermes_state import SessionDB, errors
from hermes_state.engine import damage as index_damage

WARNING = "a full-text index is damaged"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def break_indexes(path: Path) -> None:
    """Damage both of v11's full-text tables so that neither can be read or written."""
    for kind in ("fts root", "trigram root"):
        damage.hit(path, kind, bytes(4096))


@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_reading_appending_and_searching_go_on_beside_a_damaged_index(
    db_path: Path, make_db: Any, caplog: pytest.LogCaptureFixture, indexing: str
) -> None:
    stored = damage.make(db_path)
    break_indexes(db_path)
    db = make_db(indexing=indexing)
    assert [m["content"] for m in db.get_messages("s1")] == stored["s1"]
    ids = [db.append_message("s1", "user", f"appended needle {i} 桂林") for i in range(20)]
    assert [hit["id"] for hit in db.search_messages("needle", limit=-1, sort="oldest")] == ids
    assert [hit["id"] for hit in db.search_messages("桂林", limit=-1, sort="oldest")] == ids
    assert len(db.search_messages("word7")) == 1
    assert db.search_messages("nowhere") == []
    said = [text for text in warnings_of(caplog) if WARNING in text]
    assert len(said) == 1, warnings_of(caplog)
    assert "repair()" in said[0]
    db.close()
    assert processes.value(db_path, "SELECT count(*) FROM messages") == 260


def test_the_worker_does_not_spin_on_a_damaged_index(
    db_path: Path, make_db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage.make(db_path)
    break_indexes(db_path)
    db = make_db()
    steps = 0
    met = threading.Event()
    original = type(db._engine.upkeep).index_step
    meet = type(db._engine.damage).met

    def counted(upkeep: Any, *how: Any, **options: Any) -> tuple[int, float]:
        nonlocal steps
        steps += 1
        return original(upkeep, *how, **options)

    def noted(known: Any, error: BaseException) -> bool:
        is_damage = meet(known, error)
        met.set()
        return is_damage

    monkeypatch.setattr(type(db._engine.upkeep), "index_step", counted)
    monkeypatch.setattr(type(db._engine.damage), "met", noted)
    monkeypatch.setattr(index_damage, "RETRY_AFTER_S", 1e9)
    db.append_message("s0", "user", "the first after the damage")
    assert met.wait(300)
    for i in range(200):
        db.append_message("s0", "user", f"more {i}")
        db.search_messages("more")
    assert steps == 1


@pytest.mark.parametrize("kind", damage.FTS)
def test_repair_makes_a_damaged_full_text_table_anew(db_path: Path, make_db: Any, kind: str) -> None:
    damage.make(db_path)
    damage.hit(db_path, kind)
    db = make_db()
    db.append_message("s2", "user", "needle beside damage 漓江")
    report = db.repair()
    assert report["before"]["verdict"] == "index"
    assert report["after"]["ok"], report["after"]["problems"]
    assert len(report["rebuilt"]) == 1
    assert len(db.search_messages("needle")) == len(db.search_messages("漓江")) == 1
    assert len(db.search_messages("word7")) == 1
    if report["vacuum_advised"]:
        assert report["advice"] == ["vacuum() frees the pages of what was damaged"]
        db.vacuum()
    db.close()
    processes.sound(db_path)


@pytest.mark.parametrize("kind", ["index", "our index"])
def test_repair_makes_a_damaged_index_anew(db_path: Path, make_db: Any, kind: str) -> None:
    stored = damage.make(db_path)
    damage.hit(db_path, kind)
    db = make_db()
    report = db.repair()
    assert report["after"]["ok"], report["after"]["problems"]
    assert [m["content"] for m in db.get_messages("s1")] == stored["s1"]
    db.vacuum()
    db.close()
    processes.sound(db_path)


def test_repair_leaves_a_damaged_table_alone_and_advises_salvage(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    damage.hit(db_path, "messages leaf")
    before = db_path.read_bytes()
    db = make_db()
    report = db.repair()
    assert report["after"]["verdict"] == "table"
    assert "hermes_state.salvage" in report["advice"][0]
    db.close()
    assert db_path.read_bytes() == before


def test_a_repair_of_a_sound_store_writes_nothing(db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    before = db_path.read_bytes()
    db = make_db()
    assert db.repair()["after"]["ok"]
    db.close()
    assert db_path.read_bytes() == before


def test_a_killed_repair_is_completed_by_the_next_open(db_path: Path) -> None:
    damage.make(db_path, messages=300)
    damage.hit(db_path, "fts leaf")
    code = (
        "from hermes_state.api import repairing\n"
        "n = 0\n"
        "real = repairing.Repairs.index_pending\n"
        "def slow(self, *a, **k):\n"
        "    index_now = self._index_now\n"
        "    def one(rows):\n"
        "        global n\n"
        "        n += 1\n"
        "        if n == 4: say(at=n); signal.pause()\n"
        "        return index_now(min(rows, 50))\n"
        "    self._index_now = one\n"
        "    return real(self, *a, **k)\n"
        "repairing.Repairs.index_pending = slow\n"
        "db = SessionDB(path)\ndb._engine._worker._index_step = lambda rows: (0, 0.0)\ndb.repair()\n"
    )
    with processes.program(code, db_path) as other:
        assert other.answer() == {"at": 4}
        assert processes.value(db_path, "SELECT version FROM schema_version") == 10
        other.kill()
    with SessionDB(db_path) as db:
        assert len(db.search_messages("hello", limit=-1)) == 1200
        assert db.check()["ok"]
        db.vacuum()
    processes.sound(db_path)


def test_searches_are_right_while_a_repair_goes_on_beside_writers(db_path: Path, make_db: Any) -> None:
    damage.make(db_path, messages=150)
    damage.hit(db_path, "fts leaf")
    with processes.program(
        "db = SessionDB(path)\nbarrier()\n"
        "for i in range(150):\n"
        "    db.append_message('s1', 'user', f'beside{i} 漓江{i}水')\n"
        "    assert len(db.search_messages(f'beside{i}')) == 1, i\n"
        "    assert len(db.search_messages(f'漓江{i}水')) == 1, i\n"
        "    assert len(db.search_messages('word7')) == 1, i\n"
        "say(done=1)\ndb.close()\n",
        db_path,
    ) as other:
        other.ready()
        db = make_db()
        other.go()
        report = db.repair()
        assert other.finish() == [{"done": 1}]
    assert "messages_fts" in report["rebuilt"]
    assert db.check()["ok"]
    assert db.message_count() == 750


def test_each_write_of_a_repair_is_short_in_rows(
    db_path: Path, make_db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage.make(db_path, sessions=2, messages=600)
    damage.run(db_path, "UPDATE messages SET content = content || ' changed'")
    db = make_db()
    treated: list[int] = []
    from hermes_state.search import indexing

    original = indexing.index_rows

    def counted(conn: apsw.Connection, ids: Any) -> None:
        treated.append(len(list(ids)))
        original(conn, ids)

    monkeypatch.setattr(indexing, "index_rows", counted)
    report = db.repair()
    assert report["rows"] == sum(treated) == 1200
    assert max(treated) <= 512
    assert len(treated) > 3


@pytest.mark.parametrize("mode", ["unspaced", "all"])
def test_the_trigram_mode_changes_and_every_search_answers_alike(
    db_path: Path, make_db: Any, mode: str
) -> None:
    damage.make(db_path, trigram="all" if mode == "unspaced" else "unspaced")
    db = make_db()
    db.append_message("s0", "user", "only English here")
    queries = ["word7", "文7", "中", "修改", "fix5", "English", "本"]
    before = [[hit["id"] for hit in db.search_messages(q, limit=-1, sort="oldest")] for q in queries]
    seen: list[tuple[int, int]] = []
    db.set_trigram_mode(mode, lambda done, total: seen.append((done, total)))
    after = [[hit["id"] for hit in db.search_messages(q, limit=-1, sort="oldest")] for q in queries]
    assert after == before
    report = db.check()
    assert report["ok"], report["problems"]
    assert report["trigram"] == mode
    assert report["indexed"]["messages_fts_trigram"] == (241 if mode == "all" else 240)
    assert seen[-1] == (241, 241)
    with pytest.raises(ValueError, match="trigram mode"):
        db.set_trigram_mode("some")


@pytest.mark.parametrize("damaged", [False, True])
def test_the_index_is_built_anew(db_path: Path, make_db: Any, damaged: bool) -> None:
    damage.make(db_path)
    if damaged:
        damage.hit(db_path, "trigram leaf")
    db = make_db()
    db.rebuild_index()
    assert db.check()["ok"]
    assert len(db.search_messages("文7")) == 4
    assert len(db.search_messages("word7")) == 1


def test_optimize_ends_and_leaves_few_segments(db_path: Path, make_db: Any) -> None:
    damage.make(db_path, sessions=1)
    db = make_db()
    for i in range(30):
        db.append_message("s0", "user", f"segment {i}")
        db.search_messages("segment")
    assert db.optimize() >= 3
    assert db.optimize() == 3, "a second run finds nothing in any of the three tables"
    assert db.check()["ok"]


def test_a_delete_beside_a_damaged_index_deletes_and_a_repair_mends_the_index(
    db_path: Path, make_db: Any
) -> None:
    damage.make(db_path)
    break_indexes(db_path)
    db = make_db()
    assert db.delete_session("s1")
    assert db.message_count("s1") == 0
    assert db.repair()["after"]["ok"]
    assert db.delete_session("s2")
    assert db.check()["ok"]


def test_an_inline_delete_that_meets_index_damage_says_so_and_deletes_nothing(
    db_path: Path, make_db: Any
) -> None:
    damage.make(db_path)
    break_indexes(db_path)
    db = make_db(indexing="inline")
    with pytest.raises(errors.StoreCorruptError):
        db.delete_session("s1")
    assert db.message_count("s1") == 60
    db.repair()
    assert db.delete_session("s1")
    assert db.check()["ok"]


def test_a_damaged_index_is_told_by_the_sqlite_error_class(db_path: Path) -> None:
    import sqlite3

    assert issubclass(errors.StoreCorruptError, sqlite3.DatabaseError)
    damage.make(db_path)
    damage.hit(db_path, "messages root", os.urandom(4096))
    with pytest.raises(sqlite3.DatabaseError), SessionDB(db_path) as db:
        db.get_messages("s1")
    assert hermes_state.check_file(db_path)["verdict"] == "table"
