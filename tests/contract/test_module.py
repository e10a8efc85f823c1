"""The names of the module, where the file is, and what a failed open leaves behind."""

from __future__ import annotations

import logging
import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hermes_state
from hermes_state import SessionDB


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = hermes_state.get_last_init_error()
    hermes_state._wal_fallback_warned_paths.clear()
    hermes_state._set_last_init_error(None)
    yield
    hermes_state._set_last_init_error(before)
    hermes_state._wal_fallback_warned_paths.clear()


class Pragma:
    """A stdlib connection's stand-in: the journal_mode pragmas answer or fail as told."""

    def __init__(self, wal: Any, delete: Any = "delete", current: str = "delete") -> None:
        self.answers = {"wal": wal, "delete": delete, None: current}
        self.asked: list[str] = []

    def execute(self, sql: str) -> Any:
        squeezed = sql.lower().replace(" ", "").rstrip(";")
        self.asked.append(squeezed)
        answer = self.answers[squeezed.partition("journal_mode=")[2] or None]
        if isinstance(answer, Exception):
            raise answer
        return types.SimpleNamespace(fetchone=lambda: (answer,))


def test_module_names_are_there_in_their_forms() -> None:
    assert hermes_state.SCHEMA_VERSION == 11
    assert isinstance(hermes_state.DEFAULT_DB_PATH, Path)
    assert hermes_state.DEFAULT_DB_PATH.name == "state.db"
    assert hermes_state.sqlite3 is sqlite3
    assert isinstance(hermes_state._wal_fallback_warned_paths, set)
    assert isinstance(SessionDB, type)
    assert type(SessionDB) is type
    assert all(
        isinstance(getattr(hermes_state, name), str) for name in ("SCHEMA_SQL", "FTS_SQL", "FTS_TRIGRAM_SQL")
    )


def test_the_schema_scripts_make_the_tables_in_any_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "plain.db")) as conn:
        for _ in range(2):
            conn.executescript(hermes_state.SCHEMA_SQL)
            conn.executescript(hermes_state.FTS_SQL)
            conn.executescript(hermes_state.FTS_TRIGRAM_SQL)
        conn.execute("INSERT INTO sessions(id, source, started_at) VALUES ('s', 'cli', 1)")
        conn.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', 'hello', 1)"
        )
        for table in ("messages_fts", "messages_fts_trigram"):
            assert conn.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH 'hello'").fetchall() == [(1,)]
        columns = [row[1] for row in conn.execute("PRAGMA table_info(sessions)")]
        assert columns[-3:] == ["handoff_state", "handoff_platform", "handoff_error"]
        assert len(columns) == 30
        assert len(conn.execute("PRAGMA table_info(messages)").fetchall()) == 15


def test_parse_schema_columns_reads_the_schema() -> None:
    parsed = SessionDB._parse_schema_columns(hermes_state.SCHEMA_SQL)
    assert set(parsed) >= {"sessions", "messages", "state_meta", "schema_version"}
    assert list(parsed["sessions"])[:2] == ["id", "source"]
    assert "FOREIGN" not in parsed["sessions"]
    assert "DEFAULT 0" in parsed["sessions"]["message_count"]
    own = SessionDB._parse_schema_columns(
        "CREATE TABLE IF NOT EXISTS t (a TEXT, b INTEGER DEFAULT (1 + 2), PRIMARY KEY (a));"
    )
    assert list(own["t"]) == ["a", "b"]


