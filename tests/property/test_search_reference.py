"""Search gives the rows that the brute-force matcher gives, on every route, mode and way to index."""

from __future__ import annotations

import json

import apsw
import matcher
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_state.schema import ddl
from hermes_state.search import indexing, run

PIECES = [
    "cat", "con", "Docker", "CAFÉ", "cafe\u0301", "ß", "x", "9", "30", "_", "-", ".", ":", "/", "%", "#", "*",
    " ", "  ", "\n", "\x00", "(", ")", "，", "。", "「", "」", "!", "🎉", "中", "文", "中文", "广西", "桂林",
    "ー", "ｶ", "ｸ", "カ", "한국", "어", "ไทย", "ก\u0e31", "𠮷", "々", "·", "・", "İ", "Σ", "ς", "\u0301",
    "\ue000", "AND", "OR", "NOT", "and", "NEAR", "\\", "\\u", "'", "@", "a", "b", "ñ", "①", "²", "㎏",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
CONTENTS = st.one_of(
    st.none(),
    TEXTS,
    st.lists(TEXTS.map(lambda t: {"type": "text", "text": t}), max_size=3).map(
        lambda parts: "\x00json:" + json.dumps(parts)
    ),
)
CALLS = st.one_of(
    st.none(),
    TEXTS.map(
        lambda t: json.dumps(
            [{"function": {"arguments": json.dumps({"q": t.replace("\x00", "")})}}], ensure_ascii=False
        )
    ),
    st.lists(st.sampled_from(["中文", "한국", "cat", "桂"]), min_size=1, max_size=3).map(
        lambda words: json.dumps([{"q": " ".join(words)}])
    ),
)
ROWS = st.lists(st.tuples(CONTENTS, st.one_of(st.none(), TEXTS), CALLS), min_size=1, max_size=8)
QUERY_PIECES = [*PIECES, " ", " ", " ", '"', " AND ", " OR ", " NOT ", "* "]
QUERIES = st.lists(st.sampled_from(QUERY_PIECES), min_size=1, max_size=7).map("".join)


def store(triggers: bool = False) -> apsw.Connection:
    conn = apsw.Connection(":memory:")
    conn.execute(ddl.SCHEMA_SQL + ddl.FTS_SQL + ddl.FTS_TRIGRAM_SQL + ddl.HS_SQL).fetchall()
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(triggers))
    conn.execute("INSERT INTO sessions(id, source, started_at) VALUES ('s', 'cli', 1)")
    return conn


def fill(conn: apsw.Connection, rows: list[tuple[str | None, str | None, str | None]]) -> list[int]:
    ids = []
    for content, tool_name, tool_calls in rows:
        conn.execute(
            "INSERT INTO messages(session_id, role, content, tool_name, tool_calls, timestamp)"
            " VALUES ('s', 'user', ?, ?, ?, 1)",
            (content, tool_name, tool_calls),
        )
        ids.append(conn.last_insert_rowid())
    return ids


def indexed(rows: list[tuple[str | None, str | None, str | None]], way: str, mode: str) -> apsw.Connection:
    """A store with ``rows``, indexed the given way."""
    conn = store(triggers=way in ("triggers", "foreign"))
    indexing.set_trigram_mode(conn, mode)
    ids = fill(conn, rows)
    if way == "inline":
        for row_id in ids:
            indexing.index_rows(conn, [row_id])
    elif way == "triggers":
        indexing.touch(conn, ids)
    else:
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        while indexing.index_step(conn, 3):
            pass
        assert not indexing.pending(conn)
    return conn


@pytest.mark.parametrize("mode", ["all", "unspaced"])
@pytest.mark.parametrize("way", ["stepped", "inline", "triggers", "foreign"])
@given(rows=ROWS, queries=st.lists(QUERIES, min_size=1, max_size=6))
@example(
    rows=[("修改youer服务端", None, None), ("concat中文", None, None)], queries=["youer", "cat", "concat"]
)
@example(rows=[("末尾桂", None, None), (None, "工具名", None)], queries=["桂", "名", "具名", "尾桂"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_search_finds_what_the_brute_force_matcher_finds(
    way: str, mode: str, rows: list[tuple[str | None, str | None, str | None]], queries: list[str]
) -> None:
    conn = indexed(rows, way, mode)
    texts = {i: matcher.searchable(*row) for i, row in enumerate(rows, 1)}
    for query in queries:
        wanted = {i for i, text in texts.items() if matcher.matches(query, text)}
        for sort in (None, "newest"):
            hits = run.search(conn, query, limit=-1, sort=sort)
            assert {hit["id"] for hit in hits} == wanted, (query, texts)
            assert len(hits) == len(wanted)
    conn.close()
