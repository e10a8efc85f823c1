"""salvage() reads what is readable of a damaged file into a new, whole store, and never touches the file."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import damage
import processes
import pytest

import hermes_state
from hermes_state import SessionDB, errors


def everything(path: Path) -> dict[str, bytes]:
    """The bytes of the file and its sidecars."""
    return {name.name: name.read_bytes() for name in path.parent.iterdir() if name.name.startswith(path.name)}


def salvaged(path: Path, tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """The report and the new file, the old one unchanged and the new one whole."""
    before = everything(path)
    into = tmp_path / "salvaged.db"
    report = hermes_state.salvage(path, into)
    assert everything(path) == before, "the damaged file was touched"
    assert [name.name for name in tmp_path.iterdir() if "unfinished" in name.name] == []
    assert stat.S_IMODE(into.stat().st_mode) == 0o600
    processes.sound(into)
    assert hermes_state.check_file(into)["ok"]
    return dict(report), into


def contents(path: Path) -> dict[str, list[Any]]:
    with SessionDB(path) as db:
        return {s["id"]: [m["content"] for m in db.get_messages(s["id"])] for s in db.export_all()}


def test_a_sound_file_comes_over_whole(tmp_path: Path, db_path: Path) -> None:
    stored = damage.make(db_path)
    with SessionDB(db_path) as db:
        db.set_session_title("s1", "a title")
        db.set_meta("own", "kept")
        db.append_message("s1", "assistant", [{"type": "text", "text": "部分"}], tool_calls=[{"a": 1}])
        ids = [m["id"] for m in db.get_messages("s1")]
    report, into = salvaged(db_path, tmp_path)
    assert report["complete"]
    assert (report["sessions"], report["messages"]) == (4, 241)
    with SessionDB(into) as db:
        assert db.get_session_title("s1") == "a title"
        assert db.get_meta("own") == "kept"
        assert [m["id"] for m in db.get_messages("s1")] == ids
        assert [m["content"] for m in db.get_messages("s0")] == stored["s0"]
        assert len(db.search_messages("部分")) == 1
        session = db.get_session("s1")
        assert session is not None
        assert (session["message_count"], session["tool_call_count"]) == (61, 1)


@pytest.mark.parametrize("fill", [None, bytes(4096)], ids=["random", "zeroed"])
@pytest.mark.parametrize("kind", damage.PAGES)
def test_every_row_outside_the_damaged_page_is_read(
    tmp_path: Path, db_path: Path, kind: str, fill: bytes | None
) -> None:
    stored = damage.make(db_path)
    total = sum(map(len, stored.values()))
    damage.hit(db_path, kind, fill)
    report, into = salvaged(db_path, tmp_path)
    found = contents(into)
    if kind == "messages leaf":
        assert total - 20 <= report["messages"] < total
        assert report["tables"]["messages"]["lost_ranges"]
        assert not report["complete"]
    else:
        assert report["messages"] == total, report
    if kind == "sessions root":
        assert report["invented_sessions"] == 4
        assert not report["complete"]
    for session_id, texts in stored.items():
        assert set(found[session_id]) <= set(texts)


def test_what_was_only_in_the_wal_is_read(tmp_path: Path, db_path: Path) -> None:
    damage.make(db_path)
    with processes.program(
        "db = SessionDB(path)\ndb.append_message('s0', 'user', 'only in the wal')\nsay(done=1)\n"
        "db._engine._worker.stop()\nos._exit(0)\n",
        db_path,
    ) as other:
        other.answer()
        other.finish()
    assert Path(f"{db_path}-wal").stat().st_size
    report, into = salvaged(db_path, tmp_path)
    assert "only in the wal" in contents(into)["s0"]
    assert report["messages"] == 241


@pytest.mark.parametrize("bytes_lost", [16, 100], ids=["magic", "header"])
def test_a_file_without_its_header_is_read(tmp_path: Path, db_path: Path, bytes_lost: int) -> None:
    stored = damage.make(db_path)
    with db_path.open("r+b") as file:
        file.write(bytes(bytes_lost))
    assert hermes_state.check_file(db_path)["verdict"] == "not a database"
    report, into = salvaged(db_path, tmp_path)
    assert contents(into) == stored
    assert report["messages"] == 240


def test_a_file_without_its_schema_is_read_page_by_page(tmp_path: Path, db_path: Path) -> None:
    stored = damage.make(db_path)
    with db_path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(3996))
    report, into = salvaged(db_path, tmp_path)
    assert contents(into) == stored
    assert report["tables"]["messages"]["found_on_pages"] == 240


def test_a_file_without_its_first_page_is_read_page_by_page(tmp_path: Path, db_path: Path) -> None:
    stored = damage.make(db_path)
    with db_path.open("r+b") as file:
        file.write(os.urandom(4096))
    _, into = salvaged(db_path, tmp_path)
    assert contents(into) == stored


def test_deleted_rows_do_not_come_back_from_free_pages(tmp_path: Path, db_path: Path) -> None:
    damage.make(db_path)
    with SessionDB(db_path) as db:
        db.delete_session("s1")
    damage.fold_in(db_path)
    damage.hit(db_path, "messages root")
    report, into = salvaged(db_path, tmp_path)
    assert "s1" not in contents(into)
    assert report["messages"] >= 150


def test_every_version_is_salvaged(tmp_path: Path) -> None:
    for version in range(1, 12):
        path = tmp_path / f"v{version}" / "state.db"
        path.parent.mkdir()
        processes.fixtures().make(path, version)
        rows = processes.value(path, "SELECT count(*) FROM messages")
        into = tmp_path / f"s{version}.db"
        report = hermes_state.salvage(path, into)
        assert report["messages"] == rows
        processes.sound(into)


def test_values_keep_their_type_and_bytes(tmp_path: Path, db_path: Path) -> None:
    damage.make(db_path, sessions=1, messages=3)
    damage.run(
        db_path,
        "UPDATE messages SET content = CAST(x'68ff69' AS TEXT), reasoning = x'00ff', token_count = 1.5"
        " WHERE id = 2",
        "UPDATE messages SET content = CAST(x'610062' AS TEXT) WHERE id = 3",
    )
    _, into = salvaged(db_path, tmp_path)
    sql = "SELECT hex(CAST(content AS BLOB)), typeof(content), typeof(reasoning), token_count FROM messages"
    with sqlite3.connect(into) as conn:
        rows = conn.execute(sql + " WHERE id > 1 ORDER BY id").fetchall()
    conn.close()
    assert rows == [("68FF69", "text", "blob", 1.5), ("610062", "text", "null", None)]


def test_nothing_is_overwritten_and_nothing_open_is_read(tmp_path: Path, db_path: Path, make_db: Any) -> None:
    damage.make(db_path)
    into = tmp_path / "there.db"
    into.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        hermes_state.salvage(db_path, into)
    assert into.read_bytes() == b"mine"
    with pytest.raises(FileNotFoundError):
        hermes_state.salvage(tmp_path / "none.db", tmp_path / "new.db")
    make_db()
    with pytest.raises(errors.StoreBusyError, match="in use"):
        hermes_state.salvage(db_path, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("data", [b"no database at all " * 1000, bytes(40960), b"", b"SQLite format 3\x00"])
def test_what_holds_no_row_is_refused_and_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(data)
    with pytest.raises((errors.StoreCorruptError, errors.StoreSchemaError)):
        hermes_state.salvage(path, tmp_path / "new.db")
    assert sorted(name.name for name in tmp_path.iterdir()) == ["x.db"]
    assert path.read_bytes() == data


def test_a_working_copy_that_does_not_fit_is_not_begun(
    tmp_path: Path, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    damage.make(db_path)
    with db_path.open("r+b") as file:
        file.write(bytes(16))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1000))
    with pytest.raises(errors.StoreFullError):
        hermes_state.salvage(db_path, tmp_path / "new.db")
    assert [name.name for name in tmp_path.iterdir()] == ["home"]


def test_damage_that_covers_many_rows_ends_soon(tmp_path: Path, db_path: Path) -> None:
    damage.make(db_path, messages=300)
    conn = apsw.Connection(str(db_path))
    pages = [
        row[0]
        for row in conn.execute("SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf'")
    ]
    conn.close()
    with db_path.open("r+b") as file:
        for page in pages[: len(pages) // 2]:
            file.seek((page - 1) * 4096)
            file.write(os.urandom(4096))
    report, _ = salvaged(db_path, tmp_path)
    assert 500 <= report["messages"] <= 700
