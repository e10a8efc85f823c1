"""A database made by somebody else opens, or is refused by a typed error; nothing of it runs or hangs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hermes_state
from hermes_state import SessionDB, errors

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
EXAMPLES = int(os.environ.get("HERMES_STATE_FUZZ_EXAMPLES", "40"))


def use(path: Path) -> None:
    """Open and use the file in every way that reads it, and some that write."""
    with SessionDB(path) as db:
        ids = [s["id"] for s in db.search_sessions(limit=50)]
        db.list_sessions_rich(limit=20, order_by_last_active=True)
        for session_id in ids[:5]:
            db.get_messages(session_id)
            db.get_messages_as_conversation(session_id, include_ancestors=True)
            db.get_compression_tip(session_id)
            db.resolve_resume_session_id(session_id)
            db.export_session(session_id)
        for query in ("hello", "中文", "的", '"a b" NOT c*'):
            db.search_messages(query)
        db.ensure_session("ours", "cli")
        message_id = db.append_message("ours", "user", "written by us")
        assert [m["id"] for m in db.get_messages("ours")][-1] == message_id


def survives(path: Path, work: Callable[[Path], Any] = use) -> None:
    """``work(path)`` ends, by itself or by a typed error."""
    # A stdlib error that is none of ours is the anchor's, which SessionDB passes on as it comes.
    with suppress(errors.HermesStateError, sqlite3.Error):
        work(path)


mutations = st.lists(
    st.tuples(
        st.integers(0, 2**20),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from(
                [b"\x00" * 64, b"\xff" * 64, b"\x0d", b"\x05", b"\x02", b"\x0a", b"\x7f\xff\xff\xff"]
            ),
        ),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(version=st.integers(1, 11), changes=mutations, cut=st.one_of(st.none(), st.integers(0, 2**17)))
def test_mutated_files_open_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, version: int, changes: list[tuple[int, bytes]], cut: int | None
) -> None:
    data = bytearray((FIXTURES / f"v{version}.db").read_bytes())
    for at, piece in changes:
        start = at % len(data)
        data[start : start + len(piece)] = piece[: len(data) - start]
    if cut is not None:
        del data[cut % len(data) :]
    folder = tmp_path_factory.mktemp("mutated")
    path = folder / "state.db"
    path.write_bytes(data)
    report = hermes_state.check_file(path)
    assert report["verdict"]
    survives(path, lambda p: hermes_state.salvage(p, folder / "salvaged.db"))
    assert path.read_bytes() == bytes(data), "checking and salvaging only read"
    if (folder / "salvaged.db").exists():
        assert hermes_state.check_file(folder / "salvaged.db")["ok"]
    survives(path)
    survives(path, repair)


def repair(path: Path) -> None:
    with SessionDB(path) as db:
        db.repair(remove_orphans=True)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=3000), head=st.sampled_from([b"", b"SQLite format 3\x00"]))
def test_arbitrary_bytes_are_refused_and_left_alone(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, head: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "state.db"
    path.write_bytes(head + data)
    hermes_state.check_file(path)
    survives(path)
    if data or head:
        assert path.read_bytes()[: len(head + data)] == head + data


def prepared(path: Path, *statements: str) -> Path:
    """A store with two sessions and a few messages, changed by the statements with triggers and keys off."""
    with SessionDB(path) as db:
        for session_id in ("a", "b"):
            db.create_session(session_id, "cli")
            db.append_messages(session_id, [{"role": "user", "content": f"hello {i} 中文"} for i in range(5)])
    conn = apsw.Connection(str(path))
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    for sql in statements:
        conn.execute(sql)
    conn.close()
    return path


def test_a_foreign_trigger_does_not_run_on_our_writes(tmp_path: Path) -> None:
    path = prepared(
        tmp_path / "state.db",
        "CREATE TABLE loot(t)",
        "CREATE TRIGGER steal AFTER INSERT ON messages BEGIN INSERT INTO loot VALUES (new.content);"
        " DELETE FROM sessions; END",
        "CREATE TRIGGER lose AFTER UPDATE ON sessions BEGIN DELETE FROM messages; END",
        "CREATE TRIGGER undo BEFORE DELETE ON messages BEGIN SELECT RAISE(IGNORE); END",
    )
    with SessionDB(path) as db:
        db.append_message("a", "user", "a secret")
        db.append_messages("a", [{"role": "user", "content": "another"}])
        db.end_session("b", "done")
        db.delete_session("b")
        assert db.session_count() == 1
        assert db.message_count("a") == 7
        assert db._conn.execute("SELECT count(*) FROM loot").fetchone()[0] == 0
        assert db._conn.execute("SELECT count(*) FROM messages WHERE session_id = 'b'").fetchone()[0] == 0


@pytest.mark.parametrize("table", ["messages", "sessions", "state_meta", "schema_version"])
def test_a_view_in_the_place_of_a_table_is_refused(tmp_path: Path, table: str) -> None:
    path = prepared(
        tmp_path / "state.db",
        f"ALTER TABLE {table} RENAME TO real_{table}",
        f"CREATE VIEW {table} AS SELECT * FROM real_{table}",
    )
    with pytest.raises(sqlite3.Error):
        use(path)


def test_a_generated_column_that_calls_a_dangerous_function_does_not_run(tmp_path: Path) -> None:
    path = prepared(
        tmp_path / "state.db",
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'title TEXT',"
        " 'title TEXT, evil TEXT GENERATED ALWAYS AS (load_extension(''x'')) VIRTUAL')"
        " WHERE name = 'sessions'",
    )
    with pytest.raises(sqlite3.Error, match=r"unsafe use|malformed"):
        use(path)
    assert hermes_state.check_file(path)["verdict"] == "unreadable"


def test_cyclic_and_endless_parents_end(tmp_path: Path) -> None:
    path = prepared(
        tmp_path / "state.db",
        "PRAGMA foreign_keys=OFF",
        "UPDATE sessions SET ended_at = 1, end_reason = 'compression'",
        "UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'",
        "UPDATE sessions SET parent_session_id = 'a' WHERE id = 'b'",
        "INSERT INTO sessions(id, source, started_at, parent_session_id) VALUES ('self', 'x', 1, 'self')",
    )
    use(path)


def test_malformed_text_costs_its_row_nothing_else(tmp_path: Path) -> None:
    path = prepared(
        tmp_path / "state.db",
        "UPDATE messages SET content = CAST(x'fffe00c328' AS TEXT) WHERE id = 1",
        "UPDATE messages SET tool_calls = CAST(x'5bff' AS TEXT) WHERE id = 1",
        "UPDATE sessions SET title = CAST(x'c328' AS TEXT), model = x'ff' WHERE id = 'a'",
        "UPDATE sessions SET message_count = 'many' WHERE id = 'a'",
        "INSERT INTO sessions(id, source, started_at) VALUES (CAST(x'ff61' AS TEXT), 'cli', 'yesterday')",
    )
    use(path)
    with SessionDB(path) as db:
        assert len(db.get_messages("a")) == 5


def test_a_schema_that_is_not_utf8_is_refused_and_its_rows_are_salvaged(tmp_path: Path) -> None:
    path = prepared(tmp_path / "state.db")
    # The name of a column in the CREATE TABLE text of sessions, and in copies of it on pages that are free.
    path.write_bytes(path.read_bytes().replace(b"cost_status TEXT", b"\x80ost_status TEXT"))
    assert hermes_state.check_file(path)["verdict"] == "unreadable"
    with pytest.raises(errors.StoreCorruptError, match="malformed"):
        SessionDB(path)
    told = hermes_state.salvage(path, tmp_path / "salvaged.db")
    assert (told["sessions"], told["messages"]) == (2, 10)
    assert hermes_state.check_file(tmp_path / "salvaged.db")["ok"]


def test_a_schema_for_which_sqlite_finds_no_memory_is_told_by_a_typed_error(tmp_path: Path) -> None:
    data = bytearray((FIXTURES / "v3.db").read_bytes())
    # In the middle of the schema's text: SQLite 3.40 then finds "out of memory", 3.54 "malformed".
    data[8275 : 8275 + 64] = b"\xff" * 64
    path = tmp_path / "state.db"
    path.write_bytes(data)
    with pytest.raises(errors.StoreCorruptError, match="malformed"):
        SessionDB(path)
    assert path.read_bytes() == bytes(data)


def test_gigantic_numbers_and_values_are_read(tmp_path: Path) -> None:
    path = prepared(
        tmp_path / "state.db",
        "UPDATE sessions SET message_count = 9223372036854775807, tool_call_count = -9223372036854775808,"
        " input_tokens = 9e999, started_at = 1e308 WHERE id = 'a'",
        "UPDATE messages SET content = zeroblob(20000000), timestamp = -9e999 WHERE id = 2",
        "UPDATE messages SET tool_calls = zeroblob(1000000) WHERE id = 3",
        "UPDATE sqlite_sequence SET seq = 9223372036854775000",
    )
    use(path)


def test_the_last_id_of_all_is_a_typed_error_and_harms_nothing(tmp_path: Path) -> None:
    path = prepared(tmp_path / "state.db", "UPDATE sqlite_sequence SET seq = 9223372036854775807")
    with SessionDB(path) as db:
        with pytest.raises(errors.StoreOperationalError):
            db.append_message("a", "user", "one too many")
        assert db.message_count("a") == 5
        assert len(db.get_messages("b")) == 5


@pytest.mark.parametrize("depth", [900, 5_000, 200_000])
def test_deep_json_is_read_and_searched(tmp_path: Path, depth: int) -> None:
    path = prepared(tmp_path / "state.db")
    deep = "[" * depth + "]" * depth
    conn = apsw.Connection(str(path))
    conn.execute("UPDATE messages SET content = ?, tool_calls = ? WHERE id = 1", ("\x00json:" + deep, deep))
    conn.close()
    with SessionDB(path) as db:
        assert len(db.get_messages("a")) == 5
        assert len(db.search_messages("hello", limit=-1)) >= 9
        assert db.export_session("a") is not None
        db.repair()
        assert db.message_count("a") == 5


@pytest.mark.parametrize(
    "query",
    [
        "word " * 4000,
        "x" * 1_000_000,
        '"' * 10_000,
        "的" * 50_000,
        "a OR " * 5000 + "b",
        "(" * 5000,
        "NOT " * 5000,
    ],
    ids=["words", "one word", "quotes", "ideographs", "ors", "brackets", "nots"],
)
def test_an_enormous_query_is_answered_and_its_answer_is_bounded(tmp_path: Path, query: str) -> None:
    path = prepared(tmp_path / "state.db")
    with SessionDB(path) as db:
        db.append_message("a", "user", "b " + "z" * 2_000_000 + " hello")
        for hit in db.search_messages(query, limit=5):
            assert len(hit["snippet"]) < 5_000
        (hit,) = db.search_messages("hello", limit=1, sort="newest")
        assert len(hit["snippet"]) < 5_000
        assert all(len(part["content"]) <= 200 for part in hit["context"])


def test_a_foreign_full_text_table_under_our_name_is_made_anew(tmp_path: Path) -> None:
    path = prepared(
        tmp_path / "state.db",
        "DROP TABLE messages_fts",
        "CREATE TABLE messages_fts(content)",
    )
    survives(path)
