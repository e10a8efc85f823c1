"""Entries of deleted messages: listed with the deletion, never found, removed in steps."""

from __future__ import annotations

import json
from typing import Any

import apsw
import pytest
from search_store import add, hits, index, set_triggers, store

from hermes_state.search import forgetting, health, indexing, run, tables

FTS, TRIGRAM, WORDS = tables.FTS, tables.TRIGRAM, tables.WORDS
MIXED = "修改youer服务端 docker"


def delete(conn: apsw.Connection, *ids: int) -> None:
    """Delete messages as a deletion in the background mode does."""
    forgetting.defer(conn, ids)
    conn.execute("DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),))


def lists(conn: apsw.Connection) -> dict[str, Any]:
    sql = "SELECT key, value FROM state_meta WHERE key GLOB 'hermes_state.forget.*' ORDER BY key"
    return dict(conn.execute(sql).fetchall())


def entries(conn: apsw.Connection) -> dict[str, list[int]]:
    return {
        table: [row_id for (row_id,) in conn.execute(f"SELECT id FROM {table}_docsize ORDER BY id")]
        for table in (FTS, TRIGRAM, WORDS)
    }


def sound(conn: apsw.Connection) -> None:
    for table in (FTS, TRIGRAM, WORDS):
        conn.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")


def drain(conn: apsw.Connection, rows: int = 100) -> None:
    while forgetting.step(conn, rows):
        pass


def test_a_deletion_lists_its_ids_and_the_entries_leave_every_table_later() -> None:
    conn = store()
    ids = [add(conn, MIXED) for _ in range(5)]
    index(conn)
    delete(conn, ids[1], ids[3])
    assert lists(conn) == {f"hermes_state.forget.{ids[1]}": json.dumps([2, 4], separators=(",", ":"))}
    assert entries(conn) == dict.fromkeys((FTS, TRIGRAM, WORDS), ids)
    assert not forgetting.complete(conn)
    assert forgetting.count(conn) == 2
    assert forgetting.step(conn, 1) == 1
    assert forgetting.count(conn) == 1
    assert forgetting.step(conn, 10) == 1
    assert forgetting.step(conn, 10) == 0
    assert forgetting.complete(conn)
    assert lists(conn) == {}
    assert entries(conn) == {table: [1, 3, 5] for table in (FTS, TRIGRAM, WORDS)}
    sound(conn)


def test_no_route_of_a_search_finds_an_entry_without_its_message() -> None:
    conn = store()
    ids = [add(conn, f"{MIXED} word{n % 2} 广西", timestamp=float(n)) for n in range(30)]
    index(conn)
    gone = ids[::3]
    delete(conn, *gone)
    left = sorted(set(ids) - set(gone))
    for query in (
        "docker",
        "youer",
        "广西",
        "西",
        "服务端",
        "docker 广西",
        "docker OR 广西",
        "dock*",
        '"youer"',
    ):
        for order in ({}, {"sort": "newest"}, {"sort": "oldest"}, {"role_filter": ["user"]}, {"since": 0.0}):
            assert sorted(hits(conn, query, **order)) == left, (query, order)
    assert sorted(hits(conn, "youe", match="substring")) == left
    assert sorted(hits(conn, "docker NOT word1")) == [i for i in left if i % 2]
    assert len(hits(conn, "docker", per_session=4)) == 4


def test_pages_of_hits_have_no_gap_and_no_double_where_entries_wait_to_be_removed() -> None:
    conn = store()
    ids = [add(conn, "docker " * (n % 7 + 1)) for n in range(60)]
    index(conn)
    delete(conn, *[i for i in ids if i % 7 in (0, 3) or i < 9])
    left = sorted(set(ids) - {i for i in ids if i % 7 in (0, 3) or i < 9})
    pages = [hits(conn, "docker", limit=5, offset=offset) for offset in range(0, 60, 5)]
    assert sorted(i for page in pages for i in page) == left
    found: list[int] = []
    cursor = None
    while True:
        page = run.search_page(conn, "docker", limit=5, cursor=cursor)
        found += [hit["id"] for hit in page.hits]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == left


def test_rows_that_never_were_indexed_leave_the_list_without_a_trace() -> None:
    conn = store()
    first = add(conn, "docker")
    index(conn)
    second = add(conn, "docker")
    delete(conn, first, second)
    assert indexing.pending(conn) is False
    drain(conn)
    assert entries(conn) == {table: [] for table in (FTS, TRIGRAM, WORDS)}
    sound(conn)


def test_an_id_that_is_given_again_is_settled_before_its_new_text_is_indexed() -> None:
    for above in (False, True):
        conn = store(triggers=True)
        kept, gone = add(conn, "kept docker"), add(conn, "oldtext docker")
        set_triggers(conn, False)
        if not above:
            index(conn)
        delete(conn, gone)
        add(conn, "newtext docker", row_id=gone)
        forgetting.settle(conn, [gone])
        assert lists(conn) == {}
        indexing.index_rows(conn, [gone])
        index(conn)
        assert hits(conn, "oldtext") == []
        assert hits(conn, "newtext") == [gone]
        assert sorted(hits(conn, "docker")) == [kept, gone]
        sound(conn)


def test_a_message_that_stands_under_a_listed_id_is_indexed_anew_by_the_step() -> None:
    conn = store()
    gone = add(conn, "oldtext")
    add(conn, "other")
    index(conn)
    delete(conn, gone)
    add(conn, "newtext", row_id=gone)
    drain(conn)
    assert hits(conn, "newtext") == [gone]
    assert hits(conn, "oldtext") == []
    sound(conn)


def test_a_program_whose_triggers_insert_a_listed_id_fails_and_changes_nothing() -> None:
    conn = store()
    gone = add(conn, "oldtext")
    index(conn)
    delete(conn, gone)
    set_triggers(conn, True)
    with pytest.raises(apsw.ConstraintError):
        add(conn, "newtext", row_id=gone)
    set_triggers(conn, False)
    drain(conn)
    set_triggers(conn, True)
    add(conn, "newtext", row_id=gone)
    assert hits(conn, "newtext") == [gone]
    sound(conn)


def test_an_id_that_is_deleted_twice_is_listed_once() -> None:
    conn = store()
    gone = add(conn, "first")
    index(conn)
    delete(conn, gone)
    add(conn, "second", row_id=gone)
    delete(conn, gone)
    assert forgetting.count(conn) == 1
    drain(conn)
    assert entries(conn)[FTS] == []
    sound(conn)


def test_a_step_is_bounded_by_rows_and_by_bytes_and_takes_one_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgetting, "STEP_BYTES", 100)
    conn = store()
    ids = [add(conn, text) for text in ("x" * 1000, "x" * 1000, "y" * 30, "y" * 30, "y" * 30)]
    index(conn)
    delete(conn, *ids)
    assert [forgetting.step(conn, 2) for _ in range(5)] == [1, 1, 2, 1, 0]


