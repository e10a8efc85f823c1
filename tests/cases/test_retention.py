"""Retention and size: cases 67, 69, 70, 71 and 73 from the field."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

DAY = 86400.0


def aged(
    db: Any, session_id: str, days: float, *, ended: bool = True, source: str = "cli", texts: int = 1
) -> str:
    """A session begun so many days ago, with messages of that time."""
    at = time.time() - days * DAY
    db.create_session(session_id, source)
    if texts:
        db.replace_messages(
            session_id, [{"role": "user", "content": f"text of {session_id}", "timestamp": at}] * texts
        )
    if ended:
        db.end_session(session_id, "user_exit")
    db._conn.execute("UPDATE sessions SET started_at = ? WHERE id = ?", (at, session_id))
    return session_id


def ids(db: Any) -> set[str]:
    return {row[0] for row in db._conn.execute("SELECT id FROM sessions")}


def test_last_activity_decides_and_not_the_start(any_db: Any, hits: Any) -> None:
    for name, days in (("old", 200), ("used", 200), ("young", 10)):
        aged(any_db, name, days)
    aged(any_db, "open", 200, ended=False)
    used_now = any_db.append_message("used", "user", "text of today")
    assert any_db.prune_candidates(90) == ["old"]
    assert ids(any_db) == {"old", "used", "young", "open"}
    assert any_db.prune_sessions(90) == 1
    assert ids(any_db) == {"used", "young", "open"}
    assert used_now in hits(any_db, "text")
    assert len(hits(any_db, "text")) == 4
    assert any_db.message_count() == 4


@pytest.mark.parametrize("days", [-1, -0.001, float("nan"), float("-inf")])
def test_days_below_nothing_are_an_error_and_delete_nothing(db: Any, days: float) -> None:
    aged(db, "old", 200)
    with pytest.raises(ValueError):
        db.prune_sessions(days)
    with pytest.raises(ValueError):
        db.prune_candidates(days)
    assert ids(db) == {"old"}


def test_a_prune_can_be_of_one_source(db: Any) -> None:
    aged(db, "a", 200, source="cli")
    aged(db, "b", 200, source="telegram")
    assert db.prune_candidates(30, source="telegram") == ["b"]
    assert db.prune_sessions(older_than_days=30, source="telegram") == 1
    assert ids(db) == {"a"}


def test_a_live_conversation_keeps_its_ancestors_and_a_dead_one_goes_whole(db: Any) -> None:
    for name in ("live", "dead"):
        aged(db, f"{name}0", 300)
        aged(db, f"{name}1", 200)
        db._conn.execute(
            "UPDATE sessions SET end_reason = 'compression', ended_at = ? WHERE id = ?",
            (db.get_session(f"{name}1")["started_at"], f"{name}0"),
        )
        db._conn.execute("UPDATE sessions SET parent_session_id = ? WHERE id = ?", (f"{name}0", f"{name}1"))
    db.reopen_session("live1")
    aged(db, "child", 10)
    db._conn.execute("UPDATE sessions SET parent_session_id = 'dead1' WHERE id = 'child'")
    assert set(db.prune_candidates(90)) == {"dead0", "dead1"}
    assert db.prune_sessions(90) == 2
    assert ids(db) == {"live0", "live1", "child"}
    assert db.get_session("child")["parent_session_id"] is None
    assert db.get_session("live1")["parent_session_id"] == "live0"


def test_forty_thousand_sessions_are_deleted(db: Any) -> None:
    db._conn.executemany(
        "INSERT INTO sessions(id, source, started_at, ended_at) VALUES (?, 'cli', 5.0, 6.0)",
        ((f"s{number:05}",) for number in range(40_000)),
    )
    aged(db, "kept", 1)
    assert db.prune_sessions(90) == 40_000
    assert ids(db) == {"kept"}


def test_many_messages_of_one_session_go_in_steps(any_db: Any, hits: Any) -> None:
    aged(any_db, "long", 200, texts=3000)
    kept = any_db.append_message(aged(any_db, "kept", 1, texts=0), "user", "text stays")
    assert any_db.delete_session("long") is True
    assert any_db.delete_session("long") is False
    assert hits(any_db, "text") == {kept}
    assert hits(any_db, "long") == set()


def test_a_ghost_that_is_a_parent_does_not_stop_the_sweep(db: Any) -> None:
    for name in ("ghost", "parent", "titled", "young", "open", "spoken", "cli"):
        source = "cli" if name == "cli" else "tui"
        aged(
            db,
            name,
            0.5 if name == "young" else 2,
            source=source,
            ended=name != "open",
            texts=name == "spoken",
        )
    db.set_session_title("titled", "kept for its name")
    db.create_session("child", "tui", parent_session_id="parent")
    assert db.prune_empty_ghost_sessions() == 1
    assert ids(db) == {"parent", "titled", "young", "open", "spoken", "cli", "child"}
    db.delete_session("child")
    assert db.prune_empty_ghost_sessions() == 1


def test_columns_outside_the_index_can_be_set_without_re_indexing(any_db: Any, hits: Any) -> None:
    any_db.create_session("s", "cli")
    any_db.append_messages("s", [{"role": "user", "content": f"word{i}"} for i in range(500)])
    assert len(hits(any_db, "word*")) == 500
    before = index_rows(any_db)
    any_db.replace_messages("s", any_db.get_messages("s"))
    any_db.end_session("s", "done")
    any_db.set_session_title("s", "title")
    any_db.update_token_counts("s", input_tokens=5)
    assert index_rows(any_db) == before
    assert len(hits(any_db, "word*")) == 500


def index_rows(db: Any) -> list[tuple[Any, ...]]:
    """The segments of the word index: written anew by any change to it."""
    return [
        tuple(row)
        for row in db._conn.execute("SELECT id, block FROM messages_fts_data WHERE id > 10 ORDER BY id")
    ]


@pytest.mark.parametrize(
    "session_id",
    [
        "../../etc/passwd",
        "../outside",
        "a*b",
        "a?b",
        "[ab]",
        "*",
        "..",
        ".",
        "a/b",
        "/abs",
        "a\x00b",
        "a\\b",
        "C:x",
        "~",
    ],
)
def test_an_id_never_reaches_outside_its_folder_nor_other_ids_files(
    db: Any, tmp_path: Path, session_id: str
) -> None:
    folder = tmp_path / "sessions"
    (folder / "a").mkdir(parents=True)
    kept = [
        tmp_path / "outside.json", tmp_path / "outside.jsonl", folder / "axb.json", folder / "aab.jsonl",
        folder / "a.json", folder / "request_dump_axb_1.json", folder / "request_dump_ab_1.json",
        folder / "b.json", folder / "a" / "b.json", folder / ".hidden",
    ]  # fmt: skip
    for path in kept:
        path.write_text("{}")
    db.create_session(session_id, "cli")
    assert db.delete_session(session_id, sessions_dir=folder) is True
    assert [path for path in kept if not path.exists()] == []


def test_the_files_of_a_deleted_session_go_and_no_others(db: Any, tmp_path: Path) -> None:
    names = ["s.json", "s.jsonl", "request_dump_s_1.json", "request_dump_s_x_y.json"]
    others = [
        "s2.json",
        "request_dump_s2_1.json",
        "request_dump_s.json",
        "s.txt",
        "xs.json",
        "request_dump_s_1.txt",
    ]
    for name in names + others:
        (tmp_path / name).write_text("{}")
    for session_id in ("s", "t"):
        db.create_session(session_id, "cli")
    db.delete_session("t", sessions_dir=tmp_path / "missing")
    db.delete_session("s", sessions_dir=str(tmp_path))
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left == set(others)


def test_files_that_cannot_be_removed_do_not_stop_a_prune(db: Any, tmp_path: Path) -> None:
    (tmp_path / "old.json").mkdir()
    (tmp_path / "gone.json").write_text("{}")
    aged(db, "old", 200)
    aged(db, "gone", 200)
    assert db.prune_sessions(90, sessions_dir=tmp_path) == 2
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["old.json"]


def test_a_dump_goes_with_the_longest_id_it_may_belong_to(db: Any, tmp_path: Path) -> None:
    for session_id in ("a", "a_b"):
        db.create_session(session_id, "cli")
    (tmp_path / "request_dump_a_b_1.json").write_text("{}")
    (tmp_path / "request_dump_a_1.json").write_text("{}")
    db.delete_session("a", sessions_dir=tmp_path)
    assert [path.name for path in tmp_path.glob("*.json")] == ["request_dump_a_b_1.json"]


def test_the_automatic_prune_runs_once_in_its_interval(db: Any) -> None:
    aged(db, "old", 200)
    first = db.maybe_auto_prune_and_vacuum()
    assert first == {"skipped": False, "pruned": 1, "vacuumed": True}
    assert float(db.get_meta("last_auto_prune")) <= time.time()
    aged(db, "older", 300)
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": True, "pruned": 0, "vacuumed": False}
    assert ids(db) == {"older"}
    for stamp in (str(time.time() + 10 * DAY), "", "not a number", "nan", "inf", "-1"):
        db.set_meta("last_auto_prune", stamp)
        assert db.maybe_auto_prune_and_vacuum(vacuum=False)["skipped"] is False, stamp
    assert ids(db) == set()


def test_the_automatic_prune_never_raises(db: Any) -> None:
    result = db.maybe_auto_prune_and_vacuum(retention_days=-1)
    assert result["pruned"] == 0
    assert "error" in result
    db.set_meta("last_auto_prune", "0")
    result = db.maybe_auto_prune_and_vacuum(retention_days="many")
    assert "error" in result
    json.dumps(result)


def test_vacuum_keeps_everything(any_db: Any, hits: Any) -> None:
    any_db.create_session("s", "cli")
    any_db.append_messages("s", [{"role": "user", "content": f"word{i} 广西"} for i in range(50)])
    before = any_db.export_all()
    any_db.vacuum()
    assert any_db.export_all() == before
    assert len(hits(any_db, "广西")) == 50
    assert any_db.append_message("s", "user", "after") == 51
