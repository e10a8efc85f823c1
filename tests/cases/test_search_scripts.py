"""Scripts without spaces, substrings, snippets and contexts: cases 14 to 23 from the field."""

from __future__ import annotations

import base64
from typing import Any

import pytest


def test_operators_work_in_chinese_as_in_english(any_db: Any, stored: Any, hits: Any) -> None:
    both, first, second, draft, none = stored("广西的桂林", "广西南宁", "桂林山水", "报告的草稿", "报告 初版")
    assert hits(any_db, "广西 AND 桂林") == {both}
    assert hits(any_db, "广西 桂林") == {both}
    assert hits(any_db, "报告 NOT 草稿") == {none}
    assert hits(any_db, "报告 初版") == {none}
    assert hits(any_db, "广西 OR 桂林 OR 漓江") == {both, first, second}
    assert hits(any_db, "广西 NOT 桂林 OR 草稿") == {first, draft}


TEXTS = [
    "桂林", "去桂", "桂", "在广西的桂林市里", "林桂", "한국어로 검색", "검색을 한다", "검",
    "日本語のテキスト", "テキ", "ภาษาไทยไม่มีช่องว่าง", "ไทย", "mixed 桂 in English", "end with 桂",
    "桂,林", "桂 林", "ＡＢＣ桂",
    "ខ្មែរ", "བོད", "𠮷野家で食べる", "ﾊﾝｶｸ ｶﾅ", "no letters of it",
]  # fmt: skip


def test_a_term_of_an_unspaced_script_matches_every_row_that_holds_it_whatever_its_length(
    any_db: Any, stored: Any, hits: Any
) -> None:
    ids = stored(*TEXTS)
    for query in [
        "桂",
        "桂林",
        "广西",
        "广西的",
        "的桂林市",
        "林",
        "검",
        "검색",
        "검색을",
        "국어로",
        "テキ",
        "テキスト",
        "語の",
        "の",
        "ไทย",
        "ไท",
        "ย",
        "𠮷",
        "𠮷野",
        "𠮷野家",
        "ｶｸ",
        "ﾊﾝｶｸ",
        "ｶ",
        "漓",
        "漓江",
        "漓江水",
        "ខ្មែ",
        "བོ",
    ]:
        assert hits(any_db, query) == {i for i, text in zip(ids, TEXTS, strict=True) if query in text}


@pytest.mark.parametrize("place", ["content", "tool_name", "tool_calls"])
def test_the_last_letter_of_each_column_is_found(any_db: Any, hits: Any, place: str) -> None:
    any_db.create_session("s", "cli")
    values: dict[str, Any] = {"content": "字在尾末"}
    if place == "tool_name":
        values = {"tool_name": "字在尾末"}
    elif place == "tool_calls":
        values = {"tool_calls": '["字在尾末"]'}
    wanted = any_db.append_message("s", "tool", **values)
    any_db.append_message("s", "tool", "other")
    for query in ("末", "尾末", "在尾末"):
        assert hits(any_db, query) == {wanted}, query


def check_each(db: Any, hits: Any, cases: list[tuple[str, str, bool]]) -> None:
    """Store every text of ``(text, query, found)`` and see whether the query hits that very text."""
    db.create_session("s", "cli")
    ids = db.append_messages("s", [{"role": "user", "content": text} for text, _, _ in cases])
    for wanted, (text, query, found) in zip(ids, cases, strict=True):
        assert (wanted in hits(db, query)) is found, (text, query)


def test_wildcards_of_sql_are_literal(any_db: Any, hits: Any) -> None:
    check_each(
        any_db,
        hits,
        [
            ("考勤", "考勤*", True),
            ("考勤表", "考勤*", True),
            ("的记录", "的_录", False),
            ("的_录", "的_录", True),
            ("100%选品", "100%选品", True),
            ("100个选品", "100%选品", False),
            ("选品", "%选品", True),
            ("AB选品", "ab选品", True),
            ("选品\\路径", "选品\\路径", True),
            ("选品x路径", "选品\\路径", False),
            ("选品'路径", "选品'路径", True),
        ],
    )


def test_a_letter_of_an_unspaced_script_is_a_word_boundary(any_db: Any, hits: Any) -> None:
    check_each(
        any_db,
        hits,
        [
            ("修改youer服务端的计划", "youer", True),
            ("修改YouEr服务端", "youer", True),
            ("修改youer服务端", "you", False),
            ("修改youer服务端", "you*", True),
            ("concat中文", "cat", False),
            ("中文concat", "cat", False),
            ("中文cat", "cat", True),
            ("cat中文", "cat", True),
            ("한글docker한글", "docker", True),
            ("版本42号", "42", True),
            ("版本142号", "42", False),
            ("テストAPIです", "api", True),
            ("ไทยdockerไทย", "docker", True),
            ("修改youer 服务", '"youer"', True),
            ("用docker compose部署", '"docker compose"', True),
            ("用docker部署compose", '"docker compose"', False),
            ("用docker部署compose", "docker compose", True),
            ("用Docker-Compose部署", "docker-compose", True),
            ("部署café吧", "cafe", True),
            ("a桂b", "b", True),
            ("修改youer服务端", "NOT youer", False),
            ("修改youer服务端", "修改 NOT youer", False),
            ("修改other服务端", "修改 NOT youer", True),
        ],
    )


def test_a_query_of_several_scripts_needs_all_its_terms(any_db: Any, stored: Any, hits: Any) -> None:
    every, _, _, _, glued = stored(
        "PPT 大别山项目 的考勤", "PPT 大别山项目", "大别山项目 考勤", "PPT 考勤", "大别山项目ppt考勤表"
    )
    assert hits(any_db, "PPT 大别山项目 考勤") == {every, glued}
    assert hits(any_db, "考勤 大别山项目 PPT") == {every, glued}
    assert hits(any_db, "PPT 勤") == hits(any_db, "PPT 考勤")


