"""A current file, whose locks are those of open file descriptions, is opened without an anchor."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builds import OFD_LOCKS

import hermes_state
from hermes_state import SessionDB
from hermes_state.engine import opening

pytestmark = pytest.mark.skipif(not OFD_LOCKS, reason="without those locks there is always an anchor")


def _anchored(db: Any) -> bool:
    return bool(db.store_info()["protection"]["anchor"])


def _sidecars(path: Path) -> list[str]:
    return [end for end in ("-wal", "-shm", "-journal") if Path(f"{path}{end}").exists()]


def test_the_first_open_has_an_anchor_and_later_ones_need_none(db_path: Path) -> None:
    with SessionDB(db_path) as db:
        assert _anchored(db)
    for _ in range(3):
        with SessionDB(db_path) as db:
            assert not _anchored(db)
            assert db.store_info()["journal_mode"] == "wal"
        assert _sidecars(db_path) == []


def test_the_last_close_copies_the_wal_back_and_removes_it(db_path: Path) -> None:
    SessionDB(db_path).close()
    with SessionDB(db_path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "word")
        assert _sidecars(db_path) == ["-wal", "-shm"]
        assert {oct(Path(f"{db_path}{end}").stat().st_mode & 0o777) for end in ("", "-wal", "-shm")} == {
            "0o600"
        }
    assert _sidecars(db_path) == []
    conn = sqlite3.connect(f"file:{db_path}?mode=ro&immutable=1", uri=True)
    assert conn.execute("SELECT content FROM messages").fetchall() == [("word",)]
    conn.close()


def test_what_a_killed_process_left_in_the_wal_is_there_and_copied_back(db_path: Path) -> None:
    SessionDB(db_path).close()
    script = """
import os, sys
from hermes_state import SessionDB
db = SessionDB(sys.argv[1])
db.create_session("s", "cli")
db.append_message("s", "user", "left behind")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script, str(db_path)], check=False, timeout=300)
    assert Path(f"{db_path}-wal").stat().st_size
    with SessionDB(db_path) as db:
        assert not _anchored(db)
        assert [row["content"] for row in db.get_messages("s")] == ["left behind"]
        assert len(db.search_messages("behind")) == 1
    assert _sidecars(db_path) == []


def test_a_close_beside_another_process_leaves_it_the_wal(db_path: Path) -> None:
    SessionDB(db_path).close()
    other = sqlite3.connect(db_path)
    script = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as db:
    db.set_meta("a", "b")
"""
    assert other.execute("SELECT COUNT(*) FROM state_meta").fetchone()[0] > 0
    subprocess.run([sys.executable, "-c", script, str(db_path)], check=True, timeout=300)
    assert _sidecars(db_path) == ["-wal", "-shm"]
    assert other.execute("SELECT value FROM state_meta WHERE key = 'a'").fetchone() == ("b",)
    other.close()


def test_a_stdlib_that_was_replaced_sees_the_open_of_a_current_file(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs test their handling of a refused WAL that way."""
    SessionDB(db_path).close()
    real = sqlite3.connect
    asked: list[Any] = []

    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> Any:
            if sql.startswith("PRAGMA journal_mode="):
                asked.append(sql)
                raise sqlite3.OperationalError("locking protocol")
            return super().execute(sql, *args)

    monkeypatch.setattr(
        hermes_state.sqlite3, "connect", lambda *args, **kwargs: real(*args, factory=Refusing, **kwargs)
    )
    with pytest.raises(sqlite3.OperationalError, match="locking protocol"):
        SessionDB(db_path)
    assert asked == ["PRAGMA journal_mode=WAL"]
    monkeypatch.undo()
    with SessionDB(db_path) as db:
        assert not _anchored(db)


def test_a_file_that_left_wal_mode_gets_an_anchor_and_wal_again(db_path: Path) -> None:
    SessionDB(db_path).close()
    own = sqlite3.connect(db_path, isolation_level=None)
    assert own.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    own.close()
    with SessionDB(db_path) as db:
        assert _anchored(db)
        db.create_session("s", "cli")
        assert db.store_info()["journal_mode"] == "wal"


def test_opens_that_fail_keep_a_bounded_number_of_connections(tmp_path: Path) -> None:
    """A connection whose closing could drop locks waits for the next try; it is not leaked."""
    path = tmp_path / "a.db"
    own = sqlite3.connect(path, isolation_level=None)
    own.execute("CREATE TABLE t(x)")
    for _ in range(3):
        conn, alone = opening.connect_first(path, durability="full")
        assert conn is not None
        assert not alone
        opening.park(conn, path)
        assert opening.connect_first(path, durability="full")[0] is conn
        opening.park(conn, path)
    assert opening.connect_first(path, durability="full")[0] is conn
    conn.close()
    own.close()
