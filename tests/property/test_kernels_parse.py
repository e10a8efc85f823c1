"""The json_parse kernel: both twins do what ``json.loads`` does, with good text and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property.kernel_values import ODD, corpus_messages, nested, plain_json, texts
from property.twins import outcome, same

PIECES = [
    *(
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        '"',
        "\\",
        "\\u",
        "\\ud83d",
        "\\ude00",
        "\\n",
        "\\/",
        "\\x",
        "d83d",
        "中",
        "😀",
    ),
    *(
        "\ud83d",
        "true",
        "false",
        "null",
        "NaN",
        "-Infinity",
        "0",
        "-",
        "1",
        "12.5",
        "e",
        "E+3",
        ".",
        " ",
        "\n",
    ),
    *("\t", "\x00", "\x1f", "\x7f", "\xa0", "\xff", "a", '"key"', '"k": 1', "999999999999999999"),
]
soups = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def is_that_of_the_stdlib(text: Any) -> None:
    result = same("json_parse", "loads", text)
    assert result == outcome(json.loads, text)


@given(plain_json, st.booleans(), st.sampled_from([None, 1]))
def test_json_of_any_value_is_read(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    is_that_of_the_stdlib(text)
    assert same("json_parse", "loads", "\x00json:" + text, 6) == outcome(json.loads, text)


@given(soups)
@example('"\\ud83d\\ud83d\\ude00\\ud83d"')
@example('"\\ud83d\\u00')
@example('{"a": 1, "a": 2}')
def test_text_of_the_pieces_of_json_is_read_or_refused_alike(text: str) -> None:
    for whole in (text, f"[{text}]", f'["{text}"]', f'{{"{text}": 1}}'):
        is_that_of_the_stdlib(whole)


@given(plain_json, st.integers(0, 60), st.sampled_from([*PIECES, ""]), st.integers(0, 3))
def test_damaged_json_is_read_or_refused_alike(value: Any, at: int, piece: str, cut: int) -> None:
    text = json.dumps(value)
    is_that_of_the_stdlib(text[:at] + piece + text[at + cut :])


@given(texts)
def test_strings_of_any_characters_are_read_alike(text: str) -> None:
    is_that_of_the_stdlib(json.dumps(text))
    is_that_of_the_stdlib(json.dumps(text, ensure_ascii=False))
    is_that_of_the_stdlib(f'["{text}", "é"]')


@given(st.floats() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False).map(str))
@example(-0.0)
@example("1e999")
@example("-0")
@example("01")
@example("1.")
@example("-")
@example(".5")
@example("1" * 18)
@example("1" * 19)
@example("-" + "9" * 18)
@example("0." + "1" * 50)
@example("1" * 5000)
def test_numbers_are_read_alike(number: Any) -> None:
    is_that_of_the_stdlib(f"{number}")
    is_that_of_the_stdlib(f" [{number},{number}e5]")


@given(st.text(st.sampled_from('ab"\\\x1f\x20\x7f\xa0\n'), max_size=70), st.integers(0, 9))
def test_ends_and_escapes_are_found_at_every_offset(text: str, shift: int) -> None:
    is_that_of_the_stdlib(json.dumps("x" * shift + text, ensure_ascii=False))
    is_that_of_the_stdlib('"' + "x" * shift + text + '"')


@pytest.mark.parametrize("depth", [1, 199, 200, 201, 220])
@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_is_read_as_deep_as_the_stdlib_does(depth: int, kind: type) -> None:
    is_that_of_the_stdlib(json.dumps(nested(depth, kind)))


@pytest.mark.parametrize("opening", ["[", '{"k":', '[{"k": '])
def test_nesting_without_end_is_an_error_and_no_crash(opening: str) -> None:
    assert same("json_parse", "loads", opening * 100_000)[:2] == ("raised", RecursionError)


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_twins_do_alike_with_odd_values(value: Any) -> None:
    is_that_of_the_stdlib(value)


def test_keys_that_share_a_slot_are_told_apart() -> None:
    for round_of_keys in range(2):
        keys = [f"{prefix}{i}" for i in range(3000) for prefix in ("", "k", "é")]
        is_that_of_the_stdlib(json.dumps(dict.fromkeys(keys, round_of_keys)))
    is_that_of_the_stdlib(json.dumps({"中": {"role": 1}, "role": 2}, ensure_ascii=False))


def test_long_strings_grow_the_scratch() -> None:
    for unit in ("a\n", "é\n", "中\\", "😀\t", '"'):
        for ascii_only in (True, False):
            is_that_of_the_stdlib(json.dumps([unit * 50_000, unit * 10], ensure_ascii=ascii_only))


def test_real_messages_are_read_alike() -> None:
    for message in corpus_messages():
        for ascii_only in (True, False):
            is_that_of_the_stdlib(json.dumps(message, ensure_ascii=ascii_only))
