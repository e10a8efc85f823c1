"""Keeping the full-text tables: the watermark, single rows, rows that other programs wrote."""

from __future__ import annotations

import apsw
import pytest
from search_store import add, hits, index, indexed_text, set_triggers, store

from hermes_state.search import indexing, tables

FTS, TRIGRAM, WORDS = tables.FTS, tables.TRIGRAM, tables.WORDS


def has(conn: apsw.Connection, row_id: int) -> set[str]:
    return {table for table in (FTS, TRIGRAM, WORDS) if indexed_text(conn, table, row_id) is not None}


def test_rows_are_pending_until_a_step_has_taken_them() -> None:
    conn = store()
    assert not indexing.pending(conn)
    first, second = add(conn, "hello"), add(conn, "docker")
    assert indexing.pending(conn)
    assert indexing.index_step(conn, 1) == 1
    assert has(conn, first) == {FTS, TRIGRAM}
    assert has(conn, second) == set()
    assert indexing.pending(conn)
    assert indexing.index_step(conn, 10) == 1
    assert not indexing.pending(conn)
    assert indexing.index_step(conn, 10) == 0
    assert hits(conn, "docker") == [second]


def test_plain_text_is_indexed_as_v11_writes_it_to_the_byte() -> None:
    rows = [("hello", None, None), (None, None, None), ("é", "tool", '[{"a": "ü"}]'), ("中文", None, None)]
    ours, theirs = store(), store(triggers=True)
    for row in rows:
        row_id = add(ours, *row)
        add(theirs, *row)
        index(ours)
        for table in (FTS, TRIGRAM):
            assert indexed_text(ours, table, row_id) == indexed_text(theirs, table, row_id)


def test_a_step_is_bounded_by_bytes_and_takes_one_row_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "STEP_BYTES", 100)
    conn = store()
    for _ in range(3):
        add(conn, "x" * 1000)
    add(conn, "y" * 40)
    add(conn, "y" * 40)
    assert [indexing.index_step(conn, 10) for _ in range(5)] == [1, 1, 1, 2, 0]


def test_rows_that_triggers_indexed_are_not_indexed_twice() -> None:
    conn = store(triggers=True)
    row_id = add(conn, "docker")
    set_triggers(conn, False)
    index(conn)
    assert conn.execute("SELECT count(*) FROM messages_fts_docsize").fetchone() == (1,)
    assert hits(conn, "docker") == [row_id]
    conn.execute("INSERT INTO messages_fts(messages_fts) VALUES ('integrity-check')")


def test_rows_whose_text_is_not_plain_get_our_text_after_a_trigger_wrote_its_own() -> None:
    conn = store(triggers=True)
    listed = add(
        conn, [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "http://x"}}]
    )
    called = add(conn, None, None, [{"q": "中文参数"}])
    set_triggers(conn, False)
    index(conn)
    assert hits(conn, "image_url") == []
    assert hits(conn, "hello") == [listed]
    assert hits(conn, "中文参数") == [called]


def test_a_row_that_only_one_index_holds_is_put_into_the_other() -> None:
    conn = store(triggers=True)
    row_id = add(conn, "docker 中文")
    conn.execute("DELETE FROM messages_fts_trigram")
    set_triggers(conn, False)
    index(conn)
    assert has(conn, row_id) == {FTS, TRIGRAM}


def test_only_rows_that_mix_scripts_stand_in_the_words_table() -> None:
    conn = store()
    mixed, apart = add(conn, "修改youer服务端"), add(conn, "修改 youer 服务端")
    index(conn)
    assert has(conn, mixed) == {FTS, TRIGRAM, WORDS}
    assert has(conn, apart) == {FTS, TRIGRAM}
    assert sorted(hits(conn, "youer")) == [mixed, apart]


def test_unspaced_mode_keeps_other_rows_out_of_the_trigram_index() -> None:
    conn = store()
    indexing.set_trigram_mode(conn, "unspaced")
    english, chinese, accented = add(conn, "docker"), add(conn, "docker 中文"), add(conn, "dé")
    index(conn)
    assert has(conn, english) == {FTS}
    assert has(conn, accented) == {FTS}
    assert has(conn, chinese) == {FTS, TRIGRAM}


def test_unspaced_mode_takes_out_what_triggers_put_in() -> None:
    conn = store(triggers=True)
    indexing.set_trigram_mode(conn, "unspaced")
    english = add(conn, "docker")
    set_triggers(conn, False)
    index(conn)
    assert has(conn, english) == {FTS}


@pytest.mark.parametrize(("old", "new"), [("all", "unspaced"), ("unspaced", "all")])
def test_a_change_of_mode_is_made_true_in_steps_and_searches_are_right_meanwhile(old: str, new: str) -> None:
    conn = store()
    indexing.set_trigram_mode(conn, old)
    ids = [add(conn, f"docker {'中文' if i % 2 else ''}") for i in range(10)]
    index(conn)
    indexing.set_trigram_mode(conn, new)
    indexing.reindex(conn)
    while indexing.index_step(conn, 3):
        assert sorted(hits(conn, "docker")) == ids
        assert sorted(hits(conn, "文")) == ids[1::2]
    in_trigram = [i for i in ids if TRIGRAM in has(conn, i)]
    assert in_trigram == (ids if new == "all" else ids[1::2])


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="all, unspaced, not 'some'"):
        indexing.set_trigram_mode(store(), "some")


