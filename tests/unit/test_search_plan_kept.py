"""The plan of a query is kept for the next time, and is what it would be if it were not."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.search import plan

queries = st.lists(
    st.sampled_from(
        ["docker", "café", "ж", "\u0301", "🎉", "勤", "考勤", "OR", "NOT", '"a b"', "a*", "½", "²"]
    ),
    max_size=8,
).map(" ".join)


def unkept(conn: apsw.Connection | None, query: str, match: str) -> plan.Plan:
    """The plan as a query longer than any that is kept is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CACHED_CHARS", -1)
        return plan.build(conn, query, match)


@given(query=queries, match=st.sampled_from(plan.MATCHES))
def test_a_plan_that_is_kept_is_the_plan_that_is_made(query: str, match: str) -> None:
    conn = apsw.Connection(":memory:")
    for where in (None, conn, None):
        for _ in range(2):
            assert plan.build(where, query, match) == unkept(where, query, match)
    conn.close()


def test_the_same_query_is_read_once() -> None:
    conn = apsw.Connection(":memory:")
    assert plan.build(conn, "docker café") is plan.build(conn, "docker café")
    conn.close()


def test_long_queries_are_not_kept() -> None:
    query = "word " * plan.CACHED_CHARS
    assert plan.build(None, query) is not plan.build(None, query)


def test_no_more_is_kept_than_the_bound() -> None:
    for number in range(plan.CACHED * 2):
        plan.build(None, f"word{number}")
    assert plan._without.cache_info().currsize <= plan.CACHED
    assert plan._doubtful.cache_info().currsize <= plan.CACHED
