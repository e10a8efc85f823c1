"""The scripts kernel: the twins do alike, and its tables are the tokenizer's and Unicode's."""

from __future__ import annotations

import unicodedata
from types import ModuleType
from typing import Any

import apsw
import pytest
from hermes_state._fastpath import scripts_tables
from hypothesis import given
from hypothesis import strategies as st
from property.kernel_values import ODD
from property.twins import both, same

FUNCTIONS = ["has_unspaced", "count_cjk", "runs", "has_mixed", "split_mixed"]
LETTERS = "aZ9é\u0301\u0325 _-.中文ーｶ한ไ\u0e31𠮷々🎉㎏\ue000\x00\ud800\uffff"
texts = st.one_of(st.text(), st.text(alphabet=LETTERS), st.text(alphabet="aé\u0301中 "))


@pytest.mark.parametrize("function", FUNCTIONS)
@given(text=texts)
def test_twins_do_alike(function: str, text: str) -> None:
    same("scripts", function, text)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_twins_do_alike_with_odd_values(function: str, value: Any) -> None:
    same("scripts", function, value)


def code_points(ranges: scripts_tables.Ranges) -> set[int]:
    return {code for first, last in ranges for code in range(first, last + 1)}


def test_token_characters_are_those_of_the_unicode61_tokenizer() -> None:
    tokenizer = apsw.Connection(":memory:").fts5_tokenizer("unicode61", [])
    alone, inside = set(), set()
    for code in [*range(1, 0xD800), *range(0xE000, 0x110000)]:
        if tokenizer(chr(code).encode(), apsw.FTS5_TOKENIZE_QUERY, None):
            alone.add(code)
        elif code < 0x3000:
            made = tokenizer(f"a{chr(code)}b".encode(), apsw.FTS5_TOKENIZE_QUERY, None)
            if len(list(made)) == 1:
                inside.add(code)
    assert code_points(scripts_tables.TOKEN) == alone
    assert code_points(scripts_tables.DIACRITIC) == inside


def test_every_bracket_and_quotation_mark_parts_sentences() -> None:
    known = code_points(scripts_tables.SENTENCE) | code_points(scripts_tables.UNSPACED)
    for code in range(0x30000):
        if unicodedata.category(chr(code)) in ("Ps", "Pe", "Pi", "Pf"):
            assert code in known, hex(code)


@pytest.mark.parametrize("twin", both("scripts"))
class TestEach:
    @pytest.mark.parametrize(
        "text",
        ["中", "か", "カ", "ｶ", "ﾞ", "ㄅ", "한", "ㅎ", "ﾡ",
         "ก", "ລ", "ក", "မ", "བོ", "𠮷", "々", "〆", "ー", "〇", "⺀"],
    )  # fmt: skip
    def test_letters_of_scripts_without_spaces(self, twin: ModuleType, text: str) -> None:
        assert twin.has_unspaced(text)
        assert twin.count_cjk(text) == len(text)

    @pytest.mark.parametrize(
        "text", ["", "abc", "é", "Привет", "日".encode().hex(), "。、", "「」", "1,2", "🎉", "ع"]
    )
    def test_other_text_has_none(self, twin: ModuleType, text: str) -> None:
        assert not twin.has_unspaced(text)
        assert twin.count_cjk(text) == 0
        assert twin.split_mixed(text) == text

    def test_runs_cover_the_text(self, twin: ModuleType) -> None:
        assert twin.runs("a中文 b") == [(0, 1, False), (1, 3, True), (3, 5, False)]
        assert twin.runs("") == []

    @pytest.mark.parametrize(
        "text", ["修改youer服务端", "中a", "a中", "9時", "e\u0301中", "中\u0301a", "é中"]
    )
    def test_mixed_is_where_letters_touch(self, twin: ModuleType, text: str) -> None:
        assert twin.has_mixed(text)

    @pytest.mark.parametrize("text", ["中 a", "中，a", "中", "a", "a-中", "中%", ""])
    def test_not_mixed_where_something_parts_them(self, twin: ModuleType, text: str) -> None:
        assert not twin.has_mixed(text)

    def test_splitting_puts_one_token_for_a_run(self, twin: ModuleType) -> None:
        assert twin.split_mixed("修改youer服务端!") == " \ue000 youer \ue000 !"


def test_the_quick_test_of_a_block_leaves_no_letter_out() -> None:
    for first, last in scripts_tables.UNSPACED:
        for code in {first, last}:
            assert 0xE00 <= code < 0x1B80 or (code >= 0x2E80 and not 0x1F300 <= code < 0x20000)
