"""store.messages on a bare connection: fidelity, isolation of a group, replace, windows, replay."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import apsw
import pytest
from hermes_state._fastpath import encode
from message_rows import NOW, Forgotten, add, connection, contents, counters, no_forget, row

from hermes_state.store import messages

conn = pytest.fixture(connection)

# --- fidelity (CASES 25-34)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:..."}}],
        [[["deep"], {}], [], {"a": [None, True, 1.5]}],
        "\x00json:[1]",
        "\x00json:",
        "",
        "before\x00after",
        None,
        "🎉 漢字",
    ],
)
def test_content_comes_back_equal(conn: apsw.Connection, content: Any) -> None:
    add(conn, content)
    assert contents(conn) == [content]


def test_lone_surrogate_in_any_text_is_saved_with_the_rest_of_the_batch(conn: apsw.Connection) -> None:
    bad = "hi \ud83d there"
    fields = ("reasoning", "reasoning_content", "tool_name", "tool_call_id", "finish_reason")
    batch = [row(role="assistant", content=bad, **dict.fromkeys(fields, bad)), row(content="next")]
    assert all(type(outcome) is list for outcome in messages.insert_group(conn, [batch]))
    first, second = messages.get(conn, "s")
    assert [first[name] for name in ("content", *fields)] == ["hi \ufffd there"] * 6
    assert second["content"] == "next"


def test_lone_surrogate_inside_json_comes_back_equal(conn: apsw.Connection) -> None:
    bad = [{"text": "hi \ud83d there", "\udc00": 1}]
    messages.insert_one(conn, row(role="assistant", content=bad, tool_calls=bad, reasoning_details=bad))
    (message,) = messages.get(conn, "s")
    assert message["content"] == bad
    assert message["tool_calls"] == bad
    assert json.loads(message["reasoning_details"]) == bad
    assert messages.conversation(conn, ["s"])[0]["reasoning_details"] == bad


def test_surrogate_pair_is_the_code_point_it_stands_for(conn: apsw.Connection) -> None:
    add(conn, "\ud83c\udf89", ["\ud83c\udf89"])
    assert contents(conn) == ["🎉", ["🎉"]]


def test_get_then_replace_changes_nothing(conn: apsw.Connection) -> None:
    given = [
        {"role": "user", "content": [{"type": "text", "text": "look"}], "timestamp": 5.25},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"q": "中文"}'}}],
            "reasoning": "hm",
            "reasoning_content": "",
            "reasoning_details": [{"a": 1}],
            "codex_reasoning_items": {"b": [2]},
            "codex_message_items": [{"id": "m", "phase": None}],
            "token_count": 7,
            "finish_reason": "tool_calls",
            "timestamp": 4.5,
        },
        {"role": "tool", "content": "\x00json:{}", "tool_call_id": "c1", "tool_name": "f", "timestamp": 4.0},
    ]
    messages.replace(conn, "s", encode.encode_messages("s", given, None), no_forget)
    before = conn.execute("SELECT * FROM messages").fetchall()
    again = messages.get(conn, "s")
    messages.replace(conn, "s", encode.encode_messages("s", again, None), no_forget)
    assert conn.execute("SELECT * FROM messages").fetchall() == before
    messages.replace(conn, "t", encode.encode_messages("t", again, None), no_forget)
    copied = [{**message, "id": 0, "session_id": "s"} for message in messages.get(conn, "t")]
    assert copied == [{**message, "id": 0} for message in again]
    assert counters(conn) == counters(conn, "t") == (3, 1)


def test_tool_calls_given_as_json_text_are_stored_once_and_counted_by_their_list(
    conn: apsw.Connection,
) -> None:
    calls = [{"id": "a"}, {"id": "b"}]
    messages.insert_one(conn, row(role="assistant", tool_calls=json.dumps(calls)))
    assert messages.get(conn, "s")[0]["tool_calls"] == calls
    assert conn.execute("SELECT tool_calls FROM messages").fetchone() == (json.dumps(calls),)
    assert counters(conn) == (1, 2)


@pytest.mark.parametrize("given", [[{"x": float("nan")}, float("-inf")], '[{"x": NaN}, -Infinity]'])
def test_nan_and_infinity_in_tool_calls_are_null_for_every_reader(conn: apsw.Connection, given: Any) -> None:
    messages.insert_one(conn, row(role="assistant", tool_calls=given))
    assert conn.execute("SELECT tool_calls FROM messages").fetchone() == ('[{"x": null}, null]',)
    assert conn.execute("SELECT json_valid(tool_calls) FROM messages").fetchone() == (1,)
    assert counters(conn) == (1, 2)


@pytest.mark.parametrize(
    "foreign",
    [b"\xff\x00", {1}, datetime.datetime(2026, 1, 2), Decimal("1.50"), object, 2**20000],
    ids=lambda value: type(value).__name__,
)
def test_foreign_values_in_json_columns_are_their_text(conn: apsw.Connection, foreign: Any) -> None:
    expected = hex(foreign) if isinstance(foreign, int) else str(foreign)
    messages.insert_one(conn, row(role="assistant", tool_calls=[{"v": foreign}], reasoning_details=[foreign]))
    (message,) = messages.get(conn, "s")
    assert message["tool_calls"] == [{"v": expected}]
    assert json.loads(message["reasoning_details"]) == [expected]


def test_value_whose_text_cannot_be_had_is_its_type_name(conn: apsw.Connection) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    messages.insert_one(conn, row(content=Broken(), tool_calls=[Broken()]))
    (message,) = messages.get(conn, "s")
    assert message["content"] == "<Broken>"
    assert message["tool_calls"] == ["<Broken>"]


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        (True, "True"),
        (5, "5"),
        (2.5, "2.5"),
        (2**70, str(2**70)),
        (float("nan"), "nan"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (Decimal("0.1"), "0.1"),
    ],
)
def test_scalar_content_is_kept_as_text(conn: apsw.Connection, content: Any, stored: str) -> None:
    add(conn, content)
    assert contents(conn) == [stored]


def test_row_of_bad_utf8_or_broken_json_does_not_hide_the_others(conn: apsw.Connection) -> None:
    add(conn, "first")
    insert = (
        "INSERT INTO messages(session_id, role, content, tool_calls, timestamp) VALUES('s', 'assistant', "
    )
    conn.execute(insert + "CAST(x'6869ff' AS TEXT), '[broken', 1)")
    conn.execute(insert + "char(0) || 'json:{broken', '', 1)")
    conn.execute(insert + "x'c3a9', 5, 1)")
    add(conn, "last")
    expected = ["first", "hi\ufffd", "\x00json:{broken", "é", "last"]
    assert contents(conn) == expected
    assert messages.get(conn, "s")[1]["tool_calls"] == []
    assert [m["content"] for m in messages.conversation(conn, ["s"])] == expected
    assert [m["content"] for m in messages.around(conn, "s", 3, 9)["window"]] == expected


def test_broken_json_in_replay_is_an_empty_list_of_calls_and_no_details(conn: apsw.Connection) -> None:
    conn.execute(
        "INSERT INTO messages(session_id, role, tool_calls, reasoning_details, codex_reasoning_items, "
        "codex_message_items, timestamp) VALUES('s', 'assistant', '{', '{', 'NaN x', ']', 1)"
    )
    (message,) = messages.conversation(conn, ["s"])
    assert message["tool_calls"] == []
    assert message["reasoning_details"] is None
    assert message["codex_reasoning_items"] is None
    assert message["codex_message_items"] is None


def test_large_content_comes_back_whole(conn: apsw.Connection) -> None:
    words = " ".join(f"w{i:x}" for i in range(150_000))
    add(conn, words, "A" * 2_000_000)
    assert contents(conn) == [words, "A" * 2_000_000]


def test_text_with_nul_is_read_whole(conn: apsw.Connection) -> None:
    add(conn, "before\x00after")
    assert messages.conversation(conn, ["s"])[0]["content"] == "before\x00after"


# --- order and counters (CASES 36, 37, 40)


def test_a_timestamp_in_the_past_does_not_change_the_order(conn: apsw.Connection) -> None:
    messages.insert_one(conn, row(role="assistant", content="call", timestamp=100))
    second = messages.insert_one(conn, row(role="tool", content="reply", timestamp=95))
    expected = ["call", "reply"]
    assert contents(conn) == expected
    assert [m["content"] for m in messages.conversation(conn, ["s"])] == expected
    assert [m["content"] for m in messages.around(conn, "s", second, 5)["window"]] == expected
    view = messages.anchored_view(conn, "s", second, 5, 3, None)
    assert [m["content"] for m in view["window"]] == expected


def test_null_counters_count_as_zero(conn: apsw.Connection) -> None:
    conn.execute("UPDATE sessions SET message_count = NULL, tool_call_count = NULL")
    add(conn, "a")
    messages.insert_group(conn, [[row("t")], [row("t", tool_calls=[1, 2])]])
    assert counters(conn) == (1, 0)
    assert counters(conn, "t") == (2, 2)


def test_two_parallel_calls_and_their_replies_count_two_calls(conn: apsw.Connection) -> None:
    messages.insert_one(conn, row(role="assistant", content=None, tool_calls=[{"id": "a"}, {"id": "b"}]))
    messages.insert_one(conn, row(role="tool", tool_call_id="a"))
    messages.insert_one(conn, row(role="tool", tool_call_id="b"))
    assert counters(conn) == (3, 2)


# --- inserting


def test_append_to_an_unknown_session_leaves_nothing(conn: apsw.Connection) -> None:
    with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY constraint failed"):
        messages.insert_one(conn, row("unknown"))
    assert messages.count(conn) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 31, 32, 33, 70])
def test_ids_of_a_group_are_those_of_its_rows(conn: apsw.Connection, size: int) -> None:
    groups = [[row(content=str(i))] for i in range(size)] + [[row("t", content=f"b{i}") for i in range(size)]]
    outcomes = messages.insert_group(conn, groups)
    for group, outcome in zip(groups, outcomes, strict=True):
        assert isinstance(outcome, list)
        assert len(outcome) == len(group)
        for values, message_id in zip(group, outcome, strict=True):
            found = conn.execute("SELECT content FROM messages WHERE id = ?", (message_id,)).fetchone()
            assert found == (values[2],)
    assert counters(conn) == (size, 0)
    assert counters(conn, "t") == (size, 0)


@pytest.mark.parametrize("place", range(12))
def test_one_bad_append_of_a_group_fails_alone(conn: apsw.Connection, place: int) -> None:
    groups = [[row(content=str(i))] for i in range(11)]
    groups.insert(place, [row("unknown")])
    conn.execute("BEGIN IMMEDIATE")
    outcomes = messages.insert_group(conn, groups)
    conn.execute("COMMIT")
    assert isinstance(outcomes[place], apsw.ConstraintError)
    assert contents(conn) == [str(i) for i in range(11)]
    ids = [outcome for index, outcome in enumerate(outcomes) if index != place]
    assert ids == [[message["id"]] for message in messages.get(conn, "s")]
    assert counters(conn) == (11, 0)


@pytest.mark.parametrize(
    "bad", [row("unknown"), (*row()[:2], object(), *row()[3:]), (*row()[:2], "\ud800", *row()[3:])]
)
def test_a_batch_with_a_bad_row_leaves_nothing_and_harms_no_other(
    conn: apsw.Connection, bad: messages.Row
) -> None:
    batch = [row(content=f"b{i}") for i in range(40)]
    conn.execute("BEGIN IMMEDIATE")
    outcomes = messages.insert_group(
        conn, [[row(content="x")], [*batch, bad], [bad], [], [row("t"), row("t")], [row(content="y")]]
    )
    conn.execute("COMMIT")
    assert isinstance(outcomes[1], Exception)
    assert isinstance(outcomes[2], Exception)
    assert outcomes[3] == []
    assert contents(conn) == ["x", "y"]
    assert counters(conn) == (2, 0)
    assert counters(conn, "t") == (2, 0)


def test_a_full_disk_is_no_matter_of_one_row(conn: apsw.Connection) -> None:
    pages = conn.pragma("page_count")
    conn.pragma("max_page_count", pages)
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.FullError):
        messages.insert_group(conn, [[row(content="x" * 100_000)], [row()]])
    if conn.in_transaction:
        conn.execute("ROLLBACK")
    assert messages.count(conn) == 0
    assert counters(conn) == (0, 0)


# --- replace and clear


def test_replace_keeps_the_unchanged_head_and_its_ids(conn: apsw.Connection) -> None:
    ids = add(conn, "a", "b", "c", "d")
    forgotten = Forgotten()
    new = [{"role": "user", "content": text} for text in ("a", "b", "X", "d", "e")]
    messages.replace(conn, "s", encode.encode_messages("s", new, None), forgotten, now=NOW)
    found = messages.get(conn, "s")
    assert forgotten == ids[2:]
    assert [m["content"] for m in found] == ["a", "b", "X", "d", "e"]
    assert [m["id"] for m in found[:2]] == ids[:2]
    assert min(m["id"] for m in found[2:]) > ids[-1]
    assert [m["timestamp"] for m in found[2:]] == [NOW + i * 1e-6 for i in (2, 3, 4)]
    assert counters(conn) == (5, 0)


def test_replace_keeps_given_timestamps(conn: apsw.Connection) -> None:
    add(conn, "a")
    new = [
        {"role": "user", "content": "a", "timestamp": 3},
        {"role": "user", "content": "b", "timestamp": "2024-05-01T00:00:00Z"},
        {"role": "user", "content": "c"},
    ]
    messages.replace(conn, "s", encode.encode_messages("s", new, NOW), Forgotten())
    stamps = [m["timestamp"] for m in messages.get(conn, "s")]
    assert stamps == [3.0, 1714521600.0, NOW + 2e-6]


@pytest.mark.parametrize("before", [0, 1, 3, 40])
@pytest.mark.parametrize("after", [0, 1, 3, 40])
def test_replace_gives_just_the_new_list_and_its_counters(
    conn: apsw.Connection, before: int, after: int
) -> None:
    add(conn, *[f"m{i}" for i in range(before)])
    add(conn, "other", session_id="t")
    new = [{"role": "user", "content": f"m{i}", "tool_calls": [1] if i == 2 else None} for i in range(after)]
    messages.replace(conn, "s", encode.encode_messages("s", new, None), Forgotten())
    assert contents(conn) == [f"m{i}" for i in range(after)]
    assert counters(conn) == (after, 1 if after > 2 else 0)
    assert contents(conn, "t") == ["other"]


def test_replace_of_an_unknown_session_fails_with_messages_and_does_nothing_without(
    conn: apsw.Connection,
) -> None:
    messages.replace(conn, "unknown", [], no_forget)
    with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY constraint failed"):
        messages.replace(conn, "unknown", [row("unknown")], no_forget)
    assert messages.count(conn) == 0


def test_clear_forgets_the_rows_first_and_keeps_the_session(conn: apsw.Connection) -> None:
    ids = add(conn, "a", "b")
    add(conn, "other", session_id="t")
    forgotten = Forgotten()
    assert messages.clear(conn, "s", forgotten) == 2
    assert forgotten == ids
    assert counters(conn) == (0, 0)
    assert messages.count(conn) == messages.count(conn, "t") == 1
    assert messages.clear(conn, "s", no_forget) == 0


def test_clear_in_steps_leaves_counters_that_equal_the_rows(conn: apsw.Connection) -> None:
    add(conn, "a", "b")
    messages.insert_one(conn, row(role="assistant", tool_calls=[1, 2, 3]))
    forgotten = Forgotten()
    assert messages.clear(conn, "s", forgotten, limit=2) == 2
    assert counters(conn) == (1, 3)
    assert messages.clear(conn, "s", forgotten, limit=2) == 1
    assert counters(conn) == (0, 0)
    assert forgotten == [1, 2, 3]
