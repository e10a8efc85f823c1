"""store.listing and preview: what a list shows, in which order, and of whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import NOW, add_chain, add_message, add_session, connect

from hermes_state.store import listing
from hermes_state.store.preview import content_text


@pytest.fixture
def conn() -> Iterator[apsw.Connection]:
    connection = connect()
    yield connection
    connection.close()


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def preview_of(conn: apsw.Connection, content: Any) -> str:
    add_session(conn, "s")
    add_message(conn, "s", content)
    return str(listing.rich(conn)[0]["preview"])


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        ("short", "short"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ("线" * 61, "线" * 60 + "..."),
        ("  a\nb\r\nc ", "a b  c"),
        ("before\x00after", "before after"),
        ("\x00" * 10, ""),
        ("", ""),
        (" " * 5000 + "late " + "y" * 100, "late " + "y" * 55 + "..."),
        ("y" * 100_000, "y" * 60 + "..."),
        ("字" * 100_000, "字" * 60 + "..."),
        ('\x00json:["a", {"type": "text", "text": "b\\nc"}]', "a b c"),
        ('\x00json:[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]', ""),
        ("\x00json:" + json.dumps([{"type": "text", "text": "z" * 9000}]), "z" * 60 + "..."),
        (
            "\x00json:"
            + json.dumps([{"type": "image_url", "u": "A" * 9000}, {"type": "text", "text": "see"}]),
            "see",
        ),
        ("\x00json:[broken", "json:[broken"),
        (b"bytes \xff here", "bytes \ufffd here"),
    ],
)
def test_the_preview_of_a_first_message(conn: apsw.Connection, content: Any, preview: str) -> None:
    assert preview_of(conn, content) == preview


def test_the_preview_is_of_the_first_user_message_by_id(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    add_message(conn, "s", "system", role="system")
    add_message(conn, "s", None, timestamp=NOW)
    add_message(conn, "s", "first", timestamp=NOW + 9)
    add_message(conn, "s", "second", timestamp=NOW - 9)
    add_session(conn, "t", NOW - 1)
    add_message(conn, "t", "only an answer", role="assistant")
    assert [row["preview"] for row in listing.rich(conn)] == ["first", ""]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        (5, "5"),
        ({"type": "text", "text": "a"}, "a"),
        ([{"type": "tool_result", "content": "r"}, ["nested"], None, {"text": 5}], "r"),
    ],
)
def test_the_text_of_a_content(content: Any, text: str) -> None:
    assert content_text(content) == text


def test_rows_carry_all_columns_preview_and_last_activity(conn: apsw.Connection) -> None:
    conn.execute("ALTER TABLE sessions ADD COLUMN mood TEXT DEFAULT 'calm'")
    add_session(conn, "s", system_prompt="be brief")
    add_message(conn, "s", timestamp=NOW + 7)
    row = listing.rich(conn)[0]
    assert (row["mood"], row["system_prompt"], row["last_active"], row["preview"]) == (
        "calm",
        "be brief",
        NOW + 7,
        "hi",
    )
    assert "_lineage_root_id" not in row


def test_a_session_without_messages_was_last_active_at_its_start(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    assert listing.rich(conn)[0]["last_active"] == NOW
    assert listing.search_sessions(conn)[0]["last_active"] == NOW


def test_the_default_order_is_newest_start_then_id(conn: apsw.Connection) -> None:
    for session_id, start in (("b", NOW), ("a", NOW), ("new", NOW + 1), ("old", NOW - 1)):
        add_session(conn, session_id, start)
    add_message(conn, "old", timestamp=NOW + 99)
    assert ids(listing.rich(conn)) == ["new", "a", "b", "old"]
    assert ids(listing.rich(conn, order_by_last_active=True)) == ["old", "new", "b", "a"]


def test_pages_and_no_limit(conn: apsw.Connection) -> None:
    names = [f"s{number:02}" for number in range(25)]
    for number, name in enumerate(names):
        add_session(conn, name, NOW - number)
    for by_activity in (True, False):
        assert ids(listing.rich(conn, order_by_last_active=by_activity)) == names[:20]
        assert ids(listing.rich(conn, limit=5, offset=20, order_by_last_active=by_activity)) == names[20:]
        assert ids(listing.rich(conn, limit=-1, order_by_last_active=by_activity)) == names
        assert ids(listing.rich(conn, limit=-1, offset=-5, order_by_last_active=by_activity)) == names
        assert listing.rich(conn, limit=0, order_by_last_active=by_activity) == []
        assert ids(listing.rich(conn, limit=2**80, offset=24, order_by_last_active=by_activity)) == names[24:]
    assert ids(listing.search_sessions(conn, limit=3, offset=1)) == names[1:4]
    assert ids(listing.search_sessions(conn, limit=-1)) == names


def test_sources_are_chosen_and_left_out(conn: apsw.Connection) -> None:
    for number, source in enumerate(("cli", "telegram", "cron")):
        add_session(conn, source, NOW - number, source=source)
    assert ids(listing.rich(conn, source="telegram")) == ["telegram"]
    assert ids(listing.rich(conn, exclude_sources=["cron", "cli"])) == ["telegram"]
    assert ids(listing.rich(conn, exclude_sources=[])) == ["cli", "telegram", "cron"]
    assert ids(listing.rich(conn, source="cli", exclude_sources=["cli"])) == []
    assert ids(listing.rich(conn, source="", order_by_last_active=True)) == ["cli", "telegram", "cron"]
    assert ids(listing.search_sessions(conn, "cron")) == ["cron"]


def test_children_are_hidden_except_branches(conn: apsw.Connection) -> None:
    add_session(conn, "branched", NOW, ended_at=NOW + 10, end_reason="branched")
    add_session(conn, "sub", NOW + 5, parent_session_id="branched")
    add_session(conn, "branch", NOW + 9.99, parent_session_id="branched")
    add_session(conn, "live", NOW - 1)
    add_session(conn, "of-live", NOW + 1, parent_session_id="live")
    for by_activity in (True, False):
        assert set(ids(listing.rich(conn, order_by_last_active=by_activity))) == {
            "branched",
            "branch",
            "live",
        }
        shown = listing.rich(conn, include_children=True, order_by_last_active=by_activity)
        assert set(ids(shown)) == {"branched", "sub", "branch", "live", "of-live"}


def test_a_compressed_conversation_is_shown_under_its_tip(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 3)
    conn.execute("UPDATE sessions SET title = 'tip', model = 'new', system_prompt = 'p2' WHERE id = 'c2'")
    conn.execute(
        "UPDATE sessions SET title = 'root', model = 'old', user_id = 'u', system_prompt = 'p' "
        "WHERE id = 'c0'"
    )
    add_message(conn, "c2", timestamp=NOW + 999, tool_calls='[{"id": "1"}]', role="assistant")
    for by_activity in (True, False):
        (row,) = listing.rich(conn, order_by_last_active=by_activity)
        assert (row["id"], row["_lineage_root_id"]) == (chain[2], chain[0])
        assert (row["title"], row["model"], row["system_prompt"]) == ("tip", "new", "p2")
        assert (row["message_count"], row["tool_call_count"], row["last_active"]) == (2, 1, NOW + 999)
        assert (row["ended_at"], row["end_reason"], row["preview"]) == (None, None, "message of c2")
        assert (row["started_at"], row["user_id"]) == (NOW, "u")


def test_without_projection_the_root_is_shown_as_itself(conn: apsw.Connection) -> None:
    add_chain(conn, 3)
    (row,) = listing.rich(conn, project_compression_tips=False)
    assert (row["id"], row["end_reason"], row["preview"]) == ("c0", "compression", "message of c0")
    assert "_lineage_root_id" not in row


def test_an_old_conversation_continued_today_comes_first_by_activity(conn: apsw.Connection) -> None:
    add_chain(conn, 3, started_at=NOW - 10_000, step=4000)
    add_session(conn, "s", NOW - 5000)
    assert ids(listing.rich(conn)) == ["s", "c2"]
    assert ids(listing.rich(conn, order_by_last_active=True)) == ["c2", "s"]
    shown = listing.rich(conn, order_by_last_active=True, project_compression_tips=False)
    assert ids(shown) == ["c0", "s"]


def test_a_branch_that_was_compressed_is_shown_under_its_tip(conn: apsw.Connection) -> None:
    add_session(conn, "trunk", NOW, ended_at=NOW + 1, end_reason="branched")
    add_session(
        conn, "branch", NOW + 2, parent_session_id="trunk", ended_at=NOW + 3, end_reason="compression"
    )
    add_session(conn, "tip", NOW + 3, parent_session_id="branch")
    assert {row["id"]: row.get("_lineage_root_id") for row in listing.rich(conn)} == {
        "trunk": None,
        "tip": "branch",
    }


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_page_from_the_newest_sessions_is_the_page_from_all(data: st.DataObject) -> None:
    """Random parents, ends, times and messages: both ways to a page by activity agree."""
    connection = connect()
    names = [f"s{number}" for number in range(data.draw(st.integers(0, 14)))]
    times = st.integers(0, 6)
    for name in names:
        reason = data.draw(st.sampled_from(["compression", "compression", "branched", "x", None]))
        add_session(
            connection, name, data.draw(times), end_reason=reason,
            ended_at=data.draw(times) if reason else None, source=data.draw(st.sampled_from("ab")),
        )  # fmt: skip
        for _ in range(data.draw(st.integers(0, 2))):
            add_message(connection, name, timestamp=data.draw(times))
    for name in names:
        parent = data.draw(st.sampled_from([None, None, *names]))
        connection.execute("UPDATE sessions SET parent_session_id = ? WHERE id = ?", (parent, name))
    source = data.draw(st.sampled_from([None, "a"]))
    limit, offset = data.draw(st.integers(0, 8)), data.draw(st.integers(0, 4))
    filters = (False, source, "[]")
    every = listing._page_by_activity(connection, filters, limit, offset)
    with mock.patch.object(listing, "_SPARE", data.draw(st.sampled_from([0, 20]))):
        newest = listing._newest_page(connection, filters, limit, offset)
    connection.close()
    if newest is None:
        return
    assert newest[0] == every[0]
    assert newest[1] == {root: tip for root, tip in every[1].items() if root in newest[0]}


def test_a_rare_source_is_listed_beyond_the_newest_sessions(conn: apsw.Connection) -> None:
    for number in range(100):
        add_session(conn, f"s{number:03}", NOW + number)
    add_session(conn, "rare", NOW - 1, source="mail")
    assert listing._newest_page(conn, (False, "mail", "[]"), 5, 0) is None
    assert ids(listing.rich(conn, "mail", limit=5, order_by_last_active=True)) == ["rare"]


def test_search_sessions_is_by_activity_then_start_then_id_children_too(conn: apsw.Connection) -> None:
    add_session(conn, "a", NOW)
    add_session(conn, "b", NOW, parent_session_id="a")
    add_session(conn, "c", NOW - 5)
    add_message(conn, "c", timestamp=NOW)
    add_session(conn, "d", NOW - 9)
    add_message(conn, "d", timestamp=NOW + 1)
    rows = listing.search_sessions(conn)
    assert ids(rows) == ["d", "b", "a", "c"]
    assert "preview" not in rows[0]


def test_recent_with_preview_is_the_documents_query(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 2)
    assert ids(listing.recent_with_preview(conn)) == chain[::-1]
    assert listing.recent_with_preview(conn, limit=1)[0]["preview"] == "message of c1"


def test_one_row_of_bad_text_does_not_hide_the_others(conn: apsw.Connection) -> None:
    for session_id in ("a", "b"):
        add_session(conn, session_id)
        add_message(conn, session_id, f"text of {session_id}")
    conn.execute("UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE id = 'a'")
    conn.execute(
        "UPDATE messages SET content = CAST(x'ff41' AS TEXT), timestamp = 'noon' WHERE session_id = 'a'"
    )
    for by_activity in (True, False):
        rows = {row["id"]: row for row in listing.rich(conn, order_by_last_active=by_activity)}
        assert (rows["a"]["title"], rows["a"]["preview"], rows["b"]["preview"]) == (
            "\ufffd",
            "\ufffdA",
            "text of b",
        )
    assert set(ids(listing.search_sessions(conn))) == {"a", "b"}


def test_lists_read_activity_and_previews_from_indexes(conn: apsw.Connection) -> None:
    def plan(sql: str, *params: Any) -> list[str]:
        return [row[3] for row in conn.execute("EXPLAIN QUERY PLAN " + sql, params)]

    by_start = plan(listing._BY_START, False, None, "[]", 20, 0)
    assert by_start[0].startswith("SCAN s USING")
    assert "hs_idx_sessions_list" in by_start[0]
    for sql, params in (
        (listing._BY_ACTIVITY, (False, None, "[]", 20, 0, "[]")),
        (listing._NEWEST, (60,)),
        (listing._SEARCH, (None, 20, 0)),
        (listing._ROWS, ("[]",)),
    ):
        steps = plan(sql, *params)
        assert "SEARCH m USING COVERING INDEX idx_messages_session (session_id=?)" in steps
    from hermes_state.store import preview

    heads = plan(preview._HEADS, "[]")
    assert "SEARCH f USING INDEX hs_idx_messages_session (session_id=?)" in heads
    assert not any("TEMP B-TREE" in step for step in heads)
