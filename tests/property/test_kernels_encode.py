"""The encode kernel: the twins do alike, and what they bind reads back as what was given."""

from __future__ import annotations

import datetime
import json
from collections import OrderedDict, UserDict
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.kernel_values import (
    ODD,
    Index,
    Mute,
    corpus_messages,
    nested,
    odd_values,
    plain_json,
    texts,
    values,
)
from property.twins import both, outcome, same, same_fresh

MARKER = "\x00json:"
NOW = 1_700_000_000.0
EPOCH = 1714557600.0  # 2024-05-01T10:00:00Z

single = ["encode_content", "decode_content", "encode_json_column", "count_tool_calls"]
any_value = values | odd_values | st.builds(lambda text: MARKER + text, texts)


def message_arguments(**fields: Any) -> tuple[Any, ...]:
    names = [
        *("session_id", "role", "content", "tool_name", "tool_calls", "tool_call_id", "token_count"),
        *("finish_reason", "reasoning", "reasoning_content", "reasoning_details"),
        *("codex_reasoning_items", "codex_message_items", "timestamp", "content_encoder"),
    ]
    plain = {**dict.fromkeys(names), "session_id": "s", "role": "user", "timestamp": NOW}
    return tuple({**plain, **fields}[name] for name in names)


@pytest.mark.parametrize("function", single)
@given(value=any_value)
def test_twins_do_alike_with_any_value(function: str, value: Any) -> None:
    same("encode", function, value)


@pytest.mark.parametrize("function", single)
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_twins_do_alike_with_odd_values(function: str, value: Any) -> None:
    same("encode", function, value)


@pytest.mark.parametrize("field", range(14))
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_twins_do_alike_with_odd_values_in_every_field(field: int, value: Any) -> None:
    arguments = list(message_arguments())
    arguments[field] = value
    same("encode", "encode_message", *arguments)


@given(st.lists(any_value, min_size=14, max_size=14))
def test_twins_do_alike_when_every_field_is_odd(fields: list[Any]) -> None:
    same("encode", "encode_message", *fields)
    same("encode", "encode_message", "s", "user", *fields[2:13], NOW)


keys = st.sampled_from(
    [
        *("role", "content", "tool_name", "tool_calls", "tool_call_id", "token_count", "finish_reason"),
        *("reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items"),
        *("codex_message_items", "timestamp", "id", "session_id", "other"),
    ]
)
message_dicts = st.dictionaries(keys, texts | st.none() | st.integers() | any_value, max_size=6)


@given(
    st.lists(
        message_dicts | message_dicts.map(OrderedDict) | message_dicts.map(UserDict) | odd_values, max_size=3
    )
)
def test_twins_do_alike_with_any_batch(batch: list[Any]) -> None:
    same("encode", "encode_messages", "s", batch, NOW)
    same("encode", "encode_messages", "s", batch, None)


@given(plain_json.filter(lambda value: isinstance(value, list | dict)))
def test_structured_content_reads_back_equal(value: Any) -> None:
    for module in both("encode"):
        stored = module.encode_content(value)
        assert stored == MARKER + json.dumps(value, ensure_ascii=False)
        assert module.decode_content(stored) == value
        assert module.decode_content(MARKER + json.dumps(value)) == value


@given(st.text() | st.text().map(lambda text: MARKER + text))
def test_text_content_reads_back_as_that_text(text: str) -> None:
    for module in both("encode"):
        assert module.decode_content(module.encode_content(text)) == text


@given(any_value)
def test_every_column_can_be_bound_whatever_was_given(value: Any) -> None:
    row = outcome(both("encode")[0].encode_message, *message_arguments(content=value, reasoning=value))
    if row[0] == "value":
        for kind, text in row[1][1][2:3] + row[1][1][9:10]:
            assert kind in (str, type(None))
            assert text is None or text.encode() is not None


@given(plain_json.filter(lambda value: isinstance(value, list | dict) and value))
def test_json_columns_are_encoded_once(value: Any) -> None:
    for module in both("encode"):
        once = module.encode_json_column(value)
        assert module.encode_json_column(once) == once
        assert json.loads(once) == value
        assert module.count_tool_calls(once) == module.count_tool_calls(value)


def test_real_messages_encode_alike_and_read_back() -> None:
    batch = list(corpus_messages())
    kind, (_, rows) = same("encode", "encode_messages", "s", batch, NOW)
    assert kind == "value"
    module = both("encode")[0]
    for message, row in zip(batch, module.encode_messages("s", batch, NOW), strict=True):
        assert module.decode_content(row[2]) == message["content"]
        assert row[14] == len(message.get("tool_calls") or [])
        assert json.loads(row[4] or "[]") == (message.get("tool_calls") or [])
    assert len(rows) == len(batch)


