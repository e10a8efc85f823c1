"""The json_text kernel: the twins do alike, agree with the stdlib, and every parser reads the result."""

from __future__ import annotations

import json
import math
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property.kernel_values import ODD, Items, Mute, Pairs, corpus_messages, nested, plain_json, texts, values
from property.twins import both, outcome, same, same_fresh


def refuse(token: str) -> Any:
    raise AssertionError(f"{token} is no JSON")


@given(values)
def test_twins_write_alike_and_strict_parsers_read_it(value: Any) -> None:
    kind, *rest = same("json_text", "dumps", value)
    if kind == "value":
        ((exact, text),) = rest
        assert exact is str
        text.encode()
        json.loads(text, parse_constant=refuse)


@given(plain_json)
def test_result_is_that_of_the_stdlib(value: Any) -> None:
    assert same("json_text", "dumps", value) == ("value", (str, json.dumps(value, ensure_ascii=False)))


@given(texts)
@example("\ud83d" * 3 + "\ude00")
def test_any_text_comes_back_with_its_pairs_joined(text: str) -> None:
    _, (_, written) = same("json_text", "dumps", text)
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert json.loads(written) == joined


@given(st.text(st.sampled_from('ab"\\\x1f\x20\x7f\n'), max_size=70), st.integers(0, 9))
def test_escapes_are_found_at_every_offset(text: str, shift: int) -> None:
    text = "x" * shift + text
    assert same("json_text", "dumps", text) == ("value", (str, json.dumps(text, ensure_ascii=False)))


@given(texts)
def test_surrogates_in_json_text_are_escaped_alike(text: str) -> None:
    _, (_, escaped) = same("json_text", "escape_surrogates", text)
    escaped.encode()


@given(st.floats() | st.integers())
def test_numbers_are_those_of_the_stdlib(number: float) -> None:
    expected = json.dumps(number) if math.isfinite(number) else "null"
    assert same("json_text", "dumps", number) == ("value", (str, expected))


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_twins_do_alike_with_odd_values(value: Any) -> None:
    same("json_text", "dumps", value)
    same("json_text", "dumps", [value, {"key": (value,)}])
    if isinstance(value, str):
        same("json_text", "escape_surrogates", value)


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("depth", [1, 199, 200, 201, 5000, 100_000])
def test_nesting_is_written_to_200_levels_and_refused_beyond(kind: type, depth: int) -> None:
    value = nested(depth, kind)
    result = same("json_text", "dumps", value)
    if depth <= 200:
        assert result == ("value", (str, json.dumps(value)))
    else:
        assert result[:2] == ("raised", ValueError)
        assert "200 levels" in result[2]


def test_values_that_contain_themselves_are_refused() -> None:
    loop: list[Any] = [1]
    loop += [loop, loop]
    knot: dict[str, Any] = {}
    knot["k"] = [knot]
    for value in (loop, knot, Items([loop]), Pairs(k=knot)):
        assert same("json_text", "dumps", value)[:2] == ("raised", ValueError)


def test_values_that_change_while_they_are_written_are_written_as_they_were() -> None:
    class Changing:
        def __init__(self, target: Any) -> None:
            self.target = target

        def __str__(self) -> str:
            if isinstance(self.target, dict):
                for i in range(50):
                    self.target[f"new{i}"] = 1
                self.target.pop("last", None)
            else:
                self.target.clear()
            return "changed"

    def changing_dict() -> tuple[Any, ...]:
        value: dict[str, Any] = {}
        value.update(first=Changing(value), last=2)
        return (value,)

    def changing_list() -> tuple[Any, ...]:
        value: list[Any] = []
        value += [Changing(value), 2]
        return (value,)

    assert same_fresh("json_text", "dumps", changing_dict)[1][1] == '{"first": "changed", "last": 2}'
    assert same_fresh("json_text", "dumps", changing_list)[1][1] == '["changed", 2]'


def test_real_tool_calls_are_those_of_the_stdlib() -> None:
    for message in corpus_messages():
        for value in (message.get("tool_calls"), message.get("content")):
            if value is not None:
                expected = json.dumps(value, ensure_ascii=False)
                assert same("json_text", "dumps", value) == ("value", (str, expected))


@pytest.mark.parametrize("twin", both("json_text"))
class TestEach:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("a\ud83d b", '"a\\ud83d b"'),
            ("\ud83c\udf89é", '"🎉é"'),
            ([float("nan"), float("-inf")], "[null, null]"),
            ({float("nan"): 1, float("inf"): 2, None: 3, True: 4, 7: 5}, None),
            ((1, (2,)), "[1, [2]]"),
            (b"\xff", json.dumps(str(b"\xff"))),
            (Mute(), '"<Mute>"'),
            ({Mute(): Mute()}, '{"<Mute>": "<Mute>"}'),
            ({"b": 1, "a": {}}, '{"b": 1, "a": {}}'),
        ],
        ids=range(9),
    )
    def test_text_of(self, twin: ModuleType, value: Any, text: str | None) -> None:
        expected = text if text is not None else json.dumps(value)
        assert twin.dumps(value) == expected

    def test_integer_too_long_to_print_is_its_hexadecimal_text(self, twin: ModuleType) -> None:
        assert json.loads(twin.dumps([-(10**5000)])) == [hex(-(10**5000))]

    def test_long_texts_grow_the_buffer(self, twin: ModuleType) -> None:
        for unit in ("a", '"', "\x01", "é", "中", "😀", "\ud800", "a中\n"):
            value = [unit * 200_000, {unit * 5: unit * 3000}]
            assert json.loads(twin.dumps(value)) == value

    def test_interrupts_are_not_swallowed(self, twin: ModuleType) -> None:
        class Interrupting:
            def __str__(self) -> str:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            outcome(twin.dumps, [Interrupting()])
