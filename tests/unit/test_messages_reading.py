"""store.messages on a bare connection: pages, windows, replay."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from hermes_state._fastpath import encode
from message_rows import add, connection, row

from hermes_state.store import messages

conn = pytest.fixture(connection)


def test_get_pages_in_both_directions_in_id_order(conn: apsw.Connection) -> None:
    ids = add(conn, *"abcdefgh")
    add(conn, "other", session_id="t")

    def page(**bounds: Any) -> str:
        return "".join(m["content"] for m in messages.get(conn, "s", **bounds))

    assert page() == page(limit=-1) == page(limit=100) == "abcdefgh"
    assert page(limit=3) == "abc"
    assert page(after_id=ids[2], limit=2) == "de"
    assert page(before_id=ids[6], limit=2) == "ef"
    assert page(after_id=ids[1], before_id=ids[5]) == "cde"
    assert page(limit=0) == ""


def test_unknown_columns_of_a_newer_file_are_returned(conn: apsw.Connection) -> None:
    conn.execute("ALTER TABLE messages ADD COLUMN mood TEXT DEFAULT 'good'")
    add(conn, "a")
    assert messages.get(conn, "s")[0]["mood"] == "good"
    assert list(messages.get(conn, "s")[0]) == ["id", *encode.COLUMNS, "mood"]


@pytest.mark.parametrize("window", [-3, 0, 1, 2, 10, 2**80])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_window_holds_the_neighbours_by_id(conn: apsw.Connection, window: int, place: int) -> None:
    ids = []
    for text in "abcdefg":
        ids += add(conn, text)
        add(conn, "between", session_id="t")
    found = messages.around(conn, "s", ids[place], window)
    width = min(max(window, 0), 10)
    assert (
        "".join(m["content"] for m in found["window"]) == "abcdefg"[max(0, place - width) : place + width + 1]
    )
    assert found["messages_before"] == min(width, place)
    assert found["messages_after"] == min(width, 6 - place)


@pytest.mark.parametrize("anchor", [999, 2**63, -1, None, "x"])
def test_anchor_that_is_not_in_the_session_gives_an_empty_window(conn: apsw.Connection, anchor: Any) -> None:
    add(conn, "a")
    (other,) = add(conn, "b", session_id="t")
    empty = {"window": [], "messages_before": 0, "messages_after": 0}
    assert messages.around(conn, "s", anchor, 5) == empty
    assert messages.around(conn, "s", other, 5) == empty
    assert messages.anchored_view(conn, "s", other, 5, 3, None) == {
        **empty,
        "bookend_start": [],
        "bookend_end": [],
    }


def test_anchored_view_keeps_roles_the_anchor_and_both_ends(conn: apsw.Connection) -> None:
    roles = ["system", "user", "assistant", "tool"] * 6
    ids = [messages.insert_one(conn, row(role=role, content=str(i))) for i, role in enumerate(roles)]
    view = messages.anchored_view(conn, "s", ids[11], 2, 3, ("user", "assistant"))

    def shown(name: str) -> list[str]:
        return [m["content"] for m in view[name]]

    assert shown("window") == ["9", "10", "11", "13"]
    assert (view["messages_before"], view["messages_after"]) == (2, 2)
    assert shown("bookend_start") == ["1", "2", "5"]
    assert shown("bookend_end") == ["18", "21", "22"]


def test_bookends_never_overlap_the_window(conn: apsw.Connection) -> None:
    ids = add(conn, *"abcdef")
    view = messages.anchored_view(conn, "s", ids[2], 1, 9, None)
    assert [m["content"] for m in view["window"]] == ["b", "c", "d"]
    assert [m["content"] for m in view["bookend_start"]] == ["a"]
    assert [m["content"] for m in view["bookend_end"]] == ["e", "f"]
    assert messages.anchored_view(conn, "s", ids[2], 1, -1, None)["bookend_end"] == []


# --- replay (CASES 41)


def test_conversation_has_just_what_the_contract_lists(conn: apsw.Connection) -> None:
    filled = {
        "tool_call_id": "c",
        "tool_name": "f",
        "tool_calls": [{"id": "c"}],
        "finish_reason": "stop",
        "reasoning": "r",
        "reasoning_content": "",
        "reasoning_details": [1],
        "codex_reasoning_items": {"a": 1},
        "codex_message_items": [2],
    }
    for role in ("assistant", "tool"):
        messages.insert_one(conn, row(role=role, content="x", **filled))
    add(conn, "bare")
    assistant, tool, user = messages.conversation(conn, ["s"])
    assert assistant == {"role": "assistant", "content": "x", **filled}
    assert list(assistant) == ["role", "content", "tool_call_id", "tool_name", *list(filled)[2:]]
    assert tool == {"role": "tool", "content": "x", **dict(list(filled.items())[:3])}
    assert user == {"role": "user", "content": "bare"}


def test_replay_loses_recalled_memory_in_text_of_users_and_assistants_only(conn: apsw.Connection) -> None:
    text = " <memory-context>\nsecret\n</memory-context>\nhello </MEMORY-CONTEXT> "
    for role in ("user", "assistant", "tool"):
        add(conn, text, role=role)
    add(conn, [text])
    found = [m["content"] for m in messages.conversation(conn, ["s"])]
    assert found == ["hello", "hello", text, [text]]


def test_a_user_who_says_yes_twice_is_heard_twice(conn: apsw.Connection) -> None:
    add(conn, "yes")
    add(conn, "result", role="tool")
    add(conn, "yes")
    assert [m["content"] for m in messages.conversation(conn, ["s"])] == ["yes", "result", "yes"]


def test_user_message_carried_over_a_seam_is_there_once(conn: apsw.Connection) -> None:
    add(conn, "go", "yes")
    add(conn, "working", role="assistant")
    add(conn, "summary", role="system", session_id="t")
    add(conn, "yes", "yes", session_id="t")
    found = [(m["role"], m["content"]) for m in messages.conversation(conn, ["s", "t"])]
    assert found == [
        ("user", "go"),
        ("user", "yes"),
        ("assistant", "working"),
        ("system", "summary"),
        ("user", "yes"),
    ]


def test_another_user_message_at_the_seam_stays(conn: apsw.Connection) -> None:
    add(conn, "go", "yes")
    add(conn, "go", "yes", session_id="t")
    found = [m["content"] for m in messages.conversation(conn, ["s", "t"])]
    assert found == ["go", "yes", "go", "yes"]


@pytest.mark.parametrize(
    "sql", [messages._ALL, messages._BETWEEN, messages._BEFORE, messages._FROM, messages._CONVERSATION]
)
def test_readers_of_a_session_neither_scan_nor_sort(conn: apsw.Connection, sql: str) -> None:
    plan = [
        step[3] for step in conn.execute(f"EXPLAIN QUERY PLAN {sql}", ("s",) + (1,) * (sql.count("?") - 1))
    ]
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH messages USING INDEX hs_idx_messages_session")


def test_ids_and_session_ids_of_any_kind_are_no_error_for_a_reader(conn: apsw.Connection) -> None:
    for session_id in (None, "\ud800", 5, "none"):
        assert messages.get(conn, session_id) == []  # type: ignore[arg-type]
        assert messages.conversation(conn, [session_id]) == []  # type: ignore[list-item]
        assert messages.count(conn, session_id or "none") == 0