def test_tool_arguments_are_searched_unescaped(any_db: Any, hits: Any) -> None:
    any_db.create_session("s", "cli")
    calls = [
        {"id": "c1", "function": {"name": "find", "arguments": '{"q": "中文参数"}'}},
        {"id": "c2", "function": {"name": "find", "arguments": {"q": "中文参数"}}},
    ]
    wanted = [any_db.append_message("s", "assistant", None, tool_calls=[call]) for call in calls]
    wanted.append(
        any_db.append_message("s", "assistant", None, tool_calls='[{"q": "\\u4e2d\\u6587\\u53c2\\u6570"}]')
    )
    any_db.append_message("s", "assistant", "nothing")
    for query in ["中文参数", "中文", "参", "参数"]:
        assert hits(any_db, query) == set(wanted)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "find 中文内容 here"}],
        [
            {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}},
            {"type": "text", "text": "find 中文内容 here"},
        ],
        {"type": "text", "text": "find 中文内容 here"},
        ["find 中文内容 here"],
        [[{"type": "text", "text": "find 中文内容 here"}]],
        [{"type": "tool_result", "content": [{"type": "text", "text": "find 中文内容 here"}]}],
    ],
)
def test_text_inside_a_content_list_is_searched(any_db: Any, stored: Any, hits: Any, content: Any) -> None:
    wanted, _ = stored(content, "another")
    for query in ("find", "中文内容", "内", '"find 中文内容"', "here"):
        assert hits(any_db, query) == {wanted}, query


def test_images_in_a_content_list_are_not_searched(any_db: Any, stored: Any, hits: Any) -> None:
    data = base64.b64encode(bytes(range(256)) * 20).decode()
    content = [
        {"type": "text", "text": "look at this diagram"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "high"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": data}},
    ]
    (wanted,) = stored(content)
    assert hits(any_db, "diagram") == {wanted}
    for query in (
        "image_url",
        "base64",
        "png",
        "url",
        "type",
        "detail",
        "jpeg",
        data[:40],
        data[100:130],
        "text",
    ):
        assert hits(any_db, query) == set(), query
    (hit,) = any_db.search_messages("diagram")
    assert hit["snippet"] == "look at this >>>diagram<<<"
    assert hit["context"] == [{"role": "user", "content": "look at this diagram"}]
    assert any_db.get_messages("s")[0]["content"] == content


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("x" * 200_000 + " docker " + "y" * 200_000, "docker"),
        ("字" * 100_000 + "桂林" + "字" * 100_000, "桂林"),
        ("字" * 100_000 + "桂林山" + "字" * 100_000, "桂林山"),
        ("x" * 200_000, "x" * 200),
        ("docker " * 20_000, "docker"),
        ("\n".join(["line of words"] * 10_000) + "\ndocker", "docker"),
        ("z" * 200_000, "z*"),
    ],
    ids=["long words", "two letters", "three letters", "no hit", "all hits", "lines", "prefix"],
)
def test_snippets_are_bounded_and_marked(any_db: Any, stored: Any, text: str, query: str) -> None:
    stored(text)
    for hit in any_db.search_messages(query):
        assert ">>>" in hit["snippet"]
        assert "<<<" in hit["snippet"]
        assert len(hit["snippet"]) < 2_000


def test_a_hit_on_the_tool_name_or_calls_alone_has_a_snippet(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    any_db.append_message("s", "tool", None, tool_name="read_terminal")
    any_db.append_message("s", "assistant", None, tool_calls=[{"function": {"name": "browse_page"}}])
    (by_name,) = any_db.search_messages("terminal")
    assert ">>>terminal<<<" in by_name["snippet"]
    (by_call,) = any_db.search_messages("browse_page")
    assert ">>>" in by_call["snippet"]
    assert "browse" in by_call["snippet"]


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Hello Docker World", "docker", "Hello >>>Docker<<< World"),
        ("在广西的桂林市", "桂林", "在广西的>>>桂林<<<市"),
        ("在广西的桂林市", "桂", "在广西的>>>桂<<<林市"),
        ("修改youer服务端", "youer", "修改>>>youer<<<服务端"),
        ("the deployment", "depl*", "the >>>deployment<<<"),
    ],
)
def test_snippets_mark_what_was_asked_for(
    any_db: Any, stored: Any, text: str, query: str, marked: str
) -> None:
    stored(text)
    (hit,) = any_db.search_messages(query)
    assert hit["snippet"] == marked


@pytest.mark.parametrize("query", ["docker", "部署流程", "部署"])
def test_the_context_is_the_neighbours_by_id_whatever_their_stamps(any_db: Any, query: str) -> None:
    any_db.create_session("s", "cli")
    any_db.create_session("t", "cli")
    any_db.replace_messages(
        "s",
        [
            {"role": "user", "content": "first", "timestamp": 300.0},
            {"role": "assistant", "content": "docker 部署流程", "timestamp": 200.0},
        ],
    )
    any_db.append_message("t", "user", "of another session")
    any_db.append_message(
        "s", "tool", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    )
    any_db.append_message("s", "user", "last")
    (hit,) = any_db.search_messages(query)
    assert hit["context"] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "docker 部署流程"},
        {"role": "tool", "content": "[multimodal content]"},
    ]


def test_a_hit_alone_in_its_session_is_its_whole_context(any_db: Any, stored: Any) -> None:
    stored("docker")
    (hit,) = any_db.search_messages("docker")
    assert hit["context"] == [{"role": "user", "content": "docker"}]
