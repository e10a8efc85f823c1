"""Searches over real conversations find what brute force finds, and what v11 found where it is right."""

from __future__ import annotations

import functools
import importlib
import itertools
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import matcher
import pytest

from hermes_state import SessionDB

ROOT = Path(__file__).resolve().parents[2]

CASES = [
    "#123", "src/main.py", "50%", "$5", "a,b", "ok?", "alice@example.com", "TODO: fix", "error:timeout",
    "9:30", "content:hello", "docker AND OR kubernetes", "AND NOT docker", "OR OR docker", "docker NOT",
    "file and or not", "NOT docker", ".env", "--force", "git push -f", "file -python", "foo-",
    "NEAR(file error)", "file NEAR error", "错题本 OR 错题 OR wrong-book OR mistakes",
    '"error message"', '"message error"', 'say "fix issue', "err.*", "err*", "*", "***", "*dock",
    '"a b" \x00Q0\x00', "\ud83d file", "\\", "%", "_", "'", "🎉", "...", "广西 AND 桂林",
    "报告 NOT 草稿", "报告 初版", "广西 OR 桂林 OR 漓江", "桂", "的", "考勤*", "的_录", "100%选品",
    "youer", "PPT 大别山项目 考勤", "中文参数", "酒店 NOT 价格", "ｶｸ", "𠮷野家", "image_url", "base64",
    "호텔", "어", "안녕하세요 OR 酒店", "です", "ホテル NOT 東京", "酒店 hotel", "酒", "地址 电话",
    '"北京 酒店"', "read_file", "function arguments", "can't", "e.g.", "http://example.com/a?b=c",
    "the NOT of", "user OR 用户",
]  # fmt: skip
"""Queries of the cases from the field, and of these conversations."""

SUBSTRINGS = [
    "rror",
    "ile.",
    "酒店的",
    "hote",
    '"of the"',
    "ork NOT the",
    "호텔",
    "a1",
    "unction OR 电话",
    "ERRO",
]

PLAIN = re.compile(r"[\x20-\x7e\n\t]*")
V11 = [
    "error", "the", "file", "hotel AND price", "error OR file", "the NOT of", '"of the"',
    '"error message"', "err*", "conf*", "read-only", "main.py", "flight booking",
    "user AND id AND name", "NOT the", "price OR hotel OR order", "order NOT hotel NOT price",
    "zyxwvutsrq", '"thank you"', "book* flight", "can you please",
]  # fmt: skip
"""Queries of spaced words that v11 answers rightly."""


