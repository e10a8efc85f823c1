"""Filters, order and page give one answer on every route: case 13 from the field, and 24."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

SOURCES = ("cli", "telegram", "discord")
ROLES = ("user", "assistant", "tool")
ROUTES = [
    "docker",
    '"docker compose"',
    "dock*",
    "部署流程",
    "部署",
    "部",
    "docker 部署流程",
    "docker 部",
    "署流程 部署",
]


@pytest.fixture
def rows(any_db: Any) -> list[dict[str, Any]]:
    """27 messages that every query of ROUTES hits, and 3 that none does; stamps go against the ids."""
    for source in SOURCES:
        for number in range(3):
            any_db.create_session(f"{source}{number}", source)
            any_db.replace_messages(
                f"{source}{number}",
                [
                    {
                        "role": role,
                        "content": "docker compose 部署流程",
                        "timestamp": 1e9 - 10 * number - place,
                    }
                    for place, role in enumerate(ROLES)
                ]
                + ([{"role": "user", "content": "nothing 别的", "timestamp": 5.0}] if number == 0 else []),
            )
    return [
        {**message, "source": any_db.get_session(message["session_id"])["source"]}
        for source in SOURCES
        for number in range(3)
        for message in any_db.get_messages(f"{source}{number}")
        if message["content"].startswith("docker")
    ]


def expected(rows: list[dict[str, Any]], *, sources: Any, excluded: Any, roles: Any) -> list[dict[str, Any]]:
    return [
        row
        for row in rows
        if (sources is None or row["source"] in sources)
        and row["source"] not in (excluded or ())
        and (not roles or row["role"] in roles)
    ]


def test_every_combination_of_filters_gives_the_same_rows_on_every_route(
    any_db: Any, rows: list[dict[str, Any]]
) -> None:
    for query in ROUTES:
        check_filters(any_db, rows, query)


def check_filters(any_db: Any, rows: list[dict[str, Any]], query: str) -> None:
    for sources, excluded, roles, sort in itertools.product(
        (None, [], ["cli"], ["cli", "discord"], ["nowhere"]),
        (None, [], ["cli"]),
        (None, [], ["assistant", "tool"]),
        (None, "newest", "oldest", "sideways"),
    ):
        wanted = expected(rows, sources=sources, excluded=excluded, roles=roles)
        if sort in ("newest", "oldest"):
            wanted.sort(key=lambda row: (row["timestamp"], row["id"]), reverse=sort == "newest")
        found = any_db.search_messages(
            query, source_filter=sources, exclude_sources=excluded, role_filter=roles, limit=-1, sort=sort
        )
        if sort in ("newest", "oldest"):
            assert [hit["id"] for hit in found] == [row["id"] for row in wanted]
        else:
            assert sorted(hit["id"] for hit in found) == sorted(row["id"] for row in wanted)


@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_pages_cut_the_whole_list_and_nothing_else(
    any_db: Any, rows: list[dict[str, Any]], sort: str | None
) -> None:
    for query in ROUTES:
        check_pages(any_db, rows, query, sort)


def check_pages(any_db: Any, rows: list[dict[str, Any]], query: str, sort: str | None) -> None:
    whole = [hit["id"] for hit in any_db.search_messages(query, limit=-1, sort=sort)]
    assert len(whole) == len(rows) == len(set(whole))
    for limit, offset in itertools.product((0, 1, 5, 100), (0, 1, 26, 27, 1000)):
        page = any_db.search_messages(query, limit=limit, offset=offset, sort=sort)
        assert [hit["id"] for hit in page] == whole[offset : offset + limit]
    rest = any_db.search_messages(query, limit=-1, offset=20, sort=sort)
    assert [hit["id"] for hit in rest] == whole[20:]
    assert [hit["id"] for hit in any_db.search_messages(query, sort=sort)] == whole[:20]


def test_one_session_can_be_left_out_and_hits_of_one_session_be_limited(
    any_db: Any, rows: list[dict[str, Any]]
) -> None:
    every = {row["session_id"] for row in rows}
    for query in ROUTES:
        without = any_db.search_messages(query, limit=-1, exclude_session_id="cli1")
        assert {hit["session_id"] for hit in without} == every - {"cli1"}, query
        single = any_db.search_messages(query, limit=-1, per_session=1)
        assert sorted(hit["session_id"] for hit in single) == sorted(every), query


@pytest.mark.parametrize("query", ["docker", "部署流程", "部署", "docker 部署"])
def test_a_busy_session_need_not_hide_the_old_one(any_db: Any, hits: Any, query: str) -> None:
    any_db.create_session("old", "cli")
    any_db.create_session("live", "cli")
    (old,) = any_db.append_messages("old", [{"role": "user", "content": "once: docker 部署流程"}])
    any_db.append_messages("live", [{"role": "user", "content": "docker 部署流程"}] * 60)
    first = any_db.search_messages(query, limit=50, exclude_session_id="live")
    assert [hit["id"] for hit in first] == [old]
    limited = any_db.search_messages(query, limit=50, per_session=5)
    assert old in [hit["id"] for hit in limited]
    assert len(limited) == 6
    assert len(hits(any_db, query)) == 61


def test_results_have_the_documented_keys_and_the_values_of_message_and_session(any_db: Any) -> None:
    any_db.create_session("s", "telegram", model="m1")
    any_db.append_message("s", "user", "before it")
    wanted = any_db.append_message("s", "tool", "the docker log " + "x" * 300, tool_name="terminal")
    any_db.append_message("s", "assistant", None)
    (hit,) = any_db.search_messages("docker")
    message, session = any_db.get_messages("s")[1], any_db.get_session("s")
    assert set(hit) == {
        "id", "session_id", "role", "timestamp", "tool_name", "snippet", "context", "source", "model",
        "session_started",
    }  # fmt: skip
    assert (hit["id"], hit["session_id"], hit["role"], hit["tool_name"]) == (wanted, "s", "tool", "terminal")
    assert hit["timestamp"] == message["timestamp"]
    assert (hit["source"], hit["model"], hit["session_started"]) == ("telegram", "m1", session["started_at"])
    assert ">>>docker<<<" in hit["snippet"]
    assert hit["context"] == [
        {"role": "user", "content": "before it"},
        {"role": "tool", "content": ("the docker log " + "x" * 300)[:200]},
        {"role": "assistant", "content": ""},
    ]
