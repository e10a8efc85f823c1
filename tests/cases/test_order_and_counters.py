"""Order, counters and tokens: cases 36 to 41 from the field."""

from __future__ import annotations

from typing import Any

import pytest

COUNTERS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "api_call_count",
)  # fmt: skip


def test_insertion_order_is_the_order_of_every_reader(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    stamps = [100.0, 95.0, 95.0, 200.0, 1.0]
    texts = [f"word{i} common" for i in range(5)]
    any_db.replace_messages(
        "s",
        [
            {"role": role, "content": text, "timestamp": stamp}
            for role, text, stamp in zip(
                ("user", "assistant", "tool", "assistant", "user"), texts, stamps, strict=True
            )
        ],
    )
    ids = [message["id"] for message in any_db.get_messages("s")]
    assert ids == sorted(ids)
    assert [message["timestamp"] for message in any_db.get_messages("s")] == stamps
    assert [message["content"] for message in any_db.get_messages("s")] == texts
    assert [message["content"] for message in any_db.get_messages_as_conversation("s")] == texts
    assert [message["content"] for message in any_db.export_session("s")["messages"]] == texts
    around = any_db.get_messages_around("s", ids[2], window=1)
    assert [message["id"] for message in around["window"]] == ids[1:4]
    view = any_db.get_anchored_view("s", ids[2], window=1, keep_roles=None)
    assert [message["id"] for message in view["bookend_start"]] == [ids[0]]
    assert [message["id"] for message in view["bookend_end"]] == [ids[4]]
    (hit,) = any_db.search_messages("word2")
    assert [part["content"] for part in hit["context"]] == texts[1:4]


def test_the_preview_is_of_the_first_user_message_by_id(db: Any) -> None:
    db.create_session("s", "cli")
    db.replace_messages(
        "s",
        [
            {"role": "system", "content": "rules", "timestamp": 1.0},
            {"role": "user", "content": "first", "timestamp": 9.0},
            {"role": "user", "content": "second", "timestamp": 2.0},
        ],
    )
    (row,) = db.list_sessions_rich()
    assert row["preview"] == "first"
    assert row["last_active"] == 9.0


@pytest.mark.parametrize("name", COUNTERS)
def test_counting_none_adds_nothing_and_null_counts_as_nothing(db: Any, name: str) -> None:
    db.create_session("s", "cli")
    db._conn.execute(f"UPDATE sessions SET {name} = NULL")
    db.update_token_counts("s", **{name: None})
    assert db.get_session("s")[name] in (0, None)
    db.update_token_counts("s", **{name: 7})
    db.update_token_counts("s", **{name: None})
    db.update_token_counts("s", **{name: 5})
    assert db.get_session("s")[name] == 12
    db.update_token_counts("s", absolute=True, **{name: 3})
    assert db.get_session("s")[name] == 3


def test_null_message_counters_of_old_rows_count_as_nothing(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    any_db._conn.execute("UPDATE sessions SET message_count = NULL, tool_call_count = NULL")
    any_db.append_message("s", "assistant", None, tool_calls=[{"id": "1"}])
    assert any_db.get_session("s")["message_count"] == 1
    assert any_db.get_session("s")["tool_call_count"] == 1


def test_counting_for_a_session_to_come_makes_a_row_that_its_creation_fills_in(db: Any) -> None:
    db.update_token_counts("new", input_tokens=5)
    assert db.get_session("new")["source"] == "unknown"
    started = db.get_session("new")["started_at"]
    db.create_session("new", "telegram", model="m", user_id="u", model_config={"a": 1}, system_prompt="p")
    filled = db.get_session("new")
    assert (filled["source"], filled["model"], filled["user_id"]) == ("telegram", "m", "u")
    assert (filled["system_prompt"], filled["input_tokens"]) == ("p", 5)
    assert filled["started_at"] == started
    db.create_session("new", "cli", model="other", user_id="v", model_config={"b": 2}, system_prompt="q")
    assert db.get_session("new") == filled
    db.ensure_session("new", "discord", "third")
    assert db.get_session("new") == filled


def test_an_unknown_source_does_not_replace_a_known_one(db: Any) -> None:
    db.create_session("s", "cli")
    db.ensure_session("s")
    assert db.get_session("s")["source"] == "cli"
    db.ensure_session("t")
    db.ensure_session("t", "telegram")
    assert db.get_session("t")["source"] == "telegram"


def test_absolute_counts_without_a_cost_leave_the_cost_alone(db: Any) -> None:
    db.create_session("s", "cli")
    db.update_token_counts("s", estimated_cost_usd=1.5, actual_cost_usd=2.5, cost_status="final")
    db.update_token_counts("s", input_tokens=4, absolute=True)
    session = db.get_session("s")
    assert (session["estimated_cost_usd"], session["actual_cost_usd"]) == (1.5, 2.5)
    assert (session["input_tokens"], session["cost_status"]) == (4, "final")
    db.update_token_counts("s", estimated_cost_usd=0.25)
    assert db.get_session("s")["estimated_cost_usd"] == 1.75
    db.update_token_counts("s", estimated_cost_usd=0.25, actual_cost_usd=1.0, absolute=True)
    assert db.get_session("s")["estimated_cost_usd"] == 0.25
    assert db.get_session("s")["actual_cost_usd"] == 1.0


def test_parallel_tool_calls_are_counted_once_each_and_their_replies_not(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    any_db.append_message("s", "assistant", None, tool_calls=[{"id": "a"}, {"id": "b"}])
    any_db.append_message("s", "tool", "one", tool_call_id="a", tool_name="t")
    any_db.append_message("s", "tool", "two", tool_call_id="b", tool_name="t")
    session = any_db.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (3, 2)
    any_db.replace_messages("s", any_db.get_messages("s")[:1])
    session = any_db.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (1, 2)
    any_db.clear_messages("s")
    session = any_db.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (0, 0)


def test_the_same_word_twice_stays_twice_in_the_replay(db: Any) -> None:
    db.create_session("root", "cli")
    db.append_message("root", "user", "yes")
    db.append_message("root", "tool", "t1", tool_call_id="1")
    db.append_message("root", "user", "yes")
    assert [m["content"] for m in db.get_messages_as_conversation("root")] == ["yes", "t1", "yes"]
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    db.append_message("tip", "user", "yes")
    db.append_message("tip", "user", "yes")
    whole = [m["content"] for m in db.get_messages_as_conversation("tip", include_ancestors=True)]
    assert whole == ["yes", "t1", "yes", "yes"]


def test_the_message_carried_over_a_seam_is_left_out_once(db: Any) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli", parent_session_id="a")
    db.create_session("c", "cli", parent_session_id="b")
    for session, texts in (("a", ["q1", "q2"]), ("b", ["q2", "q3"]), ("c", ["q3", "q3", "q4"])):
        for text in texts:
            db.append_message(session, "user", text)
            db.append_message(session, "assistant", f"answer to {text} in {session}")
    users = [m["content"] for m in db.get_messages_as_conversation("c", True) if m["role"] == "user"]
    assert users == ["q1", "q2", "q3", "q3", "q4"]
    assert len(db.get_messages_as_conversation("c")) == 6


def test_a_retry_with_its_key_is_stored_once_and_both_calls_get_the_id(any_db: Any, hits: Any) -> None:
    any_db.create_session("s", "cli")
    calls = [{"id": "c"}]
    first = any_db.append_message("s", "assistant", "docker", tool_calls=calls, idempotency_key="k")
    assert any_db.append_message("s", "assistant", "docker", tool_calls=calls, idempotency_key="k") == first
    session = any_db.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (1, 1)
    assert hits(any_db, "docker") == {first}
