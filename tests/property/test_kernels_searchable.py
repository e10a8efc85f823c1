"""The searchable kernel: the twins do alike, and plain rows are v11's expression to the byte."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import apsw
import corpus
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property.kernel_values import ODD
from property.twins import both, same

EXPRESSION = "SELECT COALESCE(?1,'') || ' ' || COALESCE(?2,'') || ' ' || COALESCE(?3,'')"
PIECES = [
    "a", "中", "ก", "\\", "\\u", "\\\\u", "4e2d", "d83d", "de00", "DC00", "0041", "00", '"', "\x00", "\ud83d",
    "\ude00", " ", "é",
]  # fmt: skip
pieces = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), pieces, st.just("data:image/png;base64,AAAA"))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["type", "text", "content", "url", "value"]), inner, max_size=4),
    ),
    max_leaves=12,
)
columns = st.one_of(
    st.none(), st.text(), pieces, st.binary(max_size=8), st.integers(), st.floats(),
    values.map(lambda value: "\x00json:" + json.dumps(value)), pieces.map(lambda text: "\x00json:" + text),
)  # fmt: skip


@given(columns, columns, columns)
@example("中", None, None)
@example("", "中", None)
@example("", "", "中]")
@example("x" * 1_000_001, None, None)
@example("", "", r"\\\u4e2d\\u6587\ud83d\ude00\ud83d\u0022\u000a")
def test_twins_do_alike(content: object, tool_name: object, tool_calls: object) -> None:
    same("searchable", "text", content, tool_name, tool_calls)
    same("searchable", "is_plain", content, tool_name, tool_calls)


@given(values)
def test_twins_find_the_same_parts(value: object) -> None:
    same("searchable", "parts", value)


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("place", range(3))
def test_twins_do_alike_with_odd_values(value: Any, place: int) -> None:
    columns: list[Any] = ["text", "name", "[1]"]
    columns[place] = value
    same("searchable", "text", *columns)
    same("searchable", "is_plain", *columns)
    same("searchable", "parts", value)


storable = st.one_of(
    st.none(), st.text(alphabet=st.characters(codec="utf-8")), st.sampled_from(["中", "a]", r"\u4e2d"])
)


@pytest.mark.parametrize("twin", both("searchable"))
@given(content=storable, tool_name=storable, tool_calls=storable)
def test_plain_is_the_expression_of_v11(
    twin: ModuleType, content: Any, tool_name: Any, tool_calls: Any
) -> None:
    conn = apsw.Connection(":memory:")
    (expression,) = conn.execute(EXPRESSION, (content, tool_name, tool_calls)).fetchone()
    own = twin.text(content, tool_name, tool_calls)
    assert twin.is_plain(content, tool_name, tool_calls) == (own == expression) or r"\u" in (tool_calls or "")
    if twin.is_plain(content, tool_name, tool_calls):
        assert own == expression


@pytest.mark.parametrize("twin", both("searchable"))
class TestEach:
    def test_only_the_text_of_a_content_list_is_searched(self, twin: ModuleType) -> None:
        parts = [
            {"type": "text", "text": "hello"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            {"type": "tool_result", "content": [{"type": "text", "text": "inner"}]},
            "bare",
        ]
        assert twin.text("\x00json:" + json.dumps(parts), None, None) == "hello\ninner\nbare  "

    def test_a_broken_content_list_is_searched_as_it_is_stored(self, twin: ModuleType) -> None:
        assert twin.text('\x00json:[{"text"', None, None) == ' json:[{"text"  '

    def test_escapes_in_tool_calls_and_in_their_arguments_are_read(self, twin: ModuleType) -> None:
        calls = json.dumps([{"function": {"arguments": json.dumps({"q": "中文😀"})}}])
        assert "中文😀" in twin.text(None, None, calls)
        calls = json.dumps([{"function": {"arguments": json.dumps({"q": "中文"}, ensure_ascii=False)}}])
        assert "中文" in twin.text(None, None, calls)

    def test_controls_quotes_and_lone_surrogates_stay_escaped(self, twin: ModuleType) -> None:
        stored = r'["\u0000\u0022\u005c\ud83d"]'
        assert twin.text(None, None, stored) == "  " + stored

    def test_a_long_text_is_cut(self, twin: ModuleType) -> None:
        assert len(twin.text("x" * 3_000_000, "name", "calls")) == twin.MAX_INDEXED_CHARS
        assert not twin.is_plain("x" * 3_000_000, None, None)

    def test_a_last_unspaced_letter_begins_a_trigram(self, twin: ModuleType) -> None:
        assert twin.text("", "工具", None).endswith("具   ")
        assert twin.text("", None, "[中]").endswith("中]  ")

    def test_a_million_backslashes_are_read_once(self, twin: ModuleType) -> None:
        assert len(twin.text("", "", "\\" * 900_000 + "u12")) == 900_005


def test_the_conversations_give_both_twins_the_same_texts() -> None:
    for session in corpus.sessions(limit=400):
        for message in session["messages"]:
            content = message.get("content")
            if not isinstance(content, str | None):
                content = "\x00json:" + json.dumps(content)
            calls = message.get("tool_calls")
            stored = json.dumps(calls) if calls else None
            same("searchable", "text", content, message.get("tool_name"), stored)
            same("searchable", "is_plain", content, message.get("tool_name"), stored)
