"""Refused WAL, missing tokenizers, damaged files, permissions: cases 60, 61, 63, 64 and 65 from the field."""

from __future__ import annotations

import logging
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hermes_state
from hermes_state import SessionDB, errors
from hermes_state.engine import protection


class Refusing(sqlite3.Connection):
    """A connection whose first ``PRAGMA journal_mode=WAL`` fails, or answers, as its class says."""

    words: str | None = None
    answer: str | None = None
    times = 1_000_000

    def execute(self, sql: str, *args: Any) -> Any:
        if "journal_mode=wal" in sql.replace(" ", "").lower() and type(self).times > 0:
            type(self).times -= 1
            if self.words is not None:
                raise sqlite3.OperationalError(self.words)
            return super().execute(f"SELECT '{self.answer}'")
        return super().execute(sql, *args)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """``refuse(words=...)`` or ``refuse(answer=...)``: what the pragma does from now on."""
    hermes_state._wal_fallback_warned_paths.clear()

    def patch(**how: Any) -> None:
        kind = type("Kind", (Refusing,), how)
        real = sqlite3.connect
        monkeypatch.setattr(
            hermes_state.sqlite3,
            "connect",
            lambda *args, **kwargs: real(*args, **{**kwargs, "factory": kind}),
        )

    yield patch
    hermes_state._wal_fallback_warned_paths.clear()


def mode(path: Path) -> str:
    with closing(sqlite3.connect(path)) as conn:
        return str(conn.execute("PRAGMA journal_mode").fetchone()[0])


def works(db: Any) -> None:
    db.create_session("s", "cli")
    wanted = db.append_message("s", "user", "docker 部署")
    assert [hit["id"] for hit in db.search_messages("docker 部署")] == [wanted]
    assert db.get_messages("s")[0]["content"] == "docker 部署"
    db._conn.execute("UPDATE sessions SET model = 'm'")
    assert db.list_sessions_rich()[0]["model"] == "m"


@pytest.mark.parametrize(
    "how", [{"words": "locking protocol"}, {"words": "not authorized"}, {"answer": "delete"}]
)
def test_without_wal_the_store_works_in_delete_mode_and_says_so_once(
    make_db: Any,
    db_path: Path,
    tmp_path: Path,
    refuse: Any,
    caplog: pytest.LogCaptureFixture,
    how: dict[str, str],
) -> None:
    refuse(**how)
    caplog.set_level(logging.WARNING, logger="hermes_state")
    db = make_db()
    works(db)
    other = make_db(tmp_path / "other" / "state.db")
    works(other)
    said = [record for record in caplog.records if "journal_mode=DELETE" in record.getMessage()]
    assert len(said) == 1
    assert said[0].levelno == logging.WARNING
    assert said[0].name == "hermes_state"
    assert "state.db" in said[0].getMessage()
    db.close()
    assert mode(db_path) == "delete"
    assert not Path(f"{db_path}-wal").exists()


