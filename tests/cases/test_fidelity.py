"""What goes in comes out: cases 25 to 35 from the field, and their neighbours."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

SURROGATE = "hi \ud83d there"
MENDED = "hi \ufffd there"


@pytest.fixture
def s(db: Any) -> str:
    """The id of a session of ``db``."""
    return str(db.create_session("s", "cli"))


def content_of(db: Any, content: Any) -> Any:
    db.append_message("s", "user", content)
    return db.get_messages("s")[-1]["content"]


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        [[]],
        [{}],
        [None],
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:..."}}],
        {"a": [1, 2.5, True, None, {"b": []}]},
        [[["deep"], {}], [], "x"],
        ["\x00json:[1]"],
        "\x00json:[1]",
        "\x00json:",
        "\x00json:not json",
        "\x00json:" + '"x"',
        "json:[1]",
        "",
        " ",
        "\x00",
        "before\x00after",
        "\n\r\t",
        "emoji 👩‍👩‍👧 and 𠮷",
        "\ufffe\uffff\ue000",
        "e\u0301 is not é",
        None,
    ],
    ids=ascii,
)
def test_content_is_equal_after_reading(any_db: Any, content: Any) -> None:
    any_db.create_session("s", "cli")
    any_db.append_message("s", "user", content)
    any_db.append_messages("s", [{"role": "user", "content": content}])
    assert [message["content"] for message in any_db.get_messages("s")] == [content, content]
    assert [type(message["content"]) for message in any_db.get_messages("s")] == [type(content)] * 2
    any_db.replace_messages("s", any_db.get_messages("s"))
    assert [message["content"] for message in any_db.get_messages("s")] == [content, content]
    exported = any_db.export_session("s")
    assert [message["content"] for message in json.loads(json.dumps(exported))["messages"]] == [content] * 2


@pytest.mark.parametrize(
    "column", ["content", "tool_name", "tool_call_id", "finish_reason", "reasoning", "reasoning_content"]
)
def test_a_lone_surrogate_in_a_text_column_becomes_the_replacement_character(
    any_db: Any, column: str
) -> None:
    any_db.create_session("s", "cli")
    batch = [{"role": "user", "content": "one"}, {"role": "assistant", column: SURROGATE}, {"role": "user"}]
    assert len(any_db.append_messages("s", batch)) == 3
    any_db.append_message("s", "assistant", **{column: SURROGATE})
    found = any_db.get_messages("s")
    assert [found[1][column], found[3][column]] == [MENDED, MENDED]
    assert any_db.get_session("s")["message_count"] == 4


@pytest.mark.parametrize("column", ["reasoning_details", "codex_reasoning_items", "codex_message_items"])
def test_a_lone_surrogate_inside_json_comes_back_as_it_was(db: Any, s: str, column: str) -> None:
    db.append_message(s, "assistant", None, **{column: [{"x": SURROGATE}]})
    assert db.get_messages_as_conversation(s)[0][column] == [{"x": SURROGATE}]
    assert json.loads(db.get_messages(s)[0][column]) == [{"x": SURROGATE}]


def test_a_lone_surrogate_in_structured_content_and_tool_calls_comes_back_as_it_was(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    calls = [{"id": SURROGATE, "function": {"name": "f", "arguments": json.dumps({"a": SURROGATE})}}]
    any_db.append_message("s", "assistant", [{"type": "text", "text": SURROGATE}], tool_calls=calls)
    (message,) = any_db.get_messages("s")
    assert message["content"] == [{"type": "text", "text": SURROGATE}]
    assert message["tool_calls"] == calls
    assert [hit["id"] for hit in any_db.search_messages("there")] == [message["id"]]


def test_a_surrogate_pair_is_the_character_it_stands_for(db: Any, s: str) -> None:
    assert content_of(db, "\ud83d\ude00") == "😀"


def test_surrogates_in_titles_prompts_and_ids_are_mended(db: Any) -> None:
    db.create_session("s", "cli", system_prompt=SURROGATE, model=SURROGATE, user_id=SURROGATE)
    db.update_system_prompt("s", SURROGATE)
    assert db.set_session_title("s", SURROGATE)
    session = db.get_session("s")
    assert session["title"] == session["system_prompt"] == session["model"] == session["user_id"] == MENDED
    assert db.get_session(SURROGATE) is None
    assert db.get_session_by_title(SURROGATE)["id"] == "s"
    db.set_meta("k", SURROGATE)
    assert db.get_meta("k") == MENDED


def test_replacing_what_was_read_changes_nothing(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    any_db.append_message(
        "s", "assistant", [{"type": "text", "text": "a"}], tool_name="t", tool_calls=[{"id": "c"}],
        tool_call_id="i", token_count=3, finish_reason="stop", reasoning="r", reasoning_content="",
        reasoning_details=[{"d": "é"}], codex_reasoning_items={"a": 1}, codex_message_items=[1],
    )  # fmt: skip
    any_db.append_message(
        "s", "tool", "\x00json:[1]", tool_calls="not json", reasoning_details='{"given": "text"}'
    )
    any_db.append_message("s", "user", {})
    before, raw = any_db.get_messages("s"), rows_of(any_db)
    for _ in range(2):
        any_db.replace_messages("s", any_db.get_messages("s"))
        assert any_db.get_messages("s") == before
        assert rows_of(any_db) == raw
    any_db.replace_messages("s", list(reversed(before)))
    assert [without_id(m) for m in any_db.get_messages("s")] == [without_id(m) for m in reversed(before)]


def rows_of(db: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db._conn.execute("SELECT * FROM messages ORDER BY id")]


def without_id(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "id"}


@pytest.mark.parametrize(
    ("given", "count", "returned"),
    [
        ('[{"id": "a"}, {"id": "b"}]', 2, [{"id": "a"}, {"id": "b"}]),
        ('{"id": "a"}', 1, {"id": "a"}),
        ([{"id": "a"}, {"id": "b"}], 2, [{"id": "a"}, {"id": "b"}]),
        (({"id": "a"},), 1, [{"id": "a"}]),
        ({"id": "a"}, 1, {"id": "a"}),
        ("not json", 1, "not json"),
        (None, 0, None),
        ([], 0, None),
        ("", 0, None),
    ],
)
def test_tool_calls_are_stored_once_counted_by_their_list_and_returned_parsed(
    db: Any, s: str, given: Any, count: int, returned: Any
) -> None:
    db.append_message(s, "assistant", None, tool_calls=given)
    assert db.get_messages(s)[0]["tool_calls"] == returned
    assert db.get_session(s)["tool_call_count"] == count
    db.replace_messages(s, db.get_messages(s))
    assert db.get_messages(s)[0]["tool_calls"] == returned
    assert db.get_session(s)["tool_call_count"] == count


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_json_number_is_null_in_json(db: Any, s: str, number: float) -> None:
    db.append_message(s, "assistant", [number], tool_calls=[{"a": number}], reasoning_details={"b": [number]})
    stored = db._conn.execute("SELECT content, tool_calls, reasoning_details FROM messages").fetchone()
    assert list(stored) == ["\x00json:[null]", '[{"a": null}]', '{"b": [null]}']
    assert db._conn.execute("SELECT json_valid(tool_calls) FROM messages").fetchone()[0] == 1


@pytest.mark.parametrize("text", ['[{"a": NaN}]', '[{"a": Infinity}]', '[{"a": -Infinity}]'])
def test_a_bare_token_in_given_json_text_is_null_too(db: Any, s: str, text: str) -> None:
    db.append_message(s, "assistant", None, tool_calls=text)
    assert db.get_messages(s)[0]["tool_calls"] == [{"a": None}]
    assert db._conn.execute("SELECT json_valid(tool_calls) FROM messages").fetchone()[0] == 1


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.50"), "1.50"),
        ({3}, "{3}"),
        (Path("a/b"), str(Path("a/b"))),
        (b"raw", str(b"raw")),
        (Hostile(), "<Hostile>"),
        (1j, "1j"),
        (range(3), "range(0, 3)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_a_json_form_are_their_text(db: Any, s: str, value: Any, text: str) -> None:
    db.append_message(s, "assistant", [value], tool_calls=[{"a": value}], reasoning_details={"b": value})
    message = db.get_messages(s)[0]
    assert message["content"] == [text]
    assert message["tool_calls"] == [{"a": text}]
    assert json.loads(message["reasoning_details"]) == {"b": text}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (True, "True"),
        (False, "False"),
        (5, "5"),
        (0, "0"),
        (2.5, "2.5"),
        (2**70, str(2**70)),
        (b"by\xff", "by\ufffd"),
        (float("nan"), "nan"),
        (Decimal(1), "1"),
    ],
)
def test_content_that_is_no_text_is_kept_as_text(db: Any, s: str, content: Any, text: str) -> None:
    assert content_of(db, content) == text


def test_rows_that_another_program_broke_cost_only_themselves(any_db: Any, elsewhere: Any) -> None:
    any_db.create_session("s", "cli")
    ids = any_db.append_messages("s", [{"role": "user", "content": f"message number{i}"} for i in range(6)])
    elsewhere(
        any_db.db_path,
        ("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = ?", (ids[1],)),
        ("UPDATE messages SET tool_calls = '{broken' WHERE id = ?", (ids[2],)),
        ("UPDATE messages SET reasoning_details = '[1', role = 'assistant' WHERE id = ?", (ids[3],)),
        ("UPDATE messages SET content = x'6100ff' WHERE id = ?", (ids[4],)),
        ("UPDATE messages SET content = ? WHERE id = ?", ("\x00json:{broken", ids[5])),
        ("UPDATE sessions SET title = CAST(x'74ff' AS TEXT), message_count = NULL WHERE id = 's'", ()),
    )
    found = any_db.get_messages("s")
    assert [message["id"] for message in found] == ids
    assert [message["content"] for message in found[:2]] == ["message number0", "a\ufffdb"]
    assert found[2]["tool_calls"] == []
    assert found[4]["content"] == "a\x00\ufffd"
    assert found[5]["content"] == "\x00json:{broken"
    replay = any_db.get_messages_as_conversation("s")
    assert len(replay) == 6
    assert replay[3]["reasoning_details"] is None
    assert any_db.get_session("s")["title"] == "t\ufffd"
    assert any_db.list_sessions_rich()[0]["id"] == "s"
    assert {hit["id"] for hit in any_db.search_messages("message", limit=-1)} >= {ids[0], ids[2], ids[3]}
    json.dumps(any_db.export_session("s"))
    json.dumps(any_db.export_all())
    any_db.append_message("s", "user", "goes on")
    assert any_db.get_session("s")["message_count"] == 1


@pytest.mark.parametrize(
    "content", ["word " * 200_000, "QUJD" * 500_000, "字" * 300_000], ids=["words", "base64", "cjk"]
)
def test_big_messages_come_back_whole(any_db: Any, content: str) -> None:
    any_db.create_session("s", "cli")
    any_db.append_message("s", "tool", content)
    assert any_db.get_messages("s")[0]["content"] == content
    assert any_db.get_messages_as_conversation("s")[0]["content"] == content


def test_a_nul_reads_the_same_everywhere(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    wanted = any_db.append_message("s", "user", "before\x00after it")
    assert any_db.get_messages("s")[0]["content"] == "before\x00after it"
    assert any_db.get_messages_as_conversation("s")[0]["content"] == "before\x00after it"
    assert any_db.list_sessions_rich()[0]["preview"] == "before after it"
    for query in ("before", "after", '"before after"'):
        (hit,) = any_db.search_messages(query)
        assert hit["id"] == wanted
        assert "\x00" not in hit["snippet"]
        assert hit["context"][0]["content"] == "before after it"


def test_a_session_that_begins_with_a_content_list_has_a_preview_of_its_text(db: Any, s: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    db.append_message(s, "user", [image, {"type": "text", "text": "what is\nthis?"}])
    assert db.list_sessions_rich()[0]["preview"] == "what is this?"


@pytest.mark.parametrize(
    "content", [Hostile(), {1: {2}}, [b"\xff"], float("inf"), [float("nan")], SURROGATE, [SURROGATE]]
)
def test_an_export_is_always_json(db: Any, s: str, content: Any) -> None:
    db.append_message(s, "assistant", content, tool_calls=[content], reasoning_details=[content])
    assert json.loads(json.dumps(db.export_session(s)))["messages"]
    assert json.loads(json.dumps(db.export_all(), allow_nan=False))[0]["id"] == s


LISTED = "\x00json:" + '[{"type": "text", "text": "inside the list 列表"}]'
INSERT = "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 5.0)"


@pytest.mark.parametrize("how", ["replace", "clear", "delete", "sql"])
def test_content_lists_of_another_program_leave_the_indexes_whole(
    any_db: Any, elsewhere: Any, hits: Any, how: str
) -> None:
    any_db.create_session("s", "cli")
    elsewhere(any_db.db_path, (INSERT, (LISTED,)), (INSERT, ("plain text",)))
    assert hits(any_db, "inside") == hits(any_db, "列表") == {1}
    if how != "sql":
        elsewhere(any_db.db_path, ("UPDATE messages SET token_count = 1", ()), (INSERT, ("another",)))
    assert hits(any_db, '"the list"') == {1}
    if how == "replace":
        any_db.replace_messages("s", [{"role": "user", "content": "new"}])
    elif how == "clear":
        any_db.clear_messages("s")
    elif how == "delete":
        any_db.delete_session("s")
    else:
        any_db._conn.execute("DELETE FROM messages")
    assert hits(any_db, "inside") == hits(any_db, "plain") == set()
    for table in ("messages_fts", "messages_fts_trigram"):
        any_db._conn.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
