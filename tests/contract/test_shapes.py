"""What the public methods return, and the classes and words of what they raise (sections 4, 4.1 to 4.3)."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
import time
from typing import Any

import pytest

from hermes_state import SessionDB, errors

SESSION_COLUMNS = [
    "id",
    "source",
    "user_id",
    "model",
    "model_config",
    "system_prompt",
    "parent_session_id",
    "started_at",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "estimated_cost_usd",
    "actual_cost_usd",
    "cost_status",
    "cost_source",
    "pricing_version",
    "title",
    "api_call_count",
    "handoff_state",
    "handoff_platform",
    "handoff_error",
]
MESSAGE_COLUMNS = [
    "id",
    "session_id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "timestamp",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
]


@pytest.fixture
def s(db: Any) -> Any:
    """A store with a session ``s`` of nine messages."""
    db.create_session("s", "cli", model="m", model_config={"a": "é"}, system_prompt="p", user_id="u")
    for number in range(9):
        db.append_message("s", ("user", "assistant", "tool")[number % 3], f"text {number}")
    return db


def test_a_session_is_a_dict_of_all_columns_in_their_order(s: Any) -> None:
    session = s.get_session("s")
    assert list(session) == SESSION_COLUMNS
    assert type(session) is dict
    assert (session["model_config"], session["message_count"]) == ('{"a": "é"}', 9)
    assert abs(session["started_at"] - time.time()) < 60
    assert s.get_session("nobody") is None


def test_creating_and_ensuring_return_the_id(db: Any) -> None:
    assert db.create_session(session_id="a", source="cli") == "a"
    assert db.create_session("a", "telegram") == "a"
    assert db.ensure_session("b") == "b"
    assert (db.get_session("a")["source"], db.get_session("b")["source"]) == ("cli", "unknown")
    assert db.session_count() == 2
    assert db.session_count(source="cli") == 1
    assert db.session_count("nowhere") == 0


def test_the_first_end_reason_wins_until_the_session_is_reopened(s: Any) -> None:
    assert s.end_session("s", end_reason="first") is None
    ended = s.get_session("s")
    s.end_session("s", "second")
    assert s.get_session("s") == ended
    assert ended["end_reason"] == "first"
    s.reopen_session("s")
    assert (s.get_session("s")["ended_at"], s.get_session("s")["end_reason"]) == (None, None)
    s.end_session("s", "third")
    assert s.get_session("s")["end_reason"] == "third"


def test_messages_are_dicts_of_all_columns_in_insertion_order(s: Any) -> None:
    messages = s.get_messages("s")
    assert all(list(message) == MESSAGE_COLUMNS for message in messages)
    assert [message["id"] for message in messages] == list(range(1, 10))
    assert s.get_messages("nobody") == []
    assert s.message_count() == s.message_count("s") == 9
    assert s.message_count("nobody") == 0


def test_all_arguments_of_an_append_are_stored_in_their_columns(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    given = {
        "content": "c",
        "tool_name": "n",
        "tool_calls": [{"id": "1"}],
        "tool_call_id": "i",
        "token_count": 5,
        "finish_reason": "stop",
        "reasoning": "r",
        "reasoning_content": "rc",
        "reasoning_details": [{"d": "é"}],
        "codex_reasoning_items": [1],
        "codex_message_items": {"x": None},
    }
    one = any_db.append_message(session_id="s", role="assistant", **given)
    (two,) = any_db.append_messages("s", [{"role": "assistant", **given}])
    any_db.append_message(
        "s",
        "assistant",
        *(
            given[name]
            for name in (
                "content",
                "tool_name",
                "tool_calls",
                "tool_call_id",
                "token_count",
                "finish_reason",
                "reasoning",
                "reasoning_content",
                "reasoning_details",
                "codex_reasoning_items",
                "codex_message_items",
            )
        ),
    )
    stored = {
        **given,
        "reasoning_details": '[{"d": "é"}]',
        "codex_reasoning_items": "[1]",
        "codex_message_items": '{"x": null}',
    }
    messages = any_db.get_messages("s")
    assert [message["id"] for message in messages] == [one, two, two + 1]
    for message in messages:
        assert {key: message[key] for key in given} == stored
        assert type(message["timestamp"]) is float


def test_a_conversation_has_what_is_set_and_the_rest_only_on_assistants(db: Any) -> None:
    db.create_session("s", "cli")
    extras = {
        "finish_reason": "stop",
        "reasoning": "r",
        "reasoning_content": "",
        "reasoning_details": [1],
        "codex_reasoning_items": [2],
        "codex_message_items": [3],
    }
    db.append_message("s", "assistant", "a", tool_calls=[{"id": "1"}], **extras)
    db.append_message("s", "user", "u", **extras)
    db.append_message("s", "tool", "t", tool_call_id="1", tool_name="n")
    db.append_message("s", "assistant", None)
    assert db.get_messages_as_conversation("s") == [
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}], **extras},
        {"role": "user", "content": "u"},
        {"role": "tool", "content": "t", "tool_call_id": "1", "tool_name": "n"},
        {"role": "assistant", "content": None},
    ]
    assert db.get_messages_as_conversation("nobody") == []


NOTE = (
    "[System note: The following is recalled memory context, NOT new user input."
    " Treat as informational background data.]"
)


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<memory-context>secret</memory-context>hello", "hello"),
        (f"<memory-context>\n{NOTE}\n\nfacts\n</memory-context>\n\n  hello ", "hello"),
        (f"{NOTE}\n\nhello", "hello"),
        ("a <memory-context>x</memory-context> b <memory-context>y</memory-context> c", "a  b  c"),
        ("stray </memory-context> tag", "stray  tag"),
        ("open <memory-context> tag", "open  tag"),
        ("  outer  ", "outer"),
        ("<b>kept</b> [System note: another one]", "<b>kept</b> [System note: another one]"),
    ],
)
def test_recalled_memory_is_not_replayed(db: Any, role: str, text: str, shown: str) -> None:
    db.create_session("s", "cli")
    db.append_message("s", role, text)
    db.append_message("s", "tool", text)
    replay = db.get_messages_as_conversation("s")
    assert replay == [{"role": role, "content": shown}, {"role": "tool", "content": text}]
    assert [message["content"] for message in db.get_messages("s")] == [text, text]


def test_windows_have_their_messages_and_numbers(s: Any) -> None:
    middle = s.get_messages_around("s", 5, window=2)
    assert list(middle) == ["window", "messages_before", "messages_after"]
    assert [message["id"] for message in middle["window"]] == [3, 4, 5, 6, 7]
    assert (middle["messages_before"], middle["messages_after"]) == (2, 2)
    assert list(middle["window"][0]) == MESSAGE_COLUMNS
    assert [m["id"] for m in s.get_messages_around("s", 1)["window"]] == [1, 2, 3, 4, 5, 6]
    assert [m["id"] for m in s.get_messages_around("s", 9, window=0)["window"]] == [9]
    nothing = {"window": [], "messages_before": 0, "messages_after": 0}
    assert s.get_messages_around("s", 99) == nothing
    assert s.get_messages_around("nobody", 5) == nothing


def test_an_anchored_view_has_bookends_of_the_roles_asked_for(s: Any) -> None:
    view = s.get_anchored_view("s", 6, window=1, bookend=2)
    assert list(view) == ["window", "messages_before", "messages_after", "bookend_start", "bookend_end"]
    assert [message["id"] for message in view["window"]] == [5, 6, 7]
    assert [message["id"] for message in view["bookend_start"]] == [1, 2]
    assert [message["id"] for message in view["bookend_end"]] == [8]
    every = s.get_anchored_view("s", 5, window=1, bookend=5, keep_roles=None)
    assert [message["id"] for message in every["bookend_start"]] == [1, 2, 3]
    assert [message["id"] for message in every["bookend_end"]] == [7, 8, 9]
    missing = s.get_anchored_view("s", 99)
    assert missing == {
        "window": [],
        "messages_before": 0,
        "messages_after": 0,
        "bookend_start": [],
        "bookend_end": [],
    }


def test_replaced_timestamps_are_kept_and_missing_ones_rise_by_a_microsecond(s: Any) -> None:
    before = time.time()
    assert (
        s.replace_messages("s", [{"role": "user", "content": "a", "timestamp": 5.5}, *[{"role": "user"}] * 3])
        is None
    )
    stamps = [message["timestamp"] for message in s.get_messages("s")]
    assert stamps[0] == 5.5
    assert before <= stamps[1] <= time.time() + 1
    assert [round((b - a) * 1e6) for a, b in itertools.pairwise(stamps[1:])] == [1, 1]
    s.replace_messages("s", [])
    assert s.get_messages("s") == []
    assert s.get_session("s")["message_count"] == 0


def test_lists_are_session_dicts_with_preview_and_activity(s: Any) -> None:
    (row,) = s.list_sessions_rich()
    assert set(SESSION_COLUMNS) | {"preview", "last_active"} <= set(row)
    assert row["preview"] == "text 0"
    assert row["last_active"] == s.get_messages("s")[-1]["timestamp"]
    (found,) = s.search_sessions()
    assert set(SESSION_COLUMNS) <= set(found)
    s.create_session("t", "telegram")
    assert s.list_sessions_rich(source="telegram")[0]["preview"] == ""
    assert s.list_sessions_rich(source="telegram")[0]["last_active"] == s.get_session("t")["started_at"]
    assert [row["id"] for row in s.list_sessions_rich()] == ["t", "s"]
    assert [row["id"] for row in s.list_sessions_rich(limit=1, offset=1)] == ["s"]
    assert [row["id"] for row in s.list_sessions_rich(exclude_sources=["telegram"])] == ["s"]
    assert [row["id"] for row in s.search_sessions(source="cli")] == ["s"]
    assert [row["id"] for row in s.search_sessions(limit=1, offset=1)] == ["s"]


def test_a_long_preview_is_cut(db: Any) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "x" * 100)
    assert db.list_sessions_rich()[0]["preview"] == "x" * 60 + "..."


def test_exports_are_a_session_with_its_messages(s: Any) -> None:
    exported = s.export_session("s")
    assert list(exported) == [*SESSION_COLUMNS, "messages"]
    assert exported["messages"] == s.get_messages("s")
    s.create_session("t", "telegram")
    assert {row["id"] for row in s.export_all()} == {"s", "t"}
    assert [row["id"] for row in s.export_all(source="telegram")] == ["t"]
    assert s.export_session("nobody") is None


def test_deletions_say_what_they_did(s: Any) -> None:
    s.create_session("child", "cli", parent_session_id="s")
    assert s.clear_messages("s") is None
    assert (s.message_count(), s.get_session("s")["message_count"]) == (0, 0)
    assert s.delete_session("s") is True
    assert s.delete_session("s") is False
    assert s.get_session("child")["parent_session_id"] is None
    assert s.prune_sessions() == 0
    assert s.prune_empty_ghost_sessions() == 0


def test_meta_is_text_or_none(db: Any) -> None:
    assert db.get_meta("k") is None
    assert db.set_meta("k", "v") is None
    db.set_meta("k", "w")
    assert db.get_meta("k") == "w"


# -- exceptions


def test_an_unknown_session_is_a_foreign_key_error(any_db: Any) -> None:
    for call in (
        lambda: any_db.append_message("nobody", "user", "x"),
        lambda: any_db.append_messages("nobody", [{"role": "user", "content": "x"}]),
        lambda: any_db.replace_messages("nobody", [{"role": "user", "content": "x"}]),
        lambda: any_db.create_session("s", "cli", parent_session_id="nobody"),
    ):
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY constraint failed") as caught:
            call()
        assert isinstance(caught.value, errors.UnknownSessionError)
    assert (any_db.message_count(), any_db.session_count()) == (0, 0)


def test_one_bad_message_fails_its_batch_alone_and_whole(any_db: Any) -> None:
    any_db.create_session("s", "cli")
    good = {"role": "user", "content": "fine"}
    for bad in (
        "text",
        5,
        None,
        {"role": 5},
        {"role": "user", "token_count": 2**80},
        {"role": "user", "timestamp": "soon"},
    ):
        with pytest.raises((TypeError, ValueError)):
            any_db.append_messages("s", [good, bad, good])
        with pytest.raises((TypeError, ValueError)):
            any_db.replace_messages("s", [good, bad])
    assert any_db.message_count() == 0
    assert any_db.append_messages("s", [good]) == [1]


def test_arguments_of_the_wrong_type_are_named(db: Any) -> None:
    db.create_session("s", "cli")
    for call, name in (
        (lambda: db.append_message("s", None), "role"),
        (lambda: db.append_message(5, "user"), "session_id"),
        (lambda: db.create_session(None, "cli"), "session_id"),
        (lambda: db.create_session("t", None), "source"),
        (lambda: db.append_message("s", "user", token_count="many"), "token_count"),
        (lambda: db.update_token_counts("s", input_tokens="many"), "input_tokens"),
    ):
        with pytest.raises((TypeError, ValueError), match=name):
            call()


def test_every_call_after_close_is_one_clear_error(tmp_path: Any) -> None:
    db = SessionDB(tmp_path / "a.db")
    db.create_session("s", "cli")
    conn = db._conn
    db.close()
    db.close()
    for call in (
        lambda: db.append_message("s", "user", "x"),
        lambda: db.get_messages("s"),
        lambda: db.search_messages("x"),
        lambda: db.create_session("t", "cli"),
        lambda: db._execute_write(lambda _conn: None),
        lambda: conn.execute("SELECT 1"),
    ):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            call()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (errors.StoreBusyError, sqlite3.OperationalError),
        (errors.StoreFullError, sqlite3.OperationalError),
        (errors.StoreReadOnlyError, sqlite3.OperationalError),
        (errors.StoreCorruptError, sqlite3.DatabaseError),
        (errors.NotADatabaseError, sqlite3.DatabaseError),
        (errors.UnknownSessionError, sqlite3.IntegrityError),
        (errors.StoreClosedError, sqlite3.ProgrammingError),
    ],
)
def test_our_errors_are_of_the_stdlibs_classes(ours: type[Exception], theirs: type[Exception]) -> None:
    assert issubclass(ours, theirs)
    assert issubclass(ours, errors.HermesStateError)


def test_a_lock_that_is_not_to_be_had_is_a_locked_error(make_db: Any, db_path: Any) -> None:
    db = make_db(patience=0.2)
    db.create_session("s", "cli")
    code = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\nprint('HELD', flush=True)\nsys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(db_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "HELD\n"
        with pytest.raises(sqlite3.OperationalError, match="locked") as caught:
            db.append_message("s", "user", "x")
        assert isinstance(caught.value, errors.StoreBusyError)
        assert caught.value.waited >= 0.2
        assert db.get_messages("s") == []
        holder.communicate("\n", timeout=300)
    assert db.append_message("s", "user", "x") == 1
