"""The query_text kernel: the twins do alike, and FTS5 accepts every string it makes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property.kernel_values import ODD
from property.twins import both, same

PIECES = [
    "cat", "x9", "é", "e\u0301", "_", "-", ".", ":", "*", '"', "(", ")", "+", "^", "{", "}", "'", "\\",
    "\x00", "\ud800", "\udc00", " ", "  ", "AND", "OR", "NOT", "NEAR", " AND ", " OR ", " NOT ", "中", "文字",
    "，", "「", "ก", "🎉", "\ue000", "\u3000", "\x1c",
]  # fmt: skip
queries = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
LONG = [
    "word " * 4000, "a" * 1_000_000, '"' * 10_000, '" ' * 5_000, "a OR " * 4000 + "b", "a.b " * 3000,
    "a." * 5000,
    "中" * 20_000, "中%" * 9000, "🎉" * 20_000, "\u0301" * 20_000, " ".join(f"w{i} OR" for i in range(3000)),
    " ".join(f"NOT w{i}:x" for i in range(3000)), "*" * 20_000, "a*" * 9000,
]  # fmt: skip
FUNCTIONS = ["tokenize", "groups", "sanitize"]


@pytest.mark.parametrize("function", FUNCTIONS)
@given(query=queries)
@example(query="a OR NOT b AND (c) OR a NOT b")
@example(query="a OR b OR a OR b")
def test_twins_do_alike(function: str, query: str) -> None:
    same("query_text", function, query)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("query", [*ODD, *LONG], ids=range(len(ODD) + len(LONG)))
def test_twins_do_alike_with_odd_and_long_queries(function: str, query: Any) -> None:
    same("query_text", function, query)


class Fts:
    """Empty indexes to try a MATCH on."""

    def __init__(self) -> None:
        self.conn = apsw.Connection(":memory:")
        self.conn.execute("CREATE VIRTUAL TABLE words USING fts5(content)")
        self.conn.execute("CREATE VIRTUAL TABLE grams USING fts5(content, tokenize='trigram')")

    def accepts(self, query: str) -> bool:
        if query:
            self.conn.execute("SELECT * FROM words WHERE words MATCH ?", (query,)).fetchall()
            self.conn.execute("SELECT * FROM grams WHERE grams MATCH ?", (query,)).fetchall()
        return True


FTS = Fts()


@pytest.mark.parametrize("twin", both("query_text"))
@given(query=queries)
def test_fts5_accepts_whatever_comes_out(twin: ModuleType, query: str) -> None:
    assert FTS.accepts(twin.sanitize(query))


@pytest.mark.parametrize("twin", both("query_text"))
@pytest.mark.parametrize("query", LONG, ids=range(len(LONG)))
def test_fts5_accepts_what_long_queries_give(twin: ModuleType, query: str) -> None:
    assert FTS.accepts(twin.sanitize(query))
    groups = twin.groups(query)
    assert sum(len(terms) for group in groups for _, terms in group) <= twin.MAX_TERMS


CASES = {
    "hello world": "hello world",
    '"exact phrase"': '"exact phrase"',
    "chat-send": '"chat-send"',
    "my-app.config.ts": '"my-app.config.ts"',
    "sp_new1": '"sp_new1"',
    "hello AND": "hello",
    "OR world": "world",
    "***": "",
    "deploy*": "deploy*",
    "deploy.*": "deploy*",
    "dep*loy": "dep loy",
    '"foo ba"*': '"foo ba"*',
    "python NOT java": "python NOT java",
    "a NOT b c": "a AND c NOT b",
    "a OR NOT b": "a NOT b",
    "a AND NOT b": "a NOT b",
    "a NOT 9:30": "a NOT (9 AND 30)",
    "docker AND OR kubernetes": "docker OR kubernetes",
    "AND NOT docker": "docker",
    "NOT docker": "",
    "NOT docker OR cat": "cat",
    "OR OR docker": "docker",
    "docker NOT": "docker",
    "and or not": "and or not",
    "NEAR(docker kubernetes)": '"NEAR" docker kubernetes',
    "(AND)": '"AND"',
    "src/main.py": 'src "main.py"',
    "C++": "C",
    'say "fix issue': "say fix issue",
    "docker -python": "docker python",
    "foo-": "foo",
    "#123": "123",
    "word word word": "word",
    "100%选品": '"100%选品"',
    "的_录": '"的_录"',
    "考勤*": '"考勤"',
    "你好，world": '"你好" world',
    "a\x00b": "a b",
    "a\ud800b": "ab",
    "": "",
}


@pytest.mark.parametrize("twin", both("query_text"))
@pytest.mark.parametrize("query", CASES, ids=range(len(CASES)))
def test_queries_and_what_fts5_is_asked(twin: ModuleType, query: str) -> None:
    assert twin.sanitize(query) == CASES[query]


@pytest.mark.parametrize("twin", both("query_text"))
def test_none_is_the_empty_query_and_other_types_are_refused(twin: ModuleType) -> None:
    assert twin.sanitize(None) == ""
    with pytest.raises(TypeError, match="query must be a str, not bytes"):
        twin.sanitize(b"docker")


@pytest.mark.parametrize("twin", both("query_text"))
def test_a_query_that_is_cut_keeps_whole_words_only(twin: ModuleType) -> None:
    for size in range(3):
        assert twin.sanitize("x" * size + " " + "docker " * 4000) in ("docker", "x docker", "xx docker")
    assert twin.sanitize("x" * 20_000) == "x" * twin.MAX_QUERY_CHARS
