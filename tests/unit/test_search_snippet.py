"""Snippets: what is marked, where they are cut, and that nothing makes them long or slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_store import add, index, store

from hermes_state.search import plan, run, snippet


def make(query: str, text: str) -> str:
    return snippet.Marker(plan.build(None, query).wanted).snippet(text)


@pytest.mark.parametrize(
    ("query", "text", "wanted"),
    [
        ("docker", "use docker now", "use >>>docker<<< now"),
        ("DOCKER", "use Docker now", "use >>>Docker<<< now"),
        ("dock", "docker dock docked", "docker >>>dock<<< docked"),
        ("dock*", "docker dock", ">>>docker<<< >>>dock<<<"),
        ("cafe", "un Café noir", "un >>>Café<<< noir"),
        ("café", "un cafe noir", "un >>>cafe<<< noir"),
        ("chat-send", "the chat_send call", "the >>>chat_send<<< call"),
        ('"use docker"', "we use docker; use it", "we >>>use docker<<<; use it"),
        ("a,b", "a b c", ">>>a<<< >>>b<<< c"),
        ("youer", "修改youer服务端", "修改>>>youer<<<服务端"),
        ("桂", "末尾桂", "末尾>>>桂<<<"),
        ("广西", "在广西桂林", "在>>>广西<<<桂林"),
        ("广西 西桂", "在广西桂林", "在>>>广西桂<<<林"),
        ("100%选品", "做100%选品", "做>>>100%选品<<<"),
        ("改ÉA", "修改éa", "修>>>改éa<<<"),
        ("docker NOT cat", "cat docker", "cat >>>docker<<<"),
        ("İ桂", "İİ桂", "İ>>>İ桂<<<"),
        ("docker", "  docker  ", "  >>>docker<<<"),
        ("docker", "nothing here", "nothing here"),
        ("docker", "", ""),
    ],
)
def test_what_the_user_typed_is_marked(query: str, text: str, wanted: str) -> None:
    assert make(query, text) == wanted


def test_a_long_text_is_cut_on_both_sides_with_words_whole() -> None:
    words = [f"word{i}" for i in range(200)]
    made = make("word100", " ".join(words))
    assert made.startswith("...word")
    assert made.endswith("...")
    assert ">>>word100<<<" in made
    assert 35 <= len(made.split()) <= 41


def test_the_beginning_of_a_text_has_no_ellipsis_before_it() -> None:
    made = make("first", "first " + "more " * 100)
    assert made.startswith(">>>first<<< more")
    assert made.endswith("more...")


def test_the_end_of_a_text_has_no_ellipsis_behind_it() -> None:
    made = make("last", "more " * 100 + "last  ")
    assert made.startswith("...")
    assert made.endswith(">>>last<<<")


def test_chinese_text_gets_a_snippet_of_ordinary_length() -> None:
    made = make("桂", "广西漓江" * 300 + "桂" + "广西漓江" * 300)
    assert ">>>桂<<<" in made
    assert len(made) < 120


def test_the_place_with_most_of_the_terms_is_shown() -> None:
    text = "docker " + "x " * 400 + "docker with networking" + " y" * 400
    assert ">>>docker<<< with >>>networking<<<" in make("docker networking", text)


def test_a_hit_in_a_word_without_end_has_a_short_snippet() -> None:
    for text in ("x" * 200_000 + " needle " + "y" * 200_000, "中" * 100_000 + "needle" + "文" * 100_000):
        made = make("needle", text)
        assert ">>>needle<<<" in made
        assert len(made) <= snippet.CHARS + 20
    assert len(make("x*", "x" * 200_000)) <= snippet.CHARS + 20


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("a", "a" * 1_000_000),
        ("a", "a " * 500_000),
        ("a.a.a.a.a.a.a.b", "a " * 500_000),
        ("a.b", "a" + " " * 1_000_000),
        ("ab", "a" * 1_000_000),
        ("é", "e\u0301" * 300_000),
        ("中" * 500, "中" * 300_000),
        ("x*", "中x" * 300_000),
        ("x" * 9_000, "x" * 9_000),
        (".".join("xy" * 3_000), " ".join("xy" * 3_000)),
        (" ".join(f"w{i}" for i in range(60)), " ".join(f"w{i % 60}" for i in range(200_000))),
    ],
)
def test_hostile_texts_are_read_in_linear_time(query: str, text: str) -> None:
    assert len(make(query, text)) <= snippet.CHARS + 1000


def test_a_hit_on_the_tool_name_or_the_call_alone_gives_a_snippet() -> None:
    conn = store()
    add(conn, None, "web_search", [{"function": {"name": "f", "arguments": '{"q": "中文参数"}'}}])
    index(conn)
    for query, marked in (
        ("web_search", ">>>web_search<<<"),
        ("中文参数", ">>>中文参数<<<"),
        ("参", ">>>参<<<"),
    ):
        (hit,) = run.search(conn, query)
        assert marked in hit["snippet"]


pieces = st.lists(
    st.sampled_from(["docker", "Dé", "e\u0301", "中", "文", " ", "_", "-", "İ", "ß", "🎉", "x" * 300]),
    max_size=30,
)


@given(query=pieces.map("".join), text=pieces.map("".join))
def test_without_its_marks_a_snippet_is_a_piece_of_the_text(query: str, text: str) -> None:
    made = make(query, text)
    bare = made.replace(">>>", "").replace("<<<", "").removeprefix("...").removesuffix("...")
    assert bare in text
    assert made.count(">>>") == made.count("<<<")
    assert len(bare) <= snippet.CHARS


@given(st.text("ab1 _-.\n\x00", max_size=600), st.integers(0, 600), st.integers(0, 600))
def test_ascii_is_cut_where_text_of_any_script_is_cut(text: str, one: int, other: int) -> None:
    start, end = min(one, other, len(text)), min(max(one, other), len(text))
    assert snippet._ascii_cut(text, start, end) == snippet._cut(text, start, end)
    assert snippet._ascii_begin(text, end) == snippet._begin(text, end)