def test_a_long_list_has_rows_of_bounded_length() -> None:
    conn = store()
    ids = [add(conn, "x") for _ in range(600)]
    index(conn)
    delete(conn, *ids)
    assert sorted(len(json.loads(value)) for value in lists(conn).values()) == [88, 256, 256]
    assert forgetting.step(conn, 300) == 300
    assert forgetting.count(conn) == 300
    drain(conn)
    assert lists(conn) == {}


def test_what_another_program_broke_in_the_list_stops_nothing_and_goes() -> None:
    conn = store()
    gone = add(conn, "docker")
    index(conn)
    delete(conn, gone)
    for number, value in enumerate(["[", "null", '["a", 1.5, {"b": 1}, [2]]', None, b"\xff\x00", "", "{}"]):
        tables.set_meta(conn, f"hermes_state.forget.x{number}", value)  # type: ignore[arg-type]
    conn.execute("UPDATE state_meta SET value = ? WHERE key = ?", ("[1, null", f"hermes_state.forget.{gone}"))
    delete(conn, gone)
    assert forgetting.count(conn) == 1
    drain(conn)
    assert lists(conn) == {}
    assert forgetting.complete(conn)
    assert entries(conn)[FTS] == []


def test_other_keys_of_the_table_are_left_alone() -> None:
    conn = store()
    gone = add(conn, "docker")
    index(conn)
    for key in ("hermes_state.forget", "hermes_state.forget/", "hermes_state.forgets", "k"):
        tables.set_meta(conn, key, "[1]")
    delete(conn, gone)
    drain(conn)
    tables.clear_forget(conn)
    kept = {key for (key,) in conn.execute("SELECT key FROM state_meta")}
    assert {"hermes_state.forget", "hermes_state.forget/", "hermes_state.forgets", "k"} <= kept


def test_a_listed_entry_is_no_surplus_and_one_that_is_not_listed_is() -> None:
    conn = store()
    ids = [add(conn, MIXED) for _ in range(4)]
    index(conn)
    delete(conn, ids[0])
    conn.execute("DELETE FROM messages WHERE id = ?", (ids[2],))
    for table in (FTS, TRIGRAM, WORDS):
        assert health.surplus(conn, table, 0)[2] == [ids[2]]


def test_emptying_the_tables_empties_the_list() -> None:
    conn = store()
    ids = [add(conn, "docker") for _ in range(3)]
    index(conn)
    delete(conn, ids[0])
    indexing.reset(conn)
    assert lists(conn) == {}
    index(conn)
    assert hits(conn, "docker") == ids[1:]


def test_without_full_text_tables_nothing_is_listed() -> None:
    conn = store()
    gone = add(conn, "docker")
    for table in (FTS, TRIGRAM, WORDS):
        conn.execute(f"DROP TABLE {table}")
    delete(conn, gone)
    assert lists(conn) == {}
    assert forgetting.step(conn, 10) == 0
    assert forgetting.complete(conn)


def test_text_with_a_nul_that_an_older_sqlite_indexed_leaves_the_trigram_table_after_its_message() -> None:
    conn = store()
    row_id = add(conn, [{"type": "text", "text": "docker"}])
    index(conn)
    # As SQLite 3.40 leaves it: the text whole, its tokens only up to the NUL.
    conn.execute(f"DELETE FROM {TRIGRAM} WHERE rowid = ?", (row_id,))
    conn.execute(f"INSERT INTO {TRIGRAM}(rowid, content) VALUES (?, 'before')", (row_id,))
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    conn.execute(f"UPDATE {TRIGRAM}_content SET c0 = 'before' || char(0) || 'behind' WHERE id = ?", (row_id,))
    delete(conn, row_id)
    drain(conn)
    assert entries(conn)[TRIGRAM] == []
    sound(conn)
