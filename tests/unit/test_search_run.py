"""One search on a connection: routes, filters, order, context, and what happens without an index."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import matcher
import pytest
from search_store import add, hits, index, session, set_triggers, store

from hermes_state.search import filters, plan, recent, run, scan, tables

KEYS = {
    "id", "session_id", "role", "timestamp", "tool_name", "snippet", "context", "source", "model",
    "session_started",
}  # fmt: skip
ROUTES = {
    "words": "docker",
    "phrase": '"docker networking"',
    "prefix": "dock*",
    "trigram": "考勤记录",
    "short": "考勤",
    "one character": "勤",
    "words and trigram": "docker 考勤记录",
    "words and short": "docker AND 勤",
    "words or short": "kubernetes OR 勤",
    "words without short": "docker NOT 勤",
    "short without words": "勤 NOT docker",
    "trigram without short": "考勤记录 NOT 表",
    "mixed scripts": "修改youer",
    "without a group of both": "docker NOT 报,x",
    "several short": "考勤 记录",
}


HOSTILE = (
    "docker " * 4000,
    "x" * 1_000_000,
    '"' * 10_000,
    "a.b " * 5000,
    "勤" * 10_000,
    "勤 OR 录 " * 3000,
    " ".join(f"w{i} NOT 词{i} OR" for i in range(2000)),
)


def filled() -> apsw.Connection:
    """Four sessions of two sources, every kind of text in each role, timestamps against the ids."""
    conn = store()
    for name, source in (("a", "cli"), ("b", "telegram"), ("c", "telegram")):
        session(conn, name, source)
    texts = [
        "docker networking", "networking docker 考勤记录", "考勤", "docker 考勤记录表",
        "修改youer服务端 docker", "kubernetes", "docker 报 x", "表 勤",
    ]  # fmt: skip
    stamp = 1000.0
    for text, name, role in itertools.product(texts, ("s", "a", "b", "c"), ("user", "assistant")):
        stamp -= 1
        add(conn, text, session_id=name, role=role, timestamp=stamp // 3)
    index(conn)
    return conn


STORE = filled()


def expected(query: str, **given: Any) -> list[int]:
    """The ids that should come, by brute force: by timestamp where a sort is given, else by id."""
    found = []
    rows = STORE.execute(
        "SELECT m.id, m.timestamp, m.role, m.session_id, s.source, m.content FROM messages m"
        " JOIN sessions s ON s.id = m.session_id"
    ).fetchall()
    for row_id, stamp, role, name, source, content in rows:
        wanted = matcher.matches(query, matcher.searchable(content, None, None))
        wanted &= given.get("source_filter") is None or source in given["source_filter"]
        wanted &= source not in (given.get("exclude_sources") or ())
        wanted &= not given.get("role_filter") or role in given["role_filter"]
        wanted &= name != given.get("exclude_session_id")
        if wanted:
            found.append((stamp if given.get("sort") else 0, row_id))
    return [row_id for _, row_id in sorted(found, reverse=given.get("sort") == "newest")]


@pytest.mark.parametrize("query", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_filters_mean_the_same_on_every_route(query: str, sort: str | None) -> None:
    for sources, without, roles, other in itertools.product(
        (None, ["cli"], ["telegram", "cli"], ["none"], []),
        (None, [], ["telegram"]),
        (None, [], ["user"]),
        (None, "b"),
    ):
        given = {
            "source_filter": sources, "exclude_sources": without, "role_filter": roles,
            "exclude_session_id": other, "sort": sort,
        }  # fmt: skip
        found = hits(STORE, query, **given)
        wanted = expected(query, **given)
        assert (found if sort else sorted(found)) == wanted, given


@pytest.mark.parametrize("query", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_pages_follow_each_other_without_gap_or_repeat(query: str, sort: str | None) -> None:
    whole = hits(STORE, query, sort=sort)
    assert len(whole) > 3
    for given in ({}, {"role_filter": ["user", "assistant"]}):
        pages = [
            hits(STORE, query, sort=sort, limit=3, offset=i, **given) for i in range(0, len(whole) + 3, 3)
        ]
        assert [i for page in pages for i in page] == whole


@pytest.mark.parametrize("wide", [0, 10**6])
def test_time_order_is_the_same_by_index_and_by_row(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WIDE", wide)
    for query, sort in itertools.product(ROUTES.values(), ("newest", "oldest")):
        given = {"sort": sort, "exclude_sources": ["cli"], "role_filter": ["user"]}
        assert hits(STORE, query, **given) == expected(query, **given)
        assert hits(STORE, query, sort=sort, per_session=10**6) == expected(query, sort=sort)


@pytest.fixture
def timed() -> Iterator[apsw.Connection]:
    """The store with an index by time."""
    STORE.execute("CREATE INDEX IF NOT EXISTS hs_idx_messages_time ON messages(timestamp)")
    yield STORE
    STORE.execute("DROP INDEX hs_idx_messages_time")


@pytest.mark.parametrize("window", [4, 20, 1000])
@pytest.mark.parametrize("query", ROUTES.values(), ids=ROUTES)
def test_a_page_from_one_end_of_time_is_the_page_of_the_whole(
    timed: apsw.Connection, query: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "WINDOW", window)
    monkeypatch.setattr(run, "WIDE", 1)
    for sort, limit, offset, roles in itertools.product(
        ("newest", "oldest"), (1, 2, 9), (0, 1, 500), (None, ["user"])
    ):
        found = hits(timed, query, sort=sort, limit=limit, offset=offset, role_filter=roles)
        assert found == expected(query, sort=sort, role_filter=roles)[offset : offset + limit]


def test_ids_far_apart_are_not_taken_for_one_range(
    timed: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = filters.make(None, None, None, 2, 0, "newest", None, None)
    wanted = plan.build(timed, "docker")
    assert recent.page(timed, wanted, True, chosen) == expected("docker", sort="newest")[:2]
    monkeypatch.setattr(recent, "SPREAD", 5)
    assert recent.page(timed, wanted, True, chosen) is None


def test_limits_that_are_odd() -> None:
    whole = hits(STORE, "docker")
    assert hits(STORE, "docker", limit=0) == []
    assert hits(STORE, "docker", limit=None) == whole
    assert hits(STORE, "docker", limit=-7) == whole
    assert hits(STORE, "docker", limit=2**80) == whole
    assert hits(STORE, "docker", offset=-3) == whole
    assert hits(STORE, "docker", offset=2**80) == []
    assert hits(STORE, "docker", sort="sideways") == whole


def test_filter_entries_that_are_no_text_equal_nothing() -> None:
    whole = hits(STORE, "docker")
    assert hits(STORE, "docker", source_filter=[5, None, "\ud800"]) == []
    assert hits(STORE, "docker", exclude_sources=[5, None, "\ud800"]) == whole
    assert hits(STORE, "docker", role_filter=[5]) == []
    assert hits(STORE, "docker", source_filter="cli") == hits(STORE, "docker", source_filter=["cli"])
    assert hits(STORE, "docker", exclude_session_id="\ud800") == whole


def test_a_result_has_the_keys_of_the_contract() -> None:
    (hit, *_) = run.search(STORE, "docker", limit=1)
    assert set(hit) == KEYS


def test_better_matches_come_first() -> None:
    conn = store()
    add(conn, "docker among a good many other words that say nothing of it at all, one after another")
    best = add(conn, "docker docker")
    index(conn)
    assert hits(conn, "docker")[0] == best


def test_a_rare_character_twice_ranks_before_once() -> None:
    conn = store()
    once, twice = add(conn, "桂林"), add(conn, "桂林桂林")
    index(conn)
    assert hits(conn, "桂") == [twice, once]


def test_one_live_session_does_not_hide_the_old_one() -> None:
    conn = store()
    session(conn, "live")
    old = add(conn, "docker long ago, in a rather long message that ranks behind the others")
    for _ in range(60):
        add(conn, "docker", session_id="live")
    index(conn)
    assert old not in hits(conn, "docker", limit=50)
    assert hits(conn, "docker", limit=50, exclude_session_id="live") == [old]
    found = hits(conn, "docker", limit=50, per_session=3)
    assert len(found) == 4
    assert old in found


def test_short_terms_work_on_a_connection_that_may_only_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    writer = store(path)
    row_id = add(writer, "末尾桂")
    index(writer)
    for flags in (apsw.SQLITE_OPEN_READWRITE, apsw.SQLITE_OPEN_READONLY):
        reader = apsw.Connection(str(path), flags=flags)
        reader.execute("PRAGMA query_only = 1")
        assert hits(reader, "桂") == [row_id]
        assert reader.execute("PRAGMA query_only").fetchone() == (1,)
        with pytest.raises((apsw.ReadOnlyError, apsw.SQLError)):
            reader.execute("DELETE FROM messages")
        reader.close()
    writer.close()


def test_rows_of_an_index_without_message_or_session_are_no_hits() -> None:
    conn = store()
    gone, kept = add(conn, "docker"), add(conn, "docker and more")
    index(conn)
    conn.execute("DELETE FROM messages WHERE id = ?", (gone,))
    assert hits(conn, "docker", limit=1) == [kept]
    orphan = add(conn, "docker", session_id="nobody")
    index(conn)
    assert orphan not in hits(conn, "docker", limit=2)


def test_none_and_blank_queries_find_nothing_and_other_types_are_refused() -> None:
    for query in (None, "", "  ", "***", "NOT docker", "\\", "%", "🎉", "...", "\ud800", "\x00", '"', '""'):
        assert run.search(STORE, query) == []
    with pytest.raises(TypeError, match="query must be a str, not int"):
        run.search(STORE, 5)  # type: ignore[arg-type]


def test_hostile_queries_are_bounded() -> None:
    for query in HOSTILE:
        run.search(STORE, query)


# Context


def test_the_context_is_the_neighbours_by_id_whatever_their_clock_says() -> None:
    conn = store()
    add(conn, "before", timestamp=50.0)
    add(conn, "docker", timestamp=10.0)
    add(conn, "after", role="assistant", timestamp=5.0)
    session(conn, "other")
    add(conn, "elsewhere", session_id="other", timestamp=11.0)
    index(conn)
    (hit,) = run.search(conn, "docker")
    assert hit["context"] == [
        {"role": "user", "content": "before"},
        {"role": "user", "content": "docker"},
        {"role": "assistant", "content": "after"},
    ]


def test_a_context_is_cut_and_shows_the_text_of_content_lists() -> None:
    conn = store()
    add(conn, "é中𠮷" * 300)
    add(conn, [{"type": "text", "text": "docker"}, {"type": "text", "text": "rest \ud800"}])
    add(conn, [{"type": "image_url", "image_url": {"url": "http://x"}}])
    index(conn)
    (hit,) = run.search(conn, "docker")
    assert [c["content"] for c in hit["context"]] == [
        ("é中𠮷" * 300)[:200], "docker rest \ufffd", "[multimodal content]",
    ]  # fmt: skip


def test_a_context_survives_odd_content() -> None:
    conn = store()
    bad = add(conn, "x")
    conn.execute("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = ?", (bad,))
    add(conn, "docker\x00after")
    add(conn, '\x00json:[{"text"')
    add(conn, None)
    index(conn)
    (hit,) = run.search(conn, "docker")
    assert [c["content"] for c in hit["context"]] == ["a\ufffdb", "docker after", ' json:[{"text"']
    assert hits(conn, "after") == [hit["id"]]


def test_hits_with_their_contexts_are_one_statement_on_the_session_index() -> None:
    from hermes_state.search import results

    steps = [row[3] for row in STORE.execute("EXPLAIN QUERY PLAN " + results._HITS_SQL, ("[1]",))]
    assert [step for step in steps if "SCAN" in step] == ["SCAN j VIRTUAL TABLE INDEX 1:"], steps
    assert sum("INDEX hs_idx_messages_session (session_id=?" in step for step in steps) == 2, steps


# Without an index


@pytest.mark.parametrize(
    "missing", [("messages_fts",), ("messages_fts_trigram",), (tables.FTS, tables.TRIGRAM, tables.WORDS)]
)
def test_a_missing_table_is_made_up_for_by_a_scan(missing: tuple[str, ...]) -> None:
    conn = filled()
    for table in missing:
        conn.execute(f"DROP TABLE {table}")
    for query, sort in itertools.product(ROUTES.values(), (None, "newest", "oldest")):
        given = {"sort": sort, "exclude_sources": ["cli"], "role_filter": ["user"]}
        found = hits(conn, query, **given)
        assert (found if sort else sorted(found)) == expected(query, **given), query
    assert len(hits(conn, "docker", per_session=1)) == 4
    assert hits(conn, "docker", limit=2, offset=1, sort="newest") == expected("docker", sort="newest")[1:3]


@pytest.mark.parametrize("table", [tables.FTS, tables.TRIGRAM, tables.WORDS])
def test_a_damaged_index_is_made_up_for_by_a_scan(table: str) -> None:
    conn = filled()
    conn.execute(f"UPDATE {table}_data SET block = x'00' WHERE id > 10")
    for query in ROUTES.values():
        assert sorted(hits(conn, query)) == expected(query)


def test_an_index_with_a_lost_shadow_table_is_made_up_for_by_a_scan(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    conn = store(path)
    row_id = add(conn, "docker 考勤")
    index(conn)
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    conn.execute("DROP TABLE messages_fts_config")
    conn.close()
    reader = apsw.Connection(str(path))
    assert hits(reader, "docker") == [row_id]
    reader.close()


def test_a_scan_reads_a_bounded_number_of_the_newest_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "SCAN_ROWS", 3)
    conn = store()
    ids = [add(conn, "docker") for _ in range(6)]
    conn.execute("DROP TABLE messages_fts")
    assert hits(conn, "docker") == ids[:2:-1]


# Explain


def test_explain_tells_the_index_of_each_term() -> None:
    told = run.explain(STORE, "docker NOT 勤 OR 考勤记录")
    assert told.splitlines() == [
        "word 'docker' (MATCH in messages_fts, with hs_fts_words for rows that mix scripts)"
        " and not substring '勤' (range over the vocabulary of messages_fts_trigram)",
        "or substring '考勤记录' (MATCH in messages_fts_trigram)",
    ]
    assert run.explain(STORE, "NOT docker") == "no positive term: matches nothing"
    conn = store()
    conn.execute("DROP TABLE messages_fts")
    assert run.explain(conn, "docker").startswith("scan of the newest messages")


def test_a_plain_store_reads_one_index_for_words() -> None:
    conn = store()
    add(conn, "docker")
    index(conn)
    assert "hs_fts_words" not in run.explain(conn, "docker")


def test_rows_written_through_triggers_are_found_by_every_route() -> None:
    conn = store(triggers=True)
    row_id = add(conn, "docker 考勤记录", "tool", json.dumps([{"name": "x"}]))
    set_triggers(conn, False)
    index(conn)
    for query in ("docker", "tool", "考勤记录", "勤", "x"):
        assert hits(conn, query) == [row_id]