def test_wal_is_set_on_other_programs_databases(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as conn:
        assert hermes_state.apply_wal_with_fallback(conn) == "wal"
        assert hermes_state.apply_wal_with_fallback(conn, db_label="other.db") == "wal"
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("words", ["locking protocol", "not authorized", "LOCKING PROTOCOL (5)"])
def test_a_refusal_is_delete_mode_and_one_warning_a_label(
    words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hermes_state")
    for label in ("kanban.db", "kanban.db", "second.db"):
        conn = Pragma(sqlite3.OperationalError(words))
        assert hermes_state.apply_wal_with_fallback(conn, db_label=label) == "delete"
        assert conn.asked[-1] == "pragmajournal_mode=delete"
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "kanban.db" in warnings[0]
    assert "second.db" in warnings[1]
    assert all("journal_mode=DELETE" in text for text in warnings)
    assert hermes_state._wal_fallback_warned_paths == {"kanban.db", "second.db"}


def test_another_answer_is_a_fallback_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="hermes_state")
    assert hermes_state.apply_wal_with_fallback(Pragma("delete"), db_label="odd.db") == "delete"
    assert [record.name for record in caplog.records] == ["hermes_state"]


def test_other_errors_are_raised_and_wal_is_never_switched_down() -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such thing"):
        hermes_state.apply_wal_with_fallback(Pragma(sqlite3.OperationalError("no such thing")))
    conn = Pragma(sqlite3.OperationalError("locking protocol"), current="wal")
    with pytest.raises(sqlite3.OperationalError, match="locking protocol"):
        hermes_state.apply_wal_with_fallback(conn)
    assert "pragmajournal_mode=delete" not in conn.asked
    both = Pragma(sqlite3.OperationalError("locking protocol"), sqlite3.OperationalError("really locked"))
    with pytest.raises(sqlite3.OperationalError):
        hermes_state.apply_wal_with_fallback(both)


def test_the_words_for_a_store_that_is_not_there() -> None:
    assert hermes_state.format_session_db_unavailable() == "Session database not available."
    assert hermes_state.format_session_db_unavailable(prefix="No store") == "No store."
    hermes_state._set_last_init_error("OperationalError: disk full")
    assert (
        hermes_state.format_session_db_unavailable()
        == "Session database not available: OperationalError: disk full."
    )
    hermes_state._set_last_init_error("OperationalError: locking protocol")
    assert hermes_state.format_session_db_unavailable("X") == (
        "X: OperationalError: locking protocol"
        " (state.db may be on NFS/SMB/FUSE — see https://www.sqlite.org/wal.html)."
    )


def test_a_failed_open_is_remembered_and_a_later_success_does_not_clear_it(
    db_path: Path, tmp_path: Path
) -> None:
    assert hermes_state.get_last_init_error() is None
    folder = tmp_path / "a folder.db"
    folder.mkdir()
    with pytest.raises(sqlite3.OperationalError) as caught:
        SessionDB(folder)
    assert hermes_state.get_last_init_error() == f"{type(caught.value).__name__}: {caught.value}"
    SessionDB(db_path).close()
    assert "unable to open" in str(hermes_state.get_last_init_error())


def test_a_connect_that_fails_in_both_modes_fails_the_store_with_that_very_error(
    monkeypatch: pytest.MonkeyPatch, db_path: Path
) -> None:
    error = sqlite3.OperationalError("locking protocol")

    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> Any:
            if "journal_mode" in sql:
                raise error
            return super().execute(sql, *args)

    real = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr("hermes_state.sqlite3.connect", lambda *a, **k: real(*a, **{**k, "factory": Refusing}))
        with pytest.raises(sqlite3.OperationalError, match="locking protocol"):
            SessionDB(db_path=db_path)
    assert str(hermes_state.get_last_init_error()).endswith("OperationalError: locking protocol")
    assert "NFS/SMB/FUSE" in hermes_state.format_session_db_unavailable()
    with SessionDB(db_path) as works:
        works.create_session("s", "cli")


def test_a_connect_that_cannot_connect_fails_the_store(
    monkeypatch: pytest.MonkeyPatch, db_path: Path
) -> None:
    def connect(*_args: Any, **_kwargs: Any) -> Any:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr("hermes_state.sqlite3.connect", connect)
        with pytest.raises(sqlite3.OperationalError, match="unable to open") as caught:
            SessionDB(db_path)
    assert hermes_state.get_last_init_error() == f"{type(caught.value).__name__}: {caught.value}"


def used(path: Path) -> bool:
    with SessionDB() as db:
        db.create_session("s", "cli")
        return db.db_path == path and path.exists()


def test_the_default_is_in_hermes_home_at_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "one" / "deep"))
    assert used(tmp_path / "one" / "deep" / "state.db")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "two"))
    assert used(tmp_path / "two" / "state.db")
    monkeypatch.delenv("HERMES_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert used(tmp_path / "user" / ".hermes" / "state.db")


def test_hermes_constants_has_the_first_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = types.ModuleType("hermes_constants")
    constants.get_hermes_home = lambda: tmp_path / "said"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hermes_constants", constants)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "not this"))
    assert used(tmp_path / "said" / "state.db")
    constants.get_hermes_home = lambda: str(tmp_path / "text")  # type: ignore[attr-defined]
    assert used(tmp_path / "text" / "state.db")


def test_a_re_pointed_default_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "not this"))
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", tmp_path / "pointed" / "my.db")
    assert used(tmp_path / "pointed" / "my.db")
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", str(tmp_path / "text" / "my.db"))
    assert used(tmp_path / "text" / "my.db")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_text_or_path_and_folders_are_made(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.db"
    with SessionDB(db_path=kind(path)) as db:
        assert db.db_path == path
        assert isinstance(db.db_path, Path)
    assert path.exists()


def test_a_path_of_another_kind_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        SessionDB(5)  # type: ignore[arg-type]


def test_a_newer_stamp_and_unknown_columns_stay(db_path: Path) -> None:
    with SessionDB(db_path) as db:
        db.create_session("s", "cli")
    with closing(sqlite3.connect(db_path)) as conn, conn:
        conn.execute("UPDATE schema_version SET version = 17")
        conn.execute("ALTER TABLE messages ADD COLUMN of_tomorrow TEXT DEFAULT 'x'")
        conn.execute("ALTER TABLE sessions ADD COLUMN other INTEGER")
    with SessionDB(db_path) as db:
        db.append_message("s", "user", "docker")
        assert db.get_messages("s")[0]["of_tomorrow"] == "x"
        assert db.get_session("s")["other"] is None
        assert len(db.search_messages("docker")) == 1
        db.replace_messages("s", db.get_messages("s"))
        assert db.get_messages("s")[0]["of_tomorrow"] == "x"
        assert db._conn.execute("SELECT version FROM schema_version").fetchall()[0][0] == 17


def test_the_file_has_what_the_contract_lists_and_nothing_a_stock_sqlite_cannot_run(db_path: Path) -> None:
    with SessionDB(db_path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "docker")
    with closing(sqlite3.connect(db_path)) as conn:
        names = {row[0]: row[1] for row in conn.execute("SELECT name, type FROM sqlite_master")}
        triggers = {name for name, kind in names.items() if kind == "trigger"}
        assert triggers == {
            f"{table}_{event}"
            for table in ("messages_fts", "messages_fts_trigram")
            for event in ("insert", "delete", "update")
        }
        indexes = {name for name, kind in names.items() if kind == "index" and not name.startswith("sqlite_")}
        assert {name for name in indexes if not name.startswith("hs_")} == {
            "idx_sessions_source",
            "idx_sessions_parent",
            "idx_sessions_started",
            "idx_sessions_title_unique",
            "idx_messages_session",
        }
        known = ("sessions", "messages", "state_meta", "schema_version", "sqlite_", "hs_")
        assert [n for n, kind in names.items() if kind == "table" and not n.startswith(known)] == []
        assert conn.execute("SELECT version FROM schema_version").fetchall() == [(11,)]
        keys = [row[0] for row in conn.execute("SELECT key FROM state_meta")]
        assert [key for key in keys if not key.startswith("hermes_state.")] == []
        conn.execute("UPDATE messages SET content = 'kubernetes'")
        assert conn.execute(
            "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'kubernetes'"
        ).fetchone() == (1,)