def test_rows_indexed_at_once_move_the_watermark_over_themselves() -> None:
    conn = store()
    ids = [add(conn, "docker"), add(conn, "docker")]
    indexing.index_rows(conn, ids)
    assert not indexing.pending(conn)
    assert sorted(hits(conn, "docker")) == ids


def test_rows_indexed_at_once_leave_earlier_pending_rows_pending() -> None:
    conn = store()
    early, late = add(conn, "docker"), add(conn, "docker")
    indexing.index_rows(conn, [late])
    assert indexing.pending(conn)
    index(conn)
    assert sorted(hits(conn, "docker")) == [early, late]


def test_an_updated_row_is_found_by_its_new_text_alone() -> None:
    conn = store()
    row_id = add(conn, "修改youer")
    index(conn)
    indexing.forget(conn, [row_id])
    conn.execute("UPDATE messages SET content = 'docker' WHERE id = ?", (row_id,))
    indexing.index_rows(conn, [row_id])
    assert hits(conn, "youer") == []
    assert hits(conn, "docker") == [row_id]
    assert has(conn, row_id) == {FTS, TRIGRAM}


def test_forgotten_rows_leave_every_table() -> None:
    conn = store()
    ids = [add(conn, "修改youer"), add(conn, "docker")]
    index(conn)
    indexing.forget(conn, ids)
    for row_id in ids:
        assert has(conn, row_id) == set()
    indexing.forget(conn, [])


def test_forgetting_rows_asks_the_index_for_each_and_never_walks_it() -> None:
    conn = store()
    for table in (FTS, TRIGRAM, WORDS):
        sql = f"EXPLAIN QUERY PLAN DELETE FROM {table} WHERE rowid IN (SELECT value FROM json_each(?))"
        steps = [row[3] for row in conn.execute(sql, ("[1]",))]
        assert any(f"SCAN {table} VIRTUAL TABLE INDEX 0:=" in step for step in steps), steps


def test_rows_written_through_triggers_are_brought_up_to_date() -> None:
    conn = store(triggers=True)
    row_id = add(conn, "修改youer")
    indexing.touch(conn, [row_id])
    assert hits(conn, "youer") == [row_id]
    conn.execute("UPDATE messages SET content = ? WHERE id = ?", ('\x00json:[{"text": "plain"}]', row_id))
    indexing.touch(conn, [row_id])
    assert hits(conn, "youer") == []
    assert hits(conn, "text") == []
    assert hits(conn, "plain") == [row_id]
    conn.execute("UPDATE messages SET content = '改you' WHERE id = ?", (row_id,))
    indexing.touch(conn, [row_id])
    conn.execute("DELETE FROM messages")
    indexing.touch(conn, [row_id])
    assert has(conn, row_id) == set()


def test_reset_empties_the_tables_and_the_steps_fill_them_again() -> None:
    conn = store()
    row_id = add(conn, "修改youer")
    index(conn)
    indexing.reset(conn)
    assert has(conn, row_id) == set()
    assert indexing.pending(conn)
    index(conn)
    assert hits(conn, "youer") == [row_id]


def test_without_an_index_nothing_is_pending_and_nothing_fails() -> None:
    conn = store()
    for table in (FTS, TRIGRAM, WORDS):
        conn.execute(f"DROP TABLE {table}")
    row_id = add(conn, "docker")
    assert tables.present(conn) == frozenset()
    assert not indexing.pending(conn)
    assert indexing.index_step(conn, 10) == 0
    indexing.index_rows(conn, [row_id])
    indexing.touch(conn, [row_id])
    indexing.forget(conn, [row_id])
    indexing.reset(conn)


def test_without_the_trigram_table_the_others_are_kept() -> None:
    conn = store()
    conn.execute("DROP TABLE messages_fts_trigram")
    row_id = add(conn, "修改youer")
    index(conn)
    assert hits(conn, "youer") == [row_id]


def test_a_row_that_is_not_utf8_is_indexed_with_the_others() -> None:
    conn = store()
    bad, good = add(conn, "caf"), add(conn, "docker")
    conn.execute(
        "UPDATE messages SET content = CAST(x'646f636b657220ff20e4b8ad' AS TEXT) WHERE id = ?", (bad,)
    )
    index(conn)
    assert sorted(hits(conn, "docker")) == [bad, good]
    assert hits(conn, "中") == [bad]


def test_a_blob_as_content_is_searched_as_utf8() -> None:
    conn = store()
    row_id = add(conn, None)
    conn.execute("UPDATE messages SET content = x'646f636b6572' WHERE id = ?", (row_id,))
    index(conn)
    assert hits(conn, "docker") == [row_id]


def test_a_very_long_row_is_indexed_up_to_the_cap() -> None:
    conn = store()
    row_id = add(conn, "first " + "x " * 600_000 + " last")
    index(conn)
    assert hits(conn, "first") == [row_id]
    assert hits(conn, "last") == []


def test_a_watermark_that_is_no_number_counts_as_none() -> None:
    conn = store()
    tables.set_meta(conn, tables.META_WATERMARK, "soon")
    add(conn, "docker")
    assert index(conn) == 1


def test_deleting_the_newest_rows_leaves_nothing_pending() -> None:
    conn = store()
    add(conn, "one")
    add(conn, "two")
    index(conn)
    conn.execute("DELETE FROM messages")
    assert not indexing.pending(conn)
    row_id = add(conn, "three")
    index(conn)
    assert hits(conn, "three") == [row_id]