def test_content_encoder_is_called_once_for_each_message_in_order() -> None:
    for module in both("encode"):
        seen: list[Any] = []

        def encoder(content: Any, seen: list[Any] = seen) -> Any:
            seen.append(content)
            return "lone \ud800" if content == 1 else content

        batch = [{"role": "user", "content": content} for content in (1, None, b"x", 2.5)]
        stored = [row[2] for row in module.encode_messages("s", batch, NOW, encoder)]
        assert seen == [1, None, b"x", 2.5]
        assert stored == ["lone \ufffd", None, b"x", 2.5]


def test_what_a_content_encoder_raises_comes_through() -> None:
    def failing(_content: Any) -> Any:
        raise LookupError("mine")

    for arguments in (("s", [{"content": 1}], NOW, failing), ("s", [UserDict(content=1)], NOW, failing)):
        assert same("encode", "encode_messages", *arguments) == ("raised", LookupError, "mine")


def test_generators_and_mappings_of_any_kind_make_a_batch() -> None:
    def make() -> tuple[Any, ...]:
        return "s", (kind(role="user", content="x") for kind in (dict, OrderedDict, UserDict)), NOW

    kind, (_, rows) = same_fresh("encode", "encode_messages", make)
    assert (kind, len(rows)) == ("value", 3)


