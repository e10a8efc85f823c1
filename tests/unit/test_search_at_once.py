"""Index steps of one statement: they do what the ordinary step does, or nothing."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_store import add, hits, index, indexed_text, set_triggers, store

from hermes_state.search import at_once, indexing, tables

FTS, TRIGRAM, WORDS = tables.FTS, tables.TRIGRAM, tables.WORDS
BYTES = indexing.STEP_BYTES


def prepared(path: Path | None = None, *, triggers: bool = False) -> apsw.Connection:
    conn = store(path, triggers=triggers)
    at_once.prepare_steps(conn)
    return conn


def step(conn: apsw.Connection, ticket: int, rows: int = 100, most: int = BYTES) -> tuple[int, int]:
    at_once.step(conn, ticket, rows, most)
    return at_once.taken(conn, ticket)


def held(conn: apsw.Connection) -> dict[str, list[tuple[int, str]]]:
    """What each table holds, and the watermark."""
    found = {
        table: conn.execute(f"SELECT rowid, content FROM {table} ORDER BY rowid").fetchall()
        for table in (FTS, TRIGRAM, WORDS)
    }
    for table in found:
        conn.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
    return {**found, "watermark": [(tables.watermark(conn), "")]}


def test_plain_rows_are_indexed_to_the_byte_as_by_the_ordinary_step() -> None:
    ours, ordinary = prepared(), store()
    for conn in (ours, ordinary):
        for number in range(5):
            add(conn, f"docker {number}", "tool", '[{"a": 1}]' if number % 2 else None)
        add(conn, None)
    assert step(ours, 1) == (6, 6)
    index(ordinary)
    assert held(ours) == held(ordinary)
    assert not indexing.pending(ours)
    assert step(ours, 2) == (0, 0)


def test_a_step_is_bounded_by_rows_and_by_bytes_and_takes_one_row_at_least() -> None:
    conn = prepared()
    for size in (1000, 1000, 40, 40, 40):
        add(conn, "x" * size)
    assert [step(conn, ticket, 100, 100) for ticket in (1, 2, 3)] == [(1, 1), (1, 1), (3, 3)]
    for _ in range(3):
        add(conn, "y")
    assert [step(conn, ticket, 2) for ticket in (5, 6, 7)] == [(2, 2), (1, 1), (0, 0)]


@pytest.mark.parametrize("other", ["中文", "é", "a\x00b", "x" * 2_000_000])
def test_a_row_that_is_not_plain_ends_the_step_before_it(other: str) -> None:
    conn = prepared()
    for _ in range(at_once.FEW_ROWS):
        add(conn, "docker")
    last = at_once.FEW_ROWS
    add(conn, other)
    add(conn, "after")
    assert step(conn, 1, 100, 10**8) == (last, last + 2)
    assert tables.watermark(conn) == last
    assert step(conn, 2, 100, 10**8) == (0, 2)
    index(conn)
    assert hits(conn, "after") == [last + 2]


def test_a_few_plain_rows_before_others_are_left_to_the_ordinary_step() -> None:
    conn = prepared()
    add(conn, "docker")
    add(conn, "中文")
    assert step(conn, 1) == (0, 2)
    assert tables.watermark(conn) == 0
    assert indexed_text(conn, FTS, 1) is None


def test_rows_that_triggers_indexed_are_passed_over() -> None:
    conn = prepared(triggers=True)
    first = add(conn, "docker")
    set_triggers(conn, False)
    second = add(conn, "docker")
    assert step(conn, 1) == (2, 2)
    assert hits(conn, "docker") == [first, second]
    assert [len(held(conn)[table]) for table in (FTS, TRIGRAM)] == [2, 2]


def test_in_unspaced_mode_plain_rows_stay_out_of_the_trigram_table() -> None:
    conn = prepared()
    indexing.set_trigram_mode(conn, "unspaced")
    row_id = add(conn, "docker")
    assert step(conn, 1) == (1, 1)
    assert indexed_text(conn, FTS, row_id) == "docker  "
    assert indexed_text(conn, TRIGRAM, row_id) is None


def test_in_unspaced_mode_a_row_that_must_leave_the_trigram_table_is_left_to_the_ordinary_step() -> None:
    conn = prepared(triggers=True)
    row_id = add(conn, "docker")
    set_triggers(conn, False)
    indexing.set_trigram_mode(conn, "unspaced")
    assert step(conn, 1) == (0, 1)
    index(conn)
    assert indexed_text(conn, TRIGRAM, row_id) is None


def test_a_row_that_stands_in_the_words_table_is_left_to_the_ordinary_step() -> None:
    conn = prepared()
    row_id = add(conn, "docker中文")
    index(conn)
    assert indexed_text(conn, WORDS, row_id) is not None
    conn.execute("UPDATE messages SET content = 'plain now' WHERE id = ?", (row_id,))
    indexing.reindex(conn)
    assert step(conn, 1) == (0, 1)
    index(conn)
    assert indexed_text(conn, WORDS, row_id) is None


def test_without_a_table_nothing_is_done() -> None:
    conn = prepared()
    add(conn, "docker")
    conn.execute("DROP TABLE messages_fts_trigram")
    with pytest.raises(apsw.SQLError):
        step(conn, 1)
    assert tables.watermark(conn) == 0
    assert indexed_text(conn, FTS, 1) is None


def test_a_lock_of_another_is_met_at_once_and_nothing_is_done(tmp_path: Path) -> None:
    conn = prepared(tmp_path / "state.db")
    conn.execute("PRAGMA journal_mode=WAL")
    add(conn, "docker")
    other = apsw.Connection(str(tmp_path / "state.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.BusyError):
        step(conn, 1)
    other.execute("ROLLBACK")
    assert step(conn, 1) == (1, 1)
    other.close()


def test_an_error_in_the_middle_leaves_neither_table_nor_watermark_changed() -> None:
    conn = prepared()
    for _ in range(3):
        add(conn, "docker")
    conn.execute("DROP TABLE messages_fts_trigram_content")
    with pytest.raises(apsw.Error):
        step(conn, 1)
    assert conn.execute("SELECT count(*) FROM messages_fts_docsize").fetchone() == (0,)
    assert tables.watermark(conn) == 0
    assert conn.in_transaction is False


TEXT = st.sampled_from(["docker", "a b", "", "é", "中文", "mixed中文", "x" * 300, "\\u4e2d", "日本語 docker"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(TEXT, st.booleans(), st.booleans()), max_size=40), st.sampled_from(["all", "unspaced"])
)
def test_steps_of_both_kinds_in_turn_make_what_ordinary_steps_make(
    rows: list[tuple[str, bool, bool]], mode: str
) -> None:
    """Rows: the text, whether a v11 program stored it, whether it is deleted before it is indexed."""
    ours, ordinary = prepared(), store()
    for conn in (ours, ordinary):
        indexing.set_trigram_mode(conn, mode)
        for text, by_v11, deleted in rows:
            set_triggers(conn, by_v11)
            row_id = add(conn, text, tool_calls="[]" if len(text) % 2 else None)
            if deleted:
                conn.execute("DELETE FROM messages WHERE id = ?", (row_id,))
        set_triggers(conn, False)
    index(ordinary)
    for ticket in range(1, 200):
        plain, looked = step(ours, ticket, 7)
        if not looked:
            break
        if not plain:
            indexing.index_step(ours, 3)
    assert held(ours)[FTS] == held(ordinary)[FTS]
    assert held(ours) == held(ordinary)


def test_a_plain_message_is_indexed_by_its_own_insert() -> None:
    conn = store()
    at_once.prepare_rows(conn)
    add(conn, "docker", None, '[{"a": 1}]')
    assert not indexing.pending(conn)
    assert hits(conn, "docker") == [1]
    assert indexed_text(conn, TRIGRAM, 1) is not None


def test_another_message_stays_above_the_watermark_and_so_do_those_after_it() -> None:
    conn = store()
    at_once.prepare_rows(conn)
    for text in ("docker", "中文", "docker"):
        add(conn, text)
    assert tables.watermark(conn) == 1
    assert indexed_text(conn, FTS, 2) is None
    index(conn)
    assert hits(conn, "docker") == [1, 3]
    assert hits(conn, "中文") == [2]
    held(conn)


def test_in_unspaced_mode_an_insert_leaves_the_trigram_table_alone() -> None:
    conn = store()
    indexing.set_trigram_mode(conn, "unspaced")
    at_once.prepare_rows(conn)
    add(conn, "docker")
    assert indexed_text(conn, TRIGRAM, 1) is None
    assert hits(conn, "docker") == [1]
