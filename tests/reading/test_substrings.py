"""Substrings of random texts in mixed scripts: what brute force finds, in both modes and by a scan."""

from __future__ import annotations

import matcher
import pytest
import search_store
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_state.search import indexing, run

PIECES = [
    "cat", "con", "Docker", "CAFÉ", "cafe\u0301", "ß", "x", "9", "30", "_", "-", ".", ":", "/", "%", "#", "*",
    "(", "，", "。", "!", "🎉", "中", "文", "中文", "广西", "ー", "ｶ", "ｸ", "한국", "어", "ไทย", "𠮷", "İ",
    "Σ", "ς", "ſ", "\u212a", "k", "\\", "\\u", "'", "@", "a", "b", "ñ", "①", "²", "㎏",
]  # fmt: skip
LITERALS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
TEXTS = st.lists(st.sampled_from([*PIECES, " ", " ", "\n", "\x00"]), max_size=8).map("".join)
GROUPS = st.lists(
    st.tuples(st.lists(LITERALS, min_size=1, max_size=2), st.lists(LITERALS, max_size=1)),
    min_size=1,
    max_size=2,
)
Groups = list[tuple[list[str], list[str]]]


def written(groups: Groups) -> str:
    """The query that asks for any of the groups: all of its first texts, none of its second."""
    return " OR ".join(
        " ".join([*wanted, *(f"NOT {text}" for text in unwanted)]) for wanted, unwanted in groups
    )


def holds(groups: Groups, text: str) -> bool:
    low = matcher.folded(text)
    return any(
        all(matcher.folded(literal) in low for literal in wanted)
        and not any(matcher.folded(literal) in low for literal in unwanted)
        for wanted, unwanted in groups
    )


@pytest.mark.parametrize("mode", ["all", "unspaced"])
@given(
    rows=st.lists(st.tuples(TEXTS, st.one_of(st.none(), TEXTS)), min_size=1, max_size=6),
    queries=st.lists(GROUPS, min_size=1, max_size=4),
)
@example(rows=[("\u212a and ſ", None)], queries=[[(["k"], [])], [(["s"], [])], [(["\u212a"], [])]])
@example(rows=[("a tail", "ab"), ("ab", "x")], queries=[[(["ab"], [])], [(["b"], [])], [(["tail"], ["ab"])]])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_substrings_are_found_wherever_they_stand(
    mode: str, rows: list[tuple[str, str | None]], queries: list[Groups]
) -> None:
    conn = search_store.store()
    indexing.set_trigram_mode(conn, mode)
    texts = {search_store.add(conn, *row): matcher.searchable(*row, None) for row in rows}
    search_store.index(conn)
    for groups in queries:
        wanted = {row_id for row_id, text in texts.items() if holds(groups, text)}
        for usable in (True, False):
            for sort in (None, "oldest"):
                hits = run.search(
                    conn, written(groups), match="substring", sort=sort, limit=-1, index_usable=usable
                )
                assert {hit["id"] for hit in hits} == wanted, (written(groups), usable)
    conn.close()
