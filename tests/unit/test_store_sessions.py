"""store.sessions, usage, meta, handoff and export on a bare connection."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import apsw
import pytest
from store_helpers import NOW, add_message, add_session, connect, value

from hermes_state.store import export, handoff, meta, sessions, usage

COUNTERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "reasoning_tokens", "api_call_count",
)  # fmt: skip


@pytest.fixture
def conn() -> Iterator[apsw.Connection]:
    connection = connect()
    yield connection
    connection.close()


def test_create_stores_every_field_and_returns_the_id(conn: apsw.Connection) -> None:
    sessions.create(conn, "parent", "cli")
    before = time.time()
    returned = sessions.create(
        conn, "s", "telegram", model="m", model_config={"temperature": 0.5, "name": "模型"},
        system_prompt="be brief", user_id=42, parent_session_id="parent",  # type: ignore[arg-type]
    )  # fmt: skip
    row = sessions.get(conn, "s")
    assert returned == "s"
    assert row is not None
    assert row["user_id"] == "42"
    assert row["model_config"] == '{"temperature": 0.5, "name": "模型"}'
    assert (row["source"], row["model"], row["system_prompt"]) == ("telegram", "m", "be brief")
    assert row["parent_session_id"] == "parent"
    assert before <= row["started_at"] <= time.time()
    assert row["message_count"] == 0
    assert row["ended_at"] is None


@pytest.mark.parametrize("config", [None, {}, "", 0])
def test_an_empty_model_config_is_null(conn: apsw.Connection, config: Any) -> None:
    sessions.create(conn, "s", "cli", model_config=config)
    assert value(conn, "SELECT model_config FROM sessions") is None


def test_create_again_overwrites_nothing(conn: apsw.Connection) -> None:
    sessions.create(conn, "s", "cli", model="first", now=NOW)
    sessions.create(conn, "s", "telegram", model="second", user_id="u", now=NOW + 5)
    row = sessions.get(conn, "s")
    assert row is not None
    assert (row["source"], row["model"], row["user_id"], row["started_at"]) == ("cli", "first", "u", NOW)


def test_create_fills_in_what_a_session_known_by_its_tokens_lacks(conn: apsw.Connection) -> None:
    usage.update_token_counts(conn, "new", input_tokens=5)
    assert value(conn, "SELECT source FROM sessions") == "unknown"
    sessions.create(conn, "new", "telegram", model="m", user_id="u")
    row = sessions.get(conn, "new")
    assert row is not None
    assert (row["source"], row["model"], row["user_id"], row["input_tokens"]) == ("telegram", "m", "u", 5)


def test_create_again_with_nothing_new_writes_nothing(conn: apsw.Connection) -> None:
    sessions.create(conn, "s", "cli", model="m")
    before = conn.total_changes()
    sessions.create(conn, "s", "unknown", model="other")
    assert conn.total_changes() == before


def test_ensure_keeps_a_known_source_and_names_unknown_keywords(conn: apsw.Connection) -> None:
    sessions.create(conn, "s", "cli")
    assert sessions.ensure(conn, "s") == "s"
    assert value(conn, "SELECT source FROM sessions") == "cli"
    assert sessions.ensure(conn, "t", "cron", "m", user_id="u") == "t"
    with pytest.raises(TypeError, match="colour"):
        sessions.ensure(conn, "u", colour="red")
    assert sessions.get(conn, "u") is None


def test_a_missing_parent_writes_nothing(conn: apsw.Connection) -> None:
    with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY"):
        sessions.create(conn, "s", "cli", parent_session_id="nobody")
    assert sessions.count(conn) == 0


@pytest.mark.parametrize(("session_id", "source"), [(None, "cli"), (5, "cli"), ("s", None), ("s", b"cli")])
def test_ids_and_sources_of_other_types_are_refused(
    conn: apsw.Connection, session_id: Any, source: Any
) -> None:
    with pytest.raises(TypeError, match=r"session_id|source"):
        sessions.create(conn, session_id, source)
    assert sessions.count(conn) == 0


def test_lone_surrogates_in_any_field_are_stored_as_replacement_characters(conn: apsw.Connection) -> None:
    sessions.create(conn, "s\ud83d", "cli", system_prompt="a \ud83d b", model="\ud83d\ude00")
    row = sessions.get(conn, "s\ud83d")
    assert row is not None
    assert (row["id"], row["system_prompt"], row["model"]) == ("s\ufffd", "a \ufffd b", "😀")


def test_the_first_end_wins_and_reopen_takes_it_back(conn: apsw.Connection) -> None:
    sessions.create(conn, "s", "cli")
    sessions.end(conn, "s", "user_exit", now=NOW)
    sessions.end(conn, "s", "compression", now=NOW + 1)
    row = sessions.get(conn, "s")
    assert row is not None
    assert (row["ended_at"], row["end_reason"]) == (NOW, "user_exit")
    sessions.reopen(conn, "s")
    row = sessions.get(conn, "s")
    assert row is not None
    assert (row["ended_at"], row["end_reason"]) == (None, None)
    sessions.end(conn, "nobody", "x")


def test_the_system_prompt_can_be_replaced(conn: apsw.Connection) -> None:
    sessions.create(conn, "s", "cli", system_prompt="old")
    sessions.update_system_prompt(conn, "s", "new \ud800")
    assert value(conn, "SELECT system_prompt FROM sessions") == "new \ufffd"


def test_get_returns_columns_of_other_programs_and_none_for_a_stranger(conn: apsw.Connection) -> None:
    conn.execute("ALTER TABLE sessions ADD COLUMN mood TEXT DEFAULT 'calm'")
    sessions.create(conn, "s", "cli")
    row = sessions.get(conn, "s")
    assert row is not None
    assert row["mood"] == "calm"
    assert sessions.get(conn, "nobody") is None


def test_a_row_that_is_not_utf8_is_returned_mended(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    conn.execute("UPDATE sessions SET system_prompt = CAST(x'41ff42' AS TEXT)")
    row = sessions.get(conn, "s")
    assert row is not None
    assert row["system_prompt"] == "A\ufffdB"


def test_an_id_prefix_resolves_only_when_it_is_the_only_one(conn: apsw.Connection) -> None:
    for session_id in ("20260101X", "20260102_a", "20260102_b", "100%", "zz\U0010ffff"):
        add_session(conn, session_id)
    assert sessions.resolve_prefix(conn, "20260101") == "20260101X"
    assert sessions.resolve_prefix(conn, "20260101_") is None
    assert sessions.resolve_prefix(conn, "20260102_") is None
    assert sessions.resolve_prefix(conn, "20260102_a") == "20260102_a"
    assert sessions.resolve_prefix(conn, "") is None
    assert sessions.resolve_prefix(conn, "%") is None
    assert sessions.resolve_prefix(conn, "10_") is None
    assert sessions.resolve_prefix(conn, "zz\U0010ffff") == "zz\U0010ffff"
    assert sessions.resolve_prefix(conn, "\U0010ffff") is None


def test_an_exact_id_wins_over_longer_ones_and_the_empty_id_is_never_a_prefix(conn: apsw.Connection) -> None:
    for session_id in ("", "a", "ab"):
        add_session(conn, session_id)
    assert sessions.resolve_prefix(conn, "a") == "a"
    assert sessions.resolve_prefix(conn, "") is None


@pytest.mark.parametrize("character", ["\ud7ff", "\ue000", "\U0010ffff", "ÿ", "~"])
def test_the_range_of_a_prefix_ends_right_at_the_edges_of_unicode(
    conn: apsw.Connection, character: str
) -> None:
    add_session(conn, f"{character}1")
    add_session(conn, "\U0010ffff\U0010ffff" if character != "\U0010ffff" else "a")
    assert sessions.resolve_prefix(conn, character) == f"{character}1"


def test_a_prefix_is_looked_up_in_the_index(conn: apsw.Connection) -> None:
    plan = conn.execute(
        "EXPLAIN QUERY PLAN SELECT id FROM sessions WHERE id >= ? AND id < ? LIMIT 2", ("a", "b")
    )
    assert "SEARCH sessions USING COVERING INDEX sqlite_autoindex_sessions_1" in plan.fetchall()[0][3]


def test_sessions_are_counted_by_source(conn: apsw.Connection) -> None:
    for session_id, source in (("a", "cli"), ("b", "cli"), ("c", "telegram")):
        add_session(conn, session_id, source=source)
    assert sessions.count(conn) == 3
    assert sessions.count(conn, "cli") == 2
    assert sessions.count(conn, "mail") == 0


# ---- tokens


def counters(conn: apsw.Connection, session_id: str = "s") -> dict[str, Any]:
    row = sessions.get(conn, session_id)
    assert row is not None
    return row


def test_counts_add_up_and_none_adds_nothing(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    usage.update_token_counts(conn, "s", input_tokens=10, output_tokens=2, api_call_count=1)
    usage.update_token_counts(conn, "s", input_tokens=None, output_tokens=3, cache_read_tokens=None)
    row = counters(conn)
    assert (row["input_tokens"], row["output_tokens"], row["api_call_count"]) == (10, 5, 1)


def test_null_counters_of_old_rows_count_as_zero(conn: apsw.Connection) -> None:
    add_session(conn, "s", **dict.fromkeys(COUNTERS))
    usage.update_token_counts(conn, "s", **dict.fromkeys(COUNTERS, 7))
    assert [counters(conn)[name] for name in COUNTERS] == [7] * len(COUNTERS)


def test_absolute_sets_the_counts_and_leaves_a_cost_that_is_not_given(conn: apsw.Connection) -> None:
    add_session(conn, "s", input_tokens=9, estimated_cost_usd=1.5, actual_cost_usd=1.25)
    usage.update_token_counts(conn, "s", input_tokens=3, absolute=True)
    row = counters(conn)
    assert (row["input_tokens"], row["estimated_cost_usd"], row["actual_cost_usd"]) == (3, 1.5, 1.25)
    usage.update_token_counts(conn, "s", estimated_cost_usd=0.5, actual_cost_usd=0.0, absolute=True)
    row = counters(conn)
    assert (row["estimated_cost_usd"], row["actual_cost_usd"]) == (0.5, 0.0)


def test_costs_add_up(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    usage.update_token_counts(conn, "s", estimated_cost_usd=0.5)
    usage.update_token_counts(conn, "s", estimated_cost_usd=Decimal("0.25"), actual_cost_usd=0.125)
    usage.update_token_counts(conn, "s", estimated_cost_usd=math.nan, actual_cost_usd=None)
    row = counters(conn)
    assert (row["estimated_cost_usd"], row["actual_cost_usd"]) == (0.75, 0.125)


def test_the_first_model_and_biller_stay_and_the_newest_word_on_the_cost_counts(
    conn: apsw.Connection,
) -> None:
    add_session(conn, "s")
    usage.update_token_counts(
        conn, "s", model="a", cost_status="estimated", cost_source="table", pricing_version="1",
        billing_provider="p", billing_base_url="u", billing_mode="m",
    )  # fmt: skip
    usage.update_token_counts(
        conn,
        "s",
        model="b",
        cost_status="actual",
        billing_provider="q",
        billing_base_url="v",
        billing_mode="n",
    )
    row = counters(conn)
    assert (row["model"], row["billing_provider"], row["billing_base_url"], row["billing_mode"]) == (
        "a",
        "p",
        "u",
        "m",
    )
    assert (row["cost_status"], row["cost_source"], row["pricing_version"]) == ("actual", "table", "1")


@pytest.mark.parametrize("count", [True, 3.0, 2])
def test_whole_numbers_of_every_kind_count(conn: apsw.Connection, count: Any) -> None:
    add_session(conn, "s")
    usage.update_token_counts(conn, "s", input_tokens=count)
    assert counters(conn)["input_tokens"] == int(count)
    assert value(conn, "SELECT typeof(input_tokens) FROM sessions") == "integer"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"input_tokens": "5"}, TypeError),
        ({"input_tokens": 1.5}, TypeError),
        ({"input_tokens": math.nan}, TypeError),
        ({"output_tokens": 2**63}, OverflowError),
        ({"output_tokens": 1e300}, OverflowError),
        ({"estimated_cost_usd": "1"}, TypeError),
        ({"actual_cost_usd": math.inf}, ValueError),
        ({"model": ["m"]}, TypeError),
    ],
)
def test_a_wrong_count_or_cost_is_refused_before_anything_is_written(
    conn: apsw.Connection, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(fields))):
        usage.update_token_counts(conn, "s", api_call_count=1, **fields)
    assert sessions.count(conn) == 0


def test_totals_by_model_source_and_session_take_null_as_zero(conn: apsw.Connection) -> None:
    add_session(conn, "a", model="m", input_tokens=10, output_tokens=1, estimated_cost_usd=2.0)
    add_session(conn, "b", model="m", input_tokens=None, output_tokens=None)
    add_session(conn, "c", model="n", source="telegram", input_tokens=2**62, output_tokens=100)
    add_session(conn, "d", model="n", source="telegram", input_tokens=2**62, output_tokens=3)
    add_session(conn, "e", input_tokens=1)
    by_model = usage.by_model(conn)
    assert [row["model"] for row in by_model] == ["m", "n"]
    assert by_model[0] == {
        "model": "m", "session_count": 2, "total_input": 10, "total_output": 1, "total_cost": 2.0,
    }  # fmt: skip
    assert by_model[1]["total_output"] == 103
    assert [(row["source"], row["session_count"]) for row in usage.by_source(conn)] == [
        ("cli", 3),
        ("telegram", 2),
    ]
    assert [row["id"] for row in usage.top_sessions(conn, 3)] == ["c", "d", "a"]
    assert usage.top_sessions(conn, 3)[2] == {
        "id": "a", "title": None, "model": "m", "total_tokens": 11, "estimated_cost_usd": 2.0,
    }  # fmt: skip


# ---- state_meta


def test_meta_values_are_replaced_and_absent_keys_are_none(conn: apsw.Connection) -> None:
    assert meta.get(conn, "k") is None
    meta.set(conn, "k", "1")
    meta.set(conn, "k", "2 \ud800")
    meta.set(conn, "n", 5)
    assert meta.get(conn, "k") == "2 \ufffd"
    assert meta.get(conn, "n") == "5"
    with pytest.raises(TypeError, match="value"):
        meta.set(conn, "k", object())


# ---- handoff


def test_a_handoff_runs_from_request_to_completion(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    assert handoff.state(conn, "s") is None
    assert handoff.request(conn, "s", "telegram") is True
    assert handoff.state(conn, "s") == {"state": "pending", "platform": "telegram", "error": None}
    assert handoff.request(conn, "s", "discord") is False
    assert handoff.claim(conn, "s") is True
    assert handoff.claim(conn, "s") is False
    assert handoff.request(conn, "s", "discord") is False
    handoff.complete(conn, "s")
    assert handoff.state(conn, "s") == {"state": "completed", "platform": "telegram", "error": None}
    assert handoff.request(conn, "s", "discord") is True


def test_a_failed_handoff_keeps_the_beginning_of_its_error_and_may_be_asked_for_again(
    conn: apsw.Connection,
) -> None:
    add_session(conn, "s")
    handoff.request(conn, "s", "telegram")
    handoff.claim(conn, "s")
    handoff.fail(conn, "s", "x" * 600)
    assert handoff.state(conn, "s") == {"state": "failed", "platform": "telegram", "error": "x" * 500}
    handoff.fail(conn, "s", RuntimeError("no route \ud800"))
    assert handoff.state(conn, "s") == {"state": "failed", "platform": "telegram", "error": "no route \ufffd"}
    assert handoff.request(conn, "s", "telegram") is True
    assert handoff.state(conn, "s") == {"state": "pending", "platform": "telegram", "error": None}


def test_pending_handoffs_are_listed_oldest_session_first(conn: apsw.Connection) -> None:
    for session_id, start in (("new", NOW + 2), ("old", NOW), ("claimed", NOW + 1)):
        add_session(conn, session_id, start)
        handoff.request(conn, session_id, "telegram")
    handoff.claim(conn, "claimed")
    assert [row["id"] for row in handoff.pending(conn)] == ["old", "new"]
    assert handoff.pending(conn)[0]["handoff_platform"] == "telegram"


def test_a_handoff_of_an_unknown_session_is_refused(conn: apsw.Connection) -> None:
    assert handoff.request(conn, "nobody", "telegram") is False
    assert handoff.claim(conn, "nobody") is False
    assert handoff.state(conn, "nobody") is None


# ---- export


def test_an_export_is_the_session_with_its_messages(conn: apsw.Connection) -> None:
    add_session(conn, "s", title="t")
    add_message(conn, "s", '\x00json:[{"type": "text", "text": "hi"}]')
    exported = export.session(conn, "s")
    assert exported is not None
    assert exported["title"] == "t"
    assert exported["messages"][0]["content"] == [{"type": "text", "text": "hi"}]
    assert export.session(conn, "nobody") is None


def test_json_dumps_of_an_export_never_fails(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    conn.execute("UPDATE sessions SET model = x'00ff', system_prompt = CAST(x'ff41' AS TEXT)")
    add_message(conn, "s", b"\xfe\xff", tool_calls=None, reasoning=b"\x80")
    add_message(conn, "s", '\x00json:["\\ud800"]', finish_reason="\x00")
    conn.execute("UPDATE messages SET tool_calls = '[broken', reasoning_details = x'01'")
    assert len(json.loads(json.dumps(export.session(conn, "s")))["messages"]) == 2


def test_all_sessions_of_a_source_are_exported_newest_activity_first(conn: apsw.Connection) -> None:
    add_session(conn, "a", NOW)
    add_session(conn, "b", NOW + 1)
    add_session(conn, "t", NOW + 2, source="telegram")
    add_message(conn, "a", timestamp=NOW + 50)
    assert [row["id"] for row in export.sessions(conn)] == ["a", "t", "b"]
    assert [row["id"] for row in export.sessions(conn, "cli")] == ["a", "b"]
    assert export.ids(conn, "telegram") == ["t"]