def test_an_io_error_is_tried_again_and_no_reason_to_leave_wal(
    make_db: Any, db_path: Path, refuse: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(words="disk I/O error", times=2)
    works(make_db())
    assert caplog.records == []
    assert mode(db_path) == "wal"


def test_an_io_error_that_stays_fails_the_open(db_path: Path, refuse: Any) -> None:
    refuse(words="disk I/O error")
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        SessionDB(db_path)
    assert "disk I/O error" in str(hermes_state.get_last_init_error())


def test_a_file_in_wal_is_never_switched_down(db_path: Path, refuse: Any) -> None:
    with SessionDB(db_path) as db:
        works(db)
    refuse(words="locking protocol")
    with pytest.raises(sqlite3.OperationalError, match="locking protocol"):
        SessionDB(db_path)
    assert mode(db_path) == "wal"


NO_TRIGRAM = "DROP TABLE messages_fts_trigram"
NO_FTS = "DROP TABLE messages_fts"


@pytest.mark.parametrize("gone", [[NO_TRIGRAM], [NO_FTS], [NO_TRIGRAM, NO_FTS]])
@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_a_missing_index_is_made_anew_at_the_next_open(
    make_db: Any, elsewhere: Any, gone: list[str], indexing: str
) -> None:
    db = make_db(indexing=indexing)
    works(db)
    db.close()
    elsewhere(db.db_path, *((sql, ()) for sql in gone))
    again = make_db(indexing=indexing)
    assert [hit["session_id"] for hit in again.search_messages("docker 部署")] == ["s"]
    assert again._conn.execute("SELECT count(*) FROM messages_fts").fetchone()[0] == 1
    assert again._conn.execute("SELECT count(*) FROM messages_fts_trigram").fetchone()[0] == 1


def test_a_file_that_is_no_database_is_refused_and_kept(db_path: Path) -> None:
    db_path.parent.mkdir(parents=True)
    db_path.write_bytes(b"this is a text file, and no database at all\n" * 100)
    before = db_path.read_bytes()
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database") as caught:
        SessionDB(db_path)
    assert not isinstance(caught.value, sqlite3.OperationalError)
    assert db_path.read_bytes() == before
    assert "file is not a database" in str(hermes_state.get_last_init_error())


def test_a_file_of_zero_bytes_is_a_new_store(make_db: Any, db_path: Path) -> None:
    db_path.parent.mkdir(parents=True)
    db_path.touch()
    works(make_db())


def test_a_zeroed_file_is_refused_and_kept(db_path: Path) -> None:
    with SessionDB(db_path) as db:
        works(db)
    size = db_path.stat().st_size
    db_path.write_bytes(bytes(size))
    with pytest.raises(sqlite3.DatabaseError):
        SessionDB(db_path)
    assert db_path.read_bytes() == bytes(size)


def root_page(path: Path, table: str) -> tuple[int, int]:
    """Root page and page size."""
    with closing(sqlite3.connect(path)) as conn:
        (root,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return int(root), int(conn.execute("PRAGMA page_size").fetchone()[0])


def damage(path: Path, table: str) -> None:
    root, size = root_page(path, table)
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)


@pytest.mark.parametrize("index", ["messages_fts_data", "messages_fts_trigram_data", "messages_fts_content"])
@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_with_only_an_index_damaged_reading_and_appending_go_on_and_search_scans(
    make_db: Any, db_path: Path, index: str, indexing: str
) -> None:
    db = make_db()
    works(db)
    db.close()
    damage(db_path, index)
    with SessionDB(db_path, indexing=indexing) as hurt:
        assert hurt.get_messages("s")[0]["content"] == "docker 部署"
        new = hurt.append_message("s", "user", "docker after the damage 部署")
        assert hurt.message_count("s") == 2
        assert new in [hit["id"] for hit in hurt.search_messages("docker 部署")]
        assert len(hurt.search_messages("docker")) == 2
    with SessionDB(db_path) as again:
        assert again.message_count("s") == 2


def test_a_damaged_table_is_told_and_nothing_is_deleted(make_db: Any, db_path: Path) -> None:
    db = make_db()
    works(db)
    db.close()
    damage(db_path, "messages")
    before = db_path.read_bytes()
    with pytest.raises(sqlite3.DatabaseError, match="malformed") as caught, SessionDB(db_path) as hurt:
        hurt.get_messages("s")
    assert isinstance(caught.value, errors.StoreCorruptError)
    assert len(db_path.read_bytes()) >= len(before)


def test_the_file_and_its_sidecars_are_private_whatever_the_umask(tmp_path: Path) -> None:
    code = """
import os, stat, sys
from hermes_state import SessionDB
os.umask(0o022)
path = sys.argv[1]
db = SessionDB(path)
db.create_session("s", "cli")
db.append_message("s", "user", "x")
db._conn.execute("UPDATE sessions SET model = 'm'")
for name in (path, path + "-wal", path + "-shm"):
    print(oct(stat.S_IMODE(os.stat(name).st_mode)))
db.close()
"""
    path = tmp_path / "home" / "state.db"
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.split() == ["0o600"] * 3
    path.chmod(0o644)
    with SessionDB(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


WRITER = """
import sys
from hermes_state import SessionDB
with SessionDB(sys.argv[1]) as db:
    print("READY", flush=True)
    sys.stdin.readline()
    for number in range(200):
        db.append_message("s", "user", f"elsewhere {number}")
"""


def test_the_stdlib_may_read_and_back_up_the_file_in_the_same_process(
    make_db: Any, db_path: Path, tmp_path: Path
) -> None:
    protection.install()
    exact = protection.active()["ofd_locks"]
    # With POSIX locks nothing of ours may commit at the moment when the stdlib is used (so no worker that
    # indexes), and the snapshot of such a connection may move while it is read; the store's file is sound.
    db = make_db(indexing=None if exact else "inline")
    db.create_session("s", "cli")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(db_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "READY\n"
        writer.stdin.write("\n")
        writer.stdin.flush()
        for number in range(40):
            db.append_message("s", "user", f"here {number}")
            try:
                with closing(sqlite3.connect(db_path)) as conn:
                    assert conn.execute("SELECT count(*) FROM messages").fetchone()[0] > number or not exact
                with (
                    closing(sqlite3.connect(db_path)) as conn,
                    closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
                ):
                    conn.backup(copy)
                    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",) or not exact
            except sqlite3.DatabaseError:
                if exact:
                    raise
        writer.communicate(timeout=300)
        assert writer.returncode == 0
    assert db.message_count("s") == 240
    assert len(db.search_messages("elsewhere", limit=-1)) == 200
    db.close()
    with closing(sqlite3.connect(db_path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert conn.execute("SELECT count(*) FROM messages").fetchone() == (240,)
