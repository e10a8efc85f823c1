"""Backup is one whole file, made beside live writers; restore puts it back, never under live handles."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import apsw
import damage
import processes
import pytest

import hermes_state
from hermes_state import SessionDB, errors
from hermes_state.transfer import backup


def names(folder: Path) -> list[str]:
    return sorted(name.name for name in folder.iterdir())


@pytest.fixture
def store(db_path: Path) -> dict[str, list[str]]:
    return damage.make(db_path)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder / "state.backup.db"


def test_a_backup_is_one_private_file_with_everything(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any
) -> None:
    db = make_db()
    db.append_message("s0", "user", "not yet in the main file")
    seen: list[tuple[int, int]] = []
    report = db.backup(target, lambda done, total: seen.append((done, total)))
    assert report == {"path": str(target), "bytes": target.stat().st_size, "sessions": 4, "messages": 241}
    assert names(target.parent) == [target.name]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert seen[-1][0] == seen[-1][1] > 0
    with SessionDB(target) as copy:
        assert copy.get_messages("s0") == db.get_messages("s0")
        assert len(copy.search_messages("not yet")) == 1


def test_a_backup_beside_a_writer_is_a_moment_of_it(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES_A_STEP", 5)
    with processes.program(
        "db = SessionDB(path)\nbarrier()\ni = 0\n"
        "while not os.path.exists(args[0]):\n    db.append_message('s1', 'user', f'during {i}'); i += 1\n"
        "say(appended=i)\ndb.close()\n",
        db_path,
        f"{target}.done",
    ) as other:
        other.ready()
        db = make_db()
        other.go()
        made = [db.backup(target.with_name(f"{n}.db")) for n in range(3)]
        Path(f"{target}.done").touch()
        (answer,) = other.finish()
    for report in made:
        with SessionDB(report["path"]) as copy:
            texts = [m["content"] for m in copy.get_messages("s1")][60:]
            assert texts == [f"during {i}" for i in range(len(texts))]
            assert copy.message_count() == report["messages"]
            assert copy.check()["ok"]
    assert db.message_count() == 240 + answer["appended"]


def test_a_target_that_is_there_is_refused_or_replaced_when_asked(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any
) -> None:
    db = make_db()
    target.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="overwrite"):
        db.backup(target)
    assert target.read_bytes() == b"mine"
    db.backup(target, overwrite=True)
    assert hermes_state.check_file(target)["ok"]
    for name in names(target.parent):
        assert name in (target.name, f"{target.name}-shm", f"{target.name}-wal")


def test_links_folders_and_databases_in_use_are_no_targets(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any
) -> None:
    db = make_db()
    elsewhere = target.with_name("elsewhere")
    elsewhere.write_bytes(b"precious")
    target.symlink_to(elsewhere)
    with pytest.raises(FileExistsError):
        db.backup(target, overwrite=True)
    assert elsewhere.read_bytes() == b"precious"
    dangling = target.with_name("dangling")
    dangling.symlink_to(target.with_name("nowhere"))
    with pytest.raises(FileExistsError):
        db.backup(dangling)
    with pytest.raises(FileExistsError):
        db.backup(target.parent, overwrite=True)
    with pytest.raises(FileExistsError, match="open"):
        db.backup(db_path, overwrite=True)
    busy = target.with_name("busy.db")
    Path(f"{busy}-wal").write_bytes(b"x")
    with pytest.raises(FileExistsError, match="in use"):
        db.backup(busy)
    with pytest.raises(OSError):
        db.backup(target.parent / "no folder" / "x.db")
    assert db.check()["ok"]


def test_a_backup_that_fails_leaves_nothing(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any
) -> None:
    db = make_db()

    def fail(done: int, total: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        db.backup(target, fail)
    assert names(target.parent) == []


def test_a_backup_of_a_damaged_table_is_refused_and_of_a_damaged_index_is_not(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any
) -> None:
    damage.hit(db_path, "fts leaf")
    with SessionDB(db_path) as db:
        assert db.backup(target)["messages"] == 240
    damage.hit(db_path, "messages leaf")
    with SessionDB(db_path) as db, pytest.raises(errors.StoreCorruptError):
        db.backup(target.with_name("second.db"))
    assert names(target.parent) == [target.name]


def test_a_backup_in_delete_mode_works(target: Path, db_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> Any:
            if "journal_mode=WAL" in sql:
                raise sqlite3.OperationalError("locking protocol")
            return super().execute(sql, *args)

    real = sqlite3.connect
    monkeypatch.setattr(hermes_state.sqlite3, "connect", lambda *a, **k: real(*a, factory=Refusing, **k))
    with SessionDB(db_path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "hello")
        assert db.backup(target)["messages"] == 1


def test_restore_puts_the_backup_back_and_keeps_the_old_file(
    db_path: Path, store: dict[str, list[str]], target: Path
) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
        db.delete_session("s1")
        db.append_message("s0", "user", "after the backup")
    report = hermes_state.restore(target, db_path)
    kept = Path(f"{db_path}.before-restore")
    assert report == {"path": str(db_path), "kept": str(kept), "sessions": 4, "messages": 240}
    assert names(db_path.parent) == [db_path.name, kept.name]
    assert stat.S_IMODE(db_path.stat().st_mode) == 0o600
    with SessionDB(db_path) as db:
        assert [m["content"] for m in db.get_messages("s1")] == store["s1"]
        assert db.search_messages("after the backup") == []
    with SessionDB(kept) as old:
        assert old.get_session("s1") is None
        assert len(old.search_messages("after the backup")) == 1
    assert hermes_state.restore(target, db_path)["kept"] == f"{kept}-2"
    processes.sound(db_path)


def test_restore_makes_a_store_where_none_was(
    store: dict[str, list[str]], db_path: Path, target: Path
) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
    place = target.parent / "new" / "state.db"
    assert hermes_state.restore(target, place)["kept"] is None
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    processes.sound(place)


def test_restore_refuses_while_this_process_has_the_store_open(
    db_path: Path, store: dict[str, list[str]], target: Path, make_db: Any
) -> None:
    db = make_db()
    db.backup(target)
    with pytest.raises(errors.StoreBusyError, match="in use"):
        hermes_state.restore(target, db_path)
    link = target.with_name("link.db")
    link.symlink_to(db_path)
    with pytest.raises(errors.StoreBusyError, match="in use"):
        hermes_state.restore(target, link)
    assert not Path(f"{db_path}.before-restore").exists()
    assert db.check()["ok"]


@pytest.mark.parametrize("damaged", [False, True])
def test_restore_refuses_while_another_process_has_the_store_open(
    db_path: Path, store: dict[str, list[str]], target: Path, damaged: bool
) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
    with processes.program(
        "db = SessionDB(path)\ndb.message_count()\nbarrier()\ndb.append_message('s0', 'user', 'still here')\n"
        "db.close()\n",
        db_path,
    ) as other:
        other.ready()
        original = db_path.read_bytes()[:16]
        if damaged:
            with db_path.open("r+b") as file:
                file.write(bytes(16))
        with pytest.raises(errors.StoreBusyError, match="in use"):
            hermes_state.restore(target, db_path)
        if damaged:
            with db_path.open("r+b") as file:
                file.write(original)
        other.go()
        other.finish()
    assert names(db_path.parent)[0] == "state.db"
    assert not Path(f"{db_path}.before-restore").exists()
    assert processes.value(db_path, "SELECT count(*) FROM messages") == 241
    processes.sound(db_path)


def test_a_damaged_store_is_replaced_with_its_sidecars_kept(
    db_path: Path, store: dict[str, list[str]], target: Path
) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
    bad = b"garbage" * 1000
    db_path.write_bytes(bad)
    Path(f"{db_path}-wal").write_bytes(b"an old wal")
    report = hermes_state.restore(target, db_path)
    kept = Path(report["kept"])
    assert kept.read_bytes() == bad
    assert Path(f"{kept}-wal").read_bytes() == b"an old wal"
    assert not Path(f"{db_path}-wal").exists()
    processes.sound(db_path)


def test_a_bad_backup_changes_nothing(db_path: Path, store: dict[str, list[str]], target: Path) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
    before = db_path.read_bytes()
    damage.hit(target, "messages leaf")
    with pytest.raises(errors.StoreCorruptError):
        hermes_state.restore(target, db_path)
    target.write_bytes(b"no database" * 1000)
    with pytest.raises(errors.NotADatabaseError):
        hermes_state.restore(target, db_path)
    other = target.with_name("other.db")
    conn = apsw.Connection(str(other))
    conn.execute("CREATE TABLE t(a)")
    conn.close()
    with pytest.raises(errors.StoreCorruptError, match="sessions"):
        hermes_state.restore(other, db_path)
    with pytest.raises(FileNotFoundError):
        hermes_state.restore(target.with_name("none"), db_path)
    with pytest.raises(ValueError):
        hermes_state.restore(db_path, db_path)
    assert db_path.read_bytes() == before
    assert names(db_path.parent) == ["state.db"]


def test_a_wal_without_its_database_is_not_taken_in(
    store: dict[str, list[str]], db_path: Path, target: Path
) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
    place = target.parent / "lone.db"
    Path(f"{place}-wal").write_bytes(b"left over")
    with pytest.raises(FileExistsError, match="without its database"):
        hermes_state.restore(target, place)
    assert not place.exists()


def test_killed_between_the_names_one_of_the_two_stores_is_in_place(
    db_path: Path, store: dict[str, list[str]], target: Path
) -> None:
    with SessionDB(db_path) as db:
        db.backup(target)
        db.append_message("s0", "user", "after the backup")
    code = (
        "import hermes_state\nfrom hermes_state.transfer import backup\n"
        "backup.put = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "hermes_state.restore(args[0], path)\n"
    )
    with processes.program(code, db_path, target) as other:
        other.finish(status=-9)
    assert processes.value(db_path, "SELECT count(*) FROM messages") == 241
    assert hermes_state.restore(target, db_path)["messages"] == 240
    processes.sound(db_path)


def test_without_hard_links_the_names_change_all_the_same(
    db_path: Path, store: dict[str, list[str]], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_more: Any) -> None:
        raise OSError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    with SessionDB(db_path) as db:
        db.backup(target)
        with pytest.raises(FileExistsError):
            db.backup(target)
    hermes_state.restore(target, db_path)
    assert Path(f"{db_path}.before-restore").exists()
    processes.sound(db_path)