def _rows(names: tuple[str, ...], each: int, most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Messages of a sample: every third session, ``each`` messages of one at most, ``most`` a file."""
    for name in names:
        sessions = itertools.islice(corpus.sessions(name), 0, None, 3)
        found = ((s["id"], m) for s in sessions for m in s["messages"][:each])
        yield from itertools.islice(((i, m) for i, m in found if len(str(m.get("content"))) < 5_000), most)


def _fill(db: Any, rows: list[tuple[str, dict[str, Any]]]) -> None:
    for session_id, group in itertools.groupby(rows, key=lambda row: row[0]):
        db.create_session(session_id, "cli")
        for _, message in group:
            db.append_message(session_id, **corpus.message_kwargs(message))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The sample in both trigram modes."""
    rows = list(_rows(("agent", "cjk", "odd"), 6, 350))
    folder = tmp_path_factory.mktemp("conversations")
    made = {mode: SessionDB(folder / f"{mode}.db", trigram=mode) for mode in ("all", "unspaced")}
    for db in made.values():
        _fill(db, rows)
    yield made
    for db in made.values():
        db.close()


@pytest.fixture(scope="module")
def texts(stores: dict[str, Any]) -> Iterator[dict[int, str]]:
    """Message id -> its searchable text, by the matcher's own reading of the stored columns."""
    stored = stores["all"]._conn.execute("SELECT id, content, tool_name, tool_calls FROM messages").fetchall()
    with pytest.MonkeyPatch.context() as patch:
        # The same few hundred texts are asked for by every query.
        patch.setattr(matcher, "words", functools.cache(matcher.words))
        patch.setattr(matcher, "folded", functools.cache(matcher.folded))
        yield {row[0]: matcher.searchable(*tuple(row)[1:]) for row in stored}


@pytest.mark.parametrize("query", CASES)
def test_the_hits_are_those_of_the_brute_force_matcher_in_both_modes(
    stores: dict[str, Any], texts: dict[int, str], query: str
) -> None:
    wanted = {row_id for row_id, text in texts.items() if matcher.matches(query, text)}
    answers = {
        (mode, sort): [hit["id"] for hit in db.search_messages(query, limit=-1, sort=sort)]
        for mode, db in stores.items()
        for sort in (None, "newest")
    }
    for (mode, sort), ids in answers.items():
        assert set(ids) == wanted, (mode, sort)
        assert len(ids) == len(wanted)
    times = {mode: answers[mode, "newest"] for mode in stores}
    assert times["all"] == sorted(times["all"], reverse=True)


def test_the_cases_and_the_sample_fit_each_other(texts: dict[int, str]) -> None:
    hit = [query for query in CASES if any(matcher.matches(query, text) for text in texts.values())]
    assert len(hit) >= (25 if corpus.has_shared() else 5)


@pytest.mark.parametrize("query", SUBSTRINGS)
def test_substrings_are_found_alike_in_both_modes(
    stores: dict[str, Any], texts: dict[int, str], query: str
) -> None:
    wanted = set()
    for row_id, text in texts.items():
        low = matcher.folded(f"{text}  ")
        for group in query.split(" OR "):
            good, _, bad = group.partition(" NOT ")
            has = matcher.folded(good.strip('"')) in low
            if has and not (bad and matcher.folded(bad) in low):
                wanted.add(row_id)
    for db in stores.values():
        assert {hit["id"] for hit in db.search_messages(query, limit=-1, match="substring")} == wanted


@pytest.fixture(scope="module")
def beside_v11(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Our store and the reference with the same messages, of plain text as v11 reads it too."""
    if "benchmarks" not in sys.modules:
        package = types.ModuleType("benchmarks")
        package.__path__ = [str(ROOT / "benchmarks")]
        sys.modules["benchmarks"] = package
    reference = importlib.import_module("benchmarks.reference")
    rows = [
        (session_id, message) for session_id, message in _rows(("agent", "odd"), 20, 900)
        if isinstance(message.get("content"), str | None)
        and PLAIN.fullmatch(f"{message.get('content')}{message.get('tool_name')}{message.get('tool_calls')}")
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("beside")
    ours, theirs = SessionDB(folder / "ours.db"), reference.SessionDB(folder / "theirs.db")
    _fill(ours, rows)
    _fill(theirs, rows)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("query", V11)
def test_queries_that_v11_answers_rightly_have_its_hits_in_the_order_of_its_ranks(
    beside_v11: tuple[Any, Any], query: str
) -> None:
    ours, theirs = beside_v11
    assert ours.message_count() == theirs.message_count() > 50
    found = [hit["id"] for hit in ours.search_messages(query, limit=-1)]
    if query == "NOT the":
        assert found == []  # v11 drops the operator and finds what was not wanted
        return
    assert set(found) == {hit["id"] for hit in theirs.search_messages(query, limit=-1)}
    ranked = theirs._rows(
        "SELECT rowid, rank FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rank, rowid",
        [theirs._sanitize_fts5_query(query)],
    )
    ranks = {row[0]: row[1] for row in ranked}
    assert [ranks[row_id] for row_id in found] == pytest.approx([row[1] for row in ranked])
    for more in (
        {"limit": 7, "offset": 3}, {"role_filter": ["user"]}, {"source_filter": ["cli"], "limit": 5},
        {"exclude_sources": ["cli"]}, {"sort": "newest", "limit": 9}, {"sort": "oldest", "limit": 9},
    ):  # fmt: skip
        mine, other = ([hit["id"] for hit in db.search_messages(query, **more)] for db in (ours, theirs))
        assert len(mine) == len(other)
        if "sort" not in more:
            assert [ranks[i] for i in mine] == pytest.approx([ranks[i] for i in other])
