"""Spans of time, substrings, pages by cursor and time limits of search and lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import matcher
import pytest
import search_store
from processes import elsewhere
from search_store import add, index, session
from search_store import hits as found

from hermes_state import errors
from hermes_state.search import cursor, indexing, recent, run, scan
from hermes_state.store import limits

DAY = 86_400.0


@pytest.fixture
def days(make_db: Any) -> tuple[Any, list[int]]:
    """A store with one message a day for ten days, in two sessions, and their ids."""
    db = make_db()
    for name in ("a", "b"):
        db.create_session(name, "cli")
    for name in ("a", "b"):
        db.replace_messages(
            name,
            [
                {"role": "user", "content": f"word 单词 {n}", "timestamp": n * DAY}
                for n in range(10) if (n % 2 == 0) == (name == "a")
            ],
        )  # fmt: skip
    order = sorted((m["timestamp"], m["id"]) for name in "ab" for m in db.get_messages(name))
    return db, [row_id for _, row_id in order]


def ids(hits: list[dict[str, Any]]) -> list[int]:
    return [hit["id"] for hit in hits]


@pytest.mark.parametrize("query", ["word", "单词", "词", "word NOT 词条"])
@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_since_is_included_and_until_is_not(days: Any, query: str, sort: str | None) -> None:
    db, order = days
    for since, until, wanted in [
        (2 * DAY, 5 * DAY, order[2:5]), (2 * DAY, None, order[2:]), (None, 5 * DAY, order[:5]),
        (2, 2 * DAY, order[1:2]), (None, 0, []), (9 * DAY + 1, None, []), (5 * DAY, 2 * DAY, []),
        (-float("inf"), float("inf"), order),
    ]:  # fmt: skip
        hits = db.search_messages(query, sort=sort, since=since, until=until, limit=-1)
        assert sorted(ids(hits)) == sorted(wanted)
        if sort:
            assert ids(hits) == (wanted[::-1] if sort == "newest" else wanted)


def test_moments_are_datetimes_too_with_a_zone_or_in_local_time(days: Any) -> None:
    db, order = days
    aware = datetime(1970, 1, 3, tzinfo=UTC)
    assert sorted(ids(db.search_messages("word", since=aware))) == sorted(order[2:])
    local = datetime.fromtimestamp(2 * DAY)
    assert sorted(ids(db.search_messages("word", since=local, until=local + timedelta(days=1)))) == [order[2]]


@pytest.mark.parametrize("name", ["since", "until"])
def test_what_is_no_moment_is_refused(db: Any, name: str) -> None:
    for value in ("2026-01-01", True, b"1"):
        with pytest.raises(TypeError, match=name):
            db.search_messages("x", **{name: value})
    for number in (float("nan"), 10**400):
        with pytest.raises(ValueError, match=name):
            db.search_messages("x", **{name: number})


@pytest.mark.parametrize("narrow", [0, 5_000])
@pytest.mark.parametrize("wide", [1, 2_000])
def test_a_span_of_time_means_the_same_on_every_way_to_it(
    days: Any, monkeypatch: pytest.MonkeyPatch, narrow: int, wide: int
) -> None:
    db, order = days
    monkeypatch.setattr(run, "NARROW", narrow)
    monkeypatch.setattr(run, "WIDE", wide)
    for size in (3, 1_000):
        monkeypatch.setattr(recent, "WINDOW", size)
        for sort in (None, "newest", "oldest"):
            for more in ({}, {"per_session": 2}, {"role_filter": ["user"]}):
                hits = db.search_messages("word", since=DAY, until=6 * DAY, sort=sort, **more)
                wanted = order[1:6]
                if "per_session" in more:
                    wanted = {None: [], "newest": order[2:6], "oldest": order[1:5]}[sort]
                if wanted:
                    assert sorted(ids(hits)) == sorted(wanted)
                assert len(hits) == (4 if "per_session" in more else 5)


# -- substrings --

TEXTS = [
    "the dockerfile of main.py", "DOCKER compose", "undocked", "修改youer服务端的计划", "한국어 dock",
    "a  b", "100% of $5, a,b", "ÅNGSTRÖM 単語", "x" * 500 + "needle" + "y" * 500, "K and s", "tail ab",
]  # fmt: skip
SUBSTRINGS = [
    "ocke", "dock", "OCK", "dock NOT file", "ocke OR 修改", '"dock compose"', '"r com"', "ain.p", "main.py",
    "0% of", '"0% of"', "a,b", "ou", "o", "국어", "어", "ngstr", "NGSTRÖM", "ngström", "xneedley",
    "dock AND compose", "k and", '"k and s"', "ab", "b", '""', "NOT dock", "dock*", "zzz", "youer服",
    "服务端 ouer", '" of "', "---",
]  # fmt: skip


def literal(query: str, text: str) -> bool:
    """Whether the text holds the words and phrases of a query of the few forms in SUBSTRINGS."""
    low = matcher.folded(text)
    for group in query.split(" OR "):
        wanted, _, unwanted = group.partition(" NOT ") if not group.startswith("NOT ") else ("", "", "")
        words = [w for w in pieces(wanted) if w]
        unwelcome = bool(unwanted) and matcher.folded(unwanted) in low
        if words and all(matcher.folded(w) in low for w in words) and not unwelcome:
            return True
    return False


def pieces(text: str) -> list[str]:
    if text.startswith('"') and text.endswith('"'):
        return [text[1:-1].strip()]
    return [word for word in text.split() if word != "AND"]


@pytest.mark.parametrize("mode", ["all", "unspaced"])
@pytest.mark.parametrize("query", SUBSTRINGS)
def test_a_substring_is_found_in_any_script_and_in_both_modes(mode: str, query: str) -> None:
    conn = search_store.store()
    indexing.set_trigram_mode(conn, mode)
    rows = {add(conn, text): f"{text}  " for text in TEXTS}
    rows[add(conn, [{"type": "text", "text": "part of a dockyard"}])] = "part of a dockyard  "
    rows[add(conn, None, "read_file", [{"q": "中文 dock"}])] = ' read_file [{"q": "中文 dock"}]'
    index(conn)
    wanted = {row_id for row_id, text in rows.items() if literal(query, text)}
    for sort in (None, "newest", "oldest"):
        assert set(found(conn, query, match="substring", sort=sort)) == wanted, sort
    conn.close()


def test_explain_says_which_index_tells_or_that_the_newest_messages_are_scanned() -> None:
    conn = search_store.store()
    add(conn, "docker")
    index(conn)
    assert "substring 'ocke' (MATCH in messages_fts_trigram)" in run.explain(conn, "ocke", "substring")
    assert "'oc' is shorter than a trigram" in run.explain(conn, "oc docker", "substring")
    indexing.set_trigram_mode(conn, "unspaced")
    told = run.explain(conn, "ocke", "substring")
    assert told.startswith("scan of the newest messages (50,000 at most), since the trigram index holds only")
    assert "substring 'ocke' (scan)" in told
    assert "MATCH" in run.explain(conn, "修改服", "substring")
    with pytest.raises(ValueError, match="match must be one of 'words', 'substring'"):
        run.explain(conn, "x", "glob")
    conn.close()


def test_a_hit_of_a_substring_is_marked_where_it_stands(db: Any) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "the Dockerfile")
    (hit,) = db.search_messages("ocke", match="substring")
    assert hit["snippet"] == "the D>>>ocke<<<rfile"


def test_a_scan_reads_the_newest_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    conn = search_store.store()
    indexing.set_trigram_mode(conn, "unspaced")
    rows = [add(conn, f"docker {n}") for n in range(8)]
    index(conn)
    monkeypatch.setattr(scan, "SCAN_ROWS", 5)
    assert found(conn, "ocke", match="substring") == rows[:2:-1]
    assert found(conn, "docker") == rows
    conn.close()


# -- pages by cursor --


@pytest.fixture
def many(make_db: Any) -> Any:
    """A store with 60 messages of six sessions, some at the same moment, of several ranks."""
    db = make_db()
    for n in range(6):
        db.create_session(f"s{n}", "cli")
        db.replace_messages(
            f"s{n}",
            [
                {
                    "role": "user",
                    "content": "word 单词 " * (1 + m % 3) + "pad " * (m % 4),
                    "timestamp": float(m // 3),
                }
                for m in range(10)
            ],
        )
    return db


def pages(db: Any, query: str, **given: Any) -> list[int]:
    """The ids of all pages, one after another."""
    out, at = [], None
    while True:
        page = db.search_page(query, cursor=at, **given)
        out += ids(page["hits"])
        at = page["cursor"]
        if at is None:
            return out


@pytest.mark.parametrize("query", ["word", "单词", "词", "word 词"])
@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"role_filter": ["user"]},
        {"per_session": 3},
        {"exclude_session_id": "s2"},
        {"since": 1, "until": 3},
    ],
    ids=["bare", "role", "per-session", "exclude", "span"],
)
def test_the_pages_together_are_the_whole_list(
    many: Any, query: str, sort: Any, more: dict[str, Any]
) -> None:
    whole = ids(many.search_messages(query, limit=-1, sort=sort, **more))
    for limit in (1, 7, 1000):
        assert pages(many, query, sort=sort, limit=limit, **more) == whole
    assert many.search_page(query, limit=-1, sort=sort, **more)["cursor"] is None
    assert many.search_page(query, limit=0, sort=sort, **more) == {"hits": [], "cursor": None}


@pytest.mark.parametrize("window", [4, 1_000])
@pytest.mark.parametrize("sort", ["newest", "oldest"])
def test_pages_in_time_order_are_the_list_on_every_way(
    many: Any, monkeypatch: pytest.MonkeyPatch, window: int, sort: str
) -> None:
    monkeypatch.setattr(run, "WIDE", 1)
    monkeypatch.setattr(recent, "WINDOW", window)
    whole = ids(many.search_messages("word", limit=-1, sort=sort))
    assert pages(many, "word", sort=sort, limit=7) == whole


@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_what_is_stored_between_two_pages_moves_none_of_the_older_hits(many: Any, sort: Any) -> None:
    whole = ids(many.search_messages("word", limit=-1, sort=sort))
    page = many.search_page("word", sort=sort, limit=10)
    seen = ids(page["hits"])
    many.append_messages("s0", [{"role": "user", "content": "word " * 3}] * 5)
    many.append_message("s0", "user", "other")
    seen += pages_from(many, "word", page["cursor"], sort=sort, limit=10)
    assert [i for i in seen if i in whole] == whole


def pages_from(db: Any, query: str, at: str | None, **given: Any) -> list[int]:
    out = []
    while at is not None:
        page = db.search_page(query, cursor=at, **given)
        out += ids(page["hits"])
        at = page["cursor"]
    return out


def test_the_next_page_is_found_when_the_last_hit_was_deleted(many: Any) -> None:
    for sort in ("newest", None):
        page = many.search_page("word", sort=sort, limit=10)
        whole = ids(many.search_messages("word", limit=-1, sort=sort))
        last = page["hits"][-1]
        many.delete_session(last["session_id"])
        left = ids(many.search_messages("word", limit=-1, sort=sort))
        rest = pages_from(many, "word", page["cursor"], sort=sort, limit=10)
        if sort:
            assert rest == [i for i in left if whole.index(i) > 9]
        assert set(rest) <= set(left)


def test_pages_go_on_by_number_when_an_index_is_lost_between_them(many: Any) -> None:
    page = many.search_page("word", limit=10)
    elsewhere(many.db_path, "DROP TABLE messages_fts")
    rest = pages_from(many, "word", page["cursor"], limit=7)
    by_id = ids(many.search_messages("word", limit=-1))
    assert by_id == sorted(by_id, reverse=True)
    assert rest == by_id[10:]
    assert pages(many, "word", limit=7) == by_id
    assert pages(many, "word", limit=7, sort="oldest") == ids(
        many.search_messages("word", limit=-1, sort="oldest")
    )


def test_a_cursor_of_another_search_is_refused(many: Any) -> None:
    at = many.search_page("word", limit=5)["cursor"]
    assert len(many.search_messages("word", cursor=at)) == 20
    for given in (
        {"query": "words"}, {"query": "word", "sort": "newest"}, {"query": "word", "match": "substring"},
        {"query": "word", "since": 1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="another search"):
            many.search_page(**given, cursor=at)
    for text in ("", "x", "é", "[" * 4000, at[:-3], "WzFd", at + "AAAA"):
        with pytest.raises(ValueError, match="cursor"):
            many.search_page("word", cursor=text)
    with pytest.raises(TypeError, match="cursor must be a str"):
        many.search_page("word", cursor=5)


@pytest.mark.parametrize("key", [None, 1, -2.5, "text", float("inf")])
def test_a_place_comes_back_as_it_was_written(key: Any) -> None:
    place = cursor.Place("newest", key, -5, 3)
    assert cursor.read(cursor.write(place, ("q", 1)), ("q", 1)) == place


# -- time limits --


@pytest.fixture
def slow(make_db: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store of which every read takes more steps than a limit lets pass."""
    db = make_db()
    monkeypatch.setattr(limits, "STEPS", 10)
    for n in range(30):
        db.create_session(f"s{n}", "cli")
        db.append_messages(f"s{n}", [{"role": "user", "content": f"word {m} 单词"} for m in range(20)])
    db.search_messages("word")
    return db