@pytest.mark.parametrize("twin", both("encode"))
class TestEach:
    @pytest.mark.parametrize(
        ("value", "stored"),
        [
            (None, None),
            ("text", "text"),
            ("", ""),
            ("\x00json:[1]", MARKER + '"\\u0000json:[1]"'),
            ([], MARKER + "[]"),
            ({}, MARKER + "{}"),
            ((1, 2), MARKER + "[1, 2]"),
            (True, "True"),
            (5, "5"),
            (2.5, "2.5"),
            (2**70, str(2**70)),
            (float("-inf"), "-inf"),
            (b"\x00json:[1]", MARKER + '"\\u0000json:[1]"'),
            (memoryview(b"abcd")[::2], "ac"),
            (bytearray(b"\xff"), "\ufffd"),
            ({5}, "{5}"),
            (Mute(), "<Mute>"),
        ],
        ids=range(17),
    )
    def test_content_is_stored_as(self, twin: ModuleType, value: Any, stored: Any) -> None:
        assert twin.encode_content(value) == stored

    @pytest.mark.parametrize("stored", [MARKER, MARKER + "[1", MARKER + "[" * 100_000, MARKER + "1" * 5000])
    def test_broken_json_after_the_marker_is_text(self, twin: ModuleType, stored: str) -> None:
        assert twin.decode_content(stored) == stored

    @pytest.mark.parametrize("stored", [None, 5, 2.5])
    def test_numbers_of_other_programs_stay(self, twin: ModuleType, stored: Any) -> None:
        assert twin.decode_content(stored) is stored

    def test_blobs_of_other_programs_are_text(self, twin: ModuleType) -> None:
        assert twin.decode_content(b"caf\xc3\xa9\xff") == "café\ufffd"
        assert twin.decode_content(b"\x00json:[1]") == [1]

    @pytest.mark.parametrize(
        ("value", "stored", "calls"),
        [
            (None, None, 0),
            ([], None, 0),
            ({}, None, 0),
            ("", None, 0),
            (0, None, 0),
            ([1, 2], "[1, 2]", 2),
            ((1, 2), "[1, 2]", 2),
            ({"a": 1}, '{"a": 1}', 1),
            ('[{"id":"a"},  2]', '[{"id":"a"},  2]', 2),
            ('{"a":1}', '{"a":1}', 1),
            ("[]", "[]", 0),
            ("[NaN, 1]", "[null, 1]", 2),
            ('{"a": Infinity}', '{"a": null}', 1),
            ('["NaN"]', '["NaN"]', 1),
            ("[1", '"[1"', 1),
            ("[NaN", '"[NaN"', 1),
            ("5", '"5"', 1),
            ("plain", '"plain"', 1),
            ('["\ud83d"]', '["\\ud83d"]', 1),
            (5, "5", 1),
            (True, "true", 1),
            (float("nan"), "null", 1),
        ],
        ids=range(22),
    )
    def test_json_column_is_stored_as(self, twin: ModuleType, value: Any, stored: Any, calls: int) -> None:
        assert twin.encode_json_column(value) == stored
        assert twin.count_tool_calls(value) == calls
        row = twin.encode_message(*message_arguments(tool_calls=value))
        assert (row[4], row[14]) == (stored, calls)

    def test_row_is_in_the_order_of_the_columns(self, twin: ModuleType) -> None:
        row = twin.encode_message(
            *("s", "assistant", "c", "tn", [1], "tci", 7, "fr", "r", "rc", [2], [3], [4]), NOW
        )
        assert row == (
            *("s", "assistant", "c", "tci", "[1]", "tn", NOW, 7, "fr", "r", "rc", "[2]", "[3]", "[4]", 1),
        )

    @pytest.mark.parametrize(
        ("given_time", "stored"),
        [
            (5, 5.0),
            (2.5, 2.5),
            ("2024-05-01T10:00:00Z", EPOCH),
            ("2024-05-01 19:00:00.250+09:00", EPOCH + 0.25),
            (datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC), EPOCH),
            ("2024-05-01T10:00:00", datetime.datetime(2024, 5, 1, 10).timestamp()),
            (None, None),
        ],
    )
    def test_timestamp_is_stored_as(self, twin: ModuleType, given_time: Any, stored: Any) -> None:
        row = twin.encode_message(*message_arguments(timestamp=given_time))
        assert row[6] == stored
        assert stored is None or type(row[6]) is float

    @pytest.mark.parametrize(
        ("field", "value", "error", "words"),
        [
            ("session_id", 5, TypeError, "session_id must be str, not int"),
            ("role", None, TypeError, "role must be str, not NoneType"),
            ("timestamp", [], TypeError, "timestamp must be a number.*not list"),
            ("timestamp", True, TypeError, "timestamp must be a number.*not bool"),
            ("timestamp", float("nan"), ValueError, "timestamp must be finite"),
            ("timestamp", 10**400, ValueError, "timestamp is not a time: int out of range"),
            ("timestamp", "soon", ValueError, "timestamp is not a time: 'soon'"),
            ("token_count", "5", TypeError, "token_count must be an int, not str"),
            ("token_count", 2.5, ValueError, "token_count must be a whole number"),
            ("token_count", float("nan"), ValueError, "token_count must be a whole number"),
            ("token_count", 2**63, ValueError, "token_count does not fit in 64 bits"),
            ("content", nested(201), ValueError, "200 levels"),
        ],
        ids=range(12),
    )
    def test_what_cannot_be_stored_is_named(
        self, twin: ModuleType, field: str, value: Any, error: type[Exception], words: str
    ) -> None:
        with pytest.raises(error, match=words):
            twin.encode_message(*message_arguments(**{field: value}))
        if field != "session_id":
            with pytest.raises(error, match=r"messages\[1\]: .*" + words):
                twin.encode_messages("s", [{}, {"role": "user", field: value}], NOW)

    @pytest.mark.parametrize(("value", "stored"), [(True, 1), (7.0, 7), (Index(), 7), (-(2**63), -(2**63))])
    def test_token_count_is_stored_as(self, twin: ModuleType, value: Any, stored: int) -> None:
        count = twin.encode_message(*message_arguments(token_count=value))[7]
        assert (type(count), count) == (int, stored)

    def test_message_that_is_no_mapping_is_named_before_anything_is_encoded(self, twin: ModuleType) -> None:
        seen: list[Any] = []
        with pytest.raises(TypeError, match=r"messages\[1\] must be a mapping, not str"):
            twin.encode_messages("s", [{"content": 1}, "text"], NOW, seen.append)
        assert seen == []
        with pytest.raises(TypeError, match="messages must be a list of mappings, not int"):
            twin.encode_messages("s", 5, NOW)

    def test_missing_role_is_unknown_and_keys_of_rows_are_passed_over(self, twin: ModuleType) -> None:
        (row,) = twin.encode_messages("s", [{"id": 9, "session_id": "t", "name": "n"}], NOW)
        assert row == ("s", "unknown", None, None, None, None, NOW, *[None] * 7, 0)

    def test_missing_timestamps_rise_by_a_microsecond(self, twin: ModuleType) -> None:
        batch = [{}, {"timestamp": 5}, {}, {"timestamp": None}]
        stamps = [row[6] for row in twin.encode_messages("s", batch, NOW)]
        assert stamps == [NOW, 5.0, NOW + 2e-6, NOW + 3e-6]
        assert [row[6] for row in twin.encode_messages("s", batch, None)] == [None, 5.0, None, None]

    def test_structured_reasoning_is_json_text(self, twin: ModuleType) -> None:
        row = twin.encode_message(*message_arguments(reasoning=[{"a": 1}], reasoning_content=b"x"))
        assert row[9:11] == ('[{"a": 1}]', "x")
