"""Rows that a reader fetches in one piece are those that APSW gives, or are left to APSW."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from builds import FETCH
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from hermes_state.engine.fetch import ReadConnection
from hermes_state.store.rows import rows

needs_the_module = pytest.mark.skipif(not FETCH, reason="pure: APSW fetches row by row")
ALL = "SELECT * FROM t ORDER BY rowid"
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(max_codepoint=127), max_size=40),
    st.binary(),
    st.sampled_from(
        ["", "\x00", "a\x00b", "é", "汉字", "😀", "x" * 7, "x" * 8, "x" * 8 + "é", b"", -0.0, 1e400]
    ),
)


@pytest.fixture
def conn() -> Iterator[ReadConnection]:
    made = ReadConnection(":memory:")
    made.execute("CREATE TABLE t(a, b, c)")
    yield made
    made.close()


def _fill(conn: apsw.Connection, values: list[tuple[Any, ...]]) -> None:
    conn.executemany("INSERT INTO t VALUES (?, ?, ?)", values)


def _whole(conn: ReadConnection, sql: str, *params: Any) -> Any:
    """What the second run gives, for which APSW has prepared the statement."""
    conn.execute(sql, params).fetchall()
    assert conn.whole is not None
    return conn.whole(sql, params)


def _exactly(value: Any) -> Any:
    return [(type(cell), repr(cell)) for row in value for cell in row]


@needs_the_module
@given(st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=8))
@settings(deadline=None)
def test_values_come_as_apsw_gives_them_to_the_type_and_bit(values: list[tuple[Any, ...]]) -> None:
    conn = ReadConnection(":memory:")
    try:
        conn.execute("CREATE TABLE t(a, b, c)")
        _fill(conn, values)
        expected = conn.execute(ALL).fetchall()
        names, found = _whole(conn, ALL)
        assert _exactly(found) == _exactly(expected)
        assert names == (("a", "b", "c") if values else ())
    finally:
        conn.close()


@needs_the_module
@given(VALUES, VALUES)
@settings(deadline=None)
def test_parameters_are_bound_as_apsw_binds_them_or_left_to_it(one: Any, two: Any) -> None:
    conn = ReadConnection(":memory:")
    try:
        sql = "SELECT ?, ?2, typeof(?1), typeof(?2), hex(?1)"
        expected = conn.execute(sql, (one, two)).fetchall()
        found = _whole(conn, sql, one, two)
        if isinstance(one, bytes) or isinstance(two, bytes):
            assert found is None
        else:
            assert _exactly(found[1]) == _exactly(expected)
        assert _exactly(rows(conn, sql, (one, two))[1]) == _exactly(expected)
    finally:
        conn.close()


@needs_the_module
def test_a_long_result_comes_whole(conn: ReadConnection) -> None:
    """More than is put by at a time, and one row that is longer than that by itself."""
    values = [(number, "汉" * 5_000, b"x" * number) for number in range(300)] + [(1, "y" * 3_000_000, None)]
    _fill(conn, values)
    assert _whole(conn, ALL)[1] == values


@needs_the_module
@pytest.mark.parametrize(
    "given",
    [(1 << 64,), ("\ud800",), (b"x",), (True,), (), (1, 2), ("x" * (1 << 20 | 1),)],
    ids=["huge", "surrogate", "bytes", "bool", "none", "too many", "long"],
)
def test_what_it_does_not_bind_is_left_to_apsw_with_its_errors(
    conn: ReadConnection, given: tuple[Any, ...]
) -> None:
    sql = "SELECT ? AS x"
    assert _whole(conn, sql, "first") == (("x",), [("first",)])
    assert conn.whole is not None
    assert conn.whole(sql, given) is None
    try:
        expected: Any = conn.execute(sql, given).fetchall()
    except Exception as error:
        with pytest.raises(type(error)):
            rows(conn, sql, given)
    else:
        assert rows(conn, sql, given)[1] == expected
    assert conn.whole(sql, ("after",)) == (("x",), [("after",)])


@needs_the_module
def test_text_that_is_not_utf_8_is_left_to_be_mended(conn: ReadConnection) -> None:
    conn.execute("INSERT INTO t VALUES (CAST(x'ff41' AS TEXT), 'b', 1), ('good', CAST(x'c3' AS TEXT), 2)")
    assert rows(conn, ALL) == (("a", "b", "c"), [("\ufffdA", "b", 1), ("good", "\ufffd", 2)])
    assert conn.whole is not None
    assert conn.whole(ALL, ()) is None
    assert rows(conn, ALL)[1] == [("\ufffdA", "b", 1), ("good", "\ufffd", 2)]


def test_a_column_that_comes_while_a_row_is_being_mended_is_there_too(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("CREATE TABLE t(a); INSERT INTO t VALUES (CAST(x'ff41' AS TEXT))")
    conn = ReadConnection(str(tmp_path / "a.db"))
    add = iter(["ALTER TABLE t ADD COLUMN b DEFAULT 'new'"])

    def mending(_cursor: apsw.Cursor, sql: str, _bindings: Any) -> bool:
        if sql.startswith("WITH q"):
            other.execute(next(add, "SELECT 1"))
        return True

    conn.exec_trace = mending
    assert rows(conn, "SELECT * FROM t") == (("a", "b"), [("\ufffdA", "new")])
    with pytest.raises(apsw.SQLError, match="no such function"):
        rows(conn, "SELECT a, no_such_function(a) FROM t")
    conn.close()
    other.close()


@needs_the_module
def test_a_statement_that_is_unknown_or_half_read_or_writes_is_left_alone(conn: ReadConnection) -> None:
    _fill(conn, [(1, 2, 3), (4, 5, 6)])
    assert conn.whole is not None
    assert conn.whole(ALL, ()) is None
    cursor = conn.execute(ALL)
    assert conn.whole(ALL, ()) is None
    assert cursor.fetchall() == [(1, 2, 3), (4, 5, 6)]
    conn.execute("INSERT INTO t VALUES (7, 8, 9)")
    assert conn.whole("INSERT INTO t VALUES (7, 8, 9)", ()) is None
    assert len(rows(conn, ALL)[1]) == 3


@needs_the_module
def test_columns_that_were_added_are_there(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
    conn = ReadConnection(str(tmp_path / "a.db"))
    assert rows(conn, "SELECT * FROM t") == (("a",), [(1,)])
    other.execute("ALTER TABLE t ADD COLUMN b DEFAULT 'new'")
    for _ in range(3):
        assert rows(conn, "SELECT * FROM t") == (("a", "b"), [(1, "new")])
    other.execute("ALTER TABLE t DROP COLUMN b")
    for _ in range(3):
        assert rows(conn, "SELECT * FROM t") == (("a",), [(1,)])
    conn.close()
    other.close()


@needs_the_module
def test_an_interrupted_statement_raises_what_apsw_raises(conn: ReadConnection) -> None:
    sql = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < ?) SELECT count(*) FROM c"
    assert _whole(conn, sql, 10)[1] == [(10,)]
    conn.set_progress_handler(lambda: True, 1000)
    with pytest.raises(apsw.InterruptError):
        rows(conn, sql, (100_000,))
    conn.set_progress_handler(None)
    assert rows(conn, sql, (11,))[1] == [(11,)]


@needs_the_module
def test_what_a_handler_or_a_function_raises_comes_out(conn: ReadConnection) -> None:
    def fails(value: int) -> int:
        if value > 1:
            raise ZeroDivisionError("from the function")
        return value

    conn.create_scalar_function("fails", fails, 1)
    assert _whole(conn, "SELECT fails(?)", 1)[1] == [(1,)]
    with pytest.raises(ZeroDivisionError, match="from the function"):
        rows(conn, "SELECT fails(?)", (2,))
    assert rows(conn, "SELECT fails(?)", (0,))[1] == [(0,)]


@needs_the_module
def test_an_error_of_sqlite_is_told_by_apsw_in_its_words(conn: ReadConnection) -> None:
    sql = "SELECT json_extract(?, '$')"
    assert _whole(conn, sql, "[1]")[1] == [("[1]",)]
    with pytest.raises(apsw.SQLError, match="malformed JSON"):
        rows(conn, sql, ("[1",))


@needs_the_module
def test_a_file_that_is_locked_is_waited_for_once(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    other = apsw.Connection(path)
    other.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
    conn = ReadConnection(path)
    waits: list[int] = []
    assert rows(conn, "SELECT a FROM t")[1] == [(1,)]
    conn.set_busy_handler(lambda times: waits.append(times) or times < 2)  # type: ignore[func-returns-value]
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(apsw.BusyError, match="database is locked"):
        rows(conn, "SELECT a FROM t")
    assert waits == [0, 1, 2]
    other.execute("COMMIT")
    assert rows(conn, "SELECT a FROM t")[1] == [(1,)]
    conn.close()
    other.close()


@needs_the_module
def test_a_closed_connection_has_nothing_to_fetch_from(conn: ReadConnection) -> None:
    assert _whole(conn, "SELECT 1") == (("1",), [(1,)])
    conn.close()
    assert conn.whole is None


@needs_the_module
def test_reads_of_a_store_come_that_way_and_apsw_only_prepares_them(db_path: Path) -> None:
    with SessionDB(db_path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "汉 text")
        db.get_messages_as_conversation("s")
        (conn,) = db._engine._readers._idle
        before = conn.cache_stats()
        for _ in range(5):
            assert db.get_messages_as_conversation("s") == [{"role": "user", "content": "汉 text"}]
        assert conn.cache_stats() == before


def test_without_the_module_apsw_fetches(conn: ReadConnection) -> None:
    conn.whole = None
    _fill(conn, [(1, "x", None)])
    for _ in range(2):
        assert rows(conn, ALL) == (("a", "b", "c"), [(1, "x", None)])