CALLS = {
    "search_messages": lambda db, seconds: db.search_messages("word", time_limit=seconds),
    "search_page": lambda db, seconds: db.search_page("单词 OR w", match="substring", time_limit=seconds),
    "list_sessions_rich": lambda db, seconds: db.list_sessions_rich(
        order_by_last_active=True, time_limit=seconds
    ),
    "search_sessions": lambda db, seconds: db.search_sessions(time_limit=seconds),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_read_ends_at_its_limit_with_a_typed_error_and_holds_nothing(slow: Any, name: str) -> None:
    assert CALLS[name](slow, 600)
    with pytest.raises(
        errors.StoreInterruptedError, match=rf"interrupted by its time limit of 1e-09 s \(in {name}"
    ):
        CALLS[name](slow, 1e-9)
    for conn in slow._engine._readers._idle:
        assert not conn.in_transaction
    # The limit went with the call: the same connections answer without one, and writes go on.
    assert CALLS[name](slow, None) == CALLS[name](slow, 600)
    assert slow.append_message("s0", "user", "word") > 0
    assert len(slow.search_messages("word", limit=-1)) == 601
    assert not slow._engine.damage.known


@pytest.mark.parametrize("name", CALLS)
def test_a_limit_must_be_a_number_above_0(db: Any, name: str) -> None:
    for value in ("1", True):
        with pytest.raises(TypeError, match="time_limit"):
            CALLS[name](db, value)
    for number in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="time_limit"):
            CALLS[name](db, number)


def test_a_limit_covers_the_indexing_that_a_search_waits_for(make_db: Any) -> None:
    db = make_db()
    session_id = db.create_session("s", "cli")
    sql = "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', 'word', 1)"
    elsewhere(db.db_path, "DROP TRIGGER messages_fts_insert", (sql, [(session_id,)] * 1500))
    with pytest.raises(errors.StoreInterruptedError, match="time limit"):
        db.search_messages("word", time_limit=1e-9)
    assert len(db.search_messages("word", limit=-1)) == 1500


def test_the_bare_store_answers_the_arguments_alike() -> None:
    conn = search_store.store()
    session(conn, "t")
    rows = [add(conn, "word", timestamp=float(n), session_id="st"[n % 2]) for n in range(4)]
    index(conn)
    assert found(conn, "word", since=1, until=3, sort="newest") == [rows[2], rows[1]]
    conn.close()
