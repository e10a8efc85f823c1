"""Titles and lineage: cases 43 to 49 from the field, and their neighbours."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

OWNER = """
import sys
from hermes_state import SessionDB
path, session = sys.argv[1:]
with SessionDB(path, patience=600) as db:
    print("READY", flush=True)
    sys.stdin.readline()
    for number in range(20):
        db.create_session(f"{session}{number}", "cli")
        print(db.set_or_number_title(f"{session}{number}", "shared"), flush=True)
"""


def titled(db: Any, *titles: str) -> dict[str, str]:
    """One session a title; title -> id."""
    made = {}
    for number, title in enumerate(titles):
        made[title] = db.create_session(f"t{number}", "cli")
        assert db.set_session_title(made[title], title)
    return made


def started(db: Any, session_id: str, at: float, ended: float | None = None, why: str | None = None) -> None:
    """Set a session's start and end, as another clock would have."""
    db._conn.execute(
        "UPDATE sessions SET started_at = ?, ended_at = ?, end_reason = ? WHERE id = ?",
        (at, ended, why, session_id),
    )


def chain(db: Any, length: int, step: float = 100.0) -> list[str]:
    """Sessions that compression continues one into the next, the last one live, each with a message."""
    begin = time.time() - length * step - 10
    ids = [f"c{number:03}" for number in range(length)]
    for number, session_id in enumerate(ids):
        db.create_session(session_id, "cli", parent_session_id=ids[number - 1] if number else None)
        db.append_message(session_id, "user", f"message of {session_id}")
        last = number == length - 1
        at = begin + number * step
        started(db, session_id, at, None if last else at + step, None if last else "compression")
    return ids


def test_a_family_is_the_base_and_its_numbers_in_the_same_case(db: Any) -> None:
    ids = titled(
        db, "foo", "foo #2", "foo #bar", "FOO", "foo #bar #9", "foo#7", "food #5", "a foo #8", "foo #3x"
    )
    assert db.resolve_session_by_title("foo") == ids["foo #2"]
    assert db.resolve_session_by_title("FOO") == ids["FOO"]
    assert db.resolve_session_by_title("foo #bar") == ids["foo #bar #9"]
    assert db.resolve_session_by_title("foo #2") == ids["foo #2"]
    assert db.resolve_session_by_title("Foo") is None
    assert db.get_next_title_in_lineage("foo") == "foo #3"
    assert db.get_next_title_in_lineage("foo #2") == "foo #3"
    assert db.get_next_title_in_lineage("FOO") == "FOO #2"
    assert db.get_next_title_in_lineage("foo #bar") == "foo #bar #10"
    assert db.get_next_title_in_lineage("nobody's") == "nobody's"
    assert db.get_session_by_title("foo")["id"] == ids["foo"]


def test_the_highest_number_is_a_number_and_not_a_text(db: Any) -> None:
    ids = titled(db, "foo", "foo #9", "foo #10", "foo #2")
    assert db.resolve_session_by_title("foo") == ids["foo #10"]
    assert db.get_next_title_in_lineage("foo") == "foo #11"


@pytest.mark.parametrize(
    "base", ["100%", "a_b", "a*b", "[x]", "it's", 'say "x"', "a\\b", "über", "广西", "a #b"]
)
def test_wildcards_in_titles_are_text(db: Any, base: str) -> None:
    ids = titled(db, base, f"{base} #2", "100x #9", "aXb #9", "axxb #9", "x #9")
    assert db.resolve_session_by_title(base) == ids[f"{base} #2"]
    assert db.get_next_title_in_lineage(base) == f"{base} #3"


@pytest.mark.parametrize("length", [95, 96, 97, 98, 99, 100])
def test_the_next_title_of_a_long_one_fits(db: Any, length: int) -> None:
    title = "x" * length
    seen = {title}
    db.create_session("s", "cli")
    db.set_session_title("s", title)
    for number in range(2, 13):
        following = db.get_next_title_in_lineage(title)
        assert len(following) <= 100
        assert following not in seen
        seen.add(following)
        db.create_session(f"s{number}", "cli")
        assert db.set_session_title(f"s{number}", following)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  a \t b\n\nc  ", "a b c"), ("a\x00b\x1b[0m", "ab[0m"), ("\u200b\ufeff", None), ("", None),
        ("   ", None), (None, None), ("a\u202eb", "ab"), ("👩\u200d👩\u200d👧", "👩\u200d👩\u200d👧"),
        ("a\u200db", "ab"), ("a\u00a0b", "a b"), ("x" * 100, "x" * 100), ("x" * 90 + " " * 50, "x" * 90),
        ("a\u2066b\ufffcc", "abc"),
    ],
)  # fmt: skip
def test_titles_are_cleaned(db: Any, given: str | None, kept: str | None) -> None:
    assert db.sanitize_title(given) == kept
    db.create_session("s", "cli")
    assert db.set_session_title("s", given) is True
    assert db.get_session_title("s") == kept


def test_titles_are_refused_that_are_too_long_or_in_use(db: Any) -> None:
    titled(db, "foo")
    db.create_session("s", "cli")
    with pytest.raises(ValueError, match="too long"):
        db.sanitize_title("x" * 101)
    with pytest.raises(ValueError, match="too long"):
        db.set_session_title("s", "x" * 101)
    with pytest.raises(ValueError, match="already in use"):
        db.set_session_title("s", "foo")
    assert db.get_session_title("s") is None
    assert db.set_session_title("nobody", "bar") is False
    assert db.set_session_title("t0", "foo") is True


def test_processes_that_want_one_title_at_once_get_one_each(make_db: Any, db_path: Any) -> None:
    db = make_db()
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", OWNER, str(db_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for owner in owners:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "READY\n"
    for owner in owners:
        assert owner.stdin is not None
        owner.stdin.write("\n")
        owner.stdin.flush()
    got = [title for owner in owners for title in owner.communicate(timeout=300)[0].splitlines()]
    assert [owner.returncode for owner in owners] == [0, 0]
    assert sorted(got) == sorted(["shared", *(f"shared #{number}" for number in range(2, 41))])
    assert db.get_next_title_in_lineage("shared") == "shared #41"


def test_set_or_number_is_repeatable(db: Any) -> None:
    titled(db, "foo")
    db.create_session("s", "cli")
    assert db.set_or_number_title("s", "foo") == "foo #2"
    assert db.set_or_number_title("s", "foo") == "foo #2"
    assert db.set_or_number_title("t0", "foo") == "foo"
    assert db.get_session_title("s") == "foo #2"


def test_a_continuation_takes_its_ended_ancestors_title(db: Any) -> None:
    ids = chain(db, 3)
    db.set_session_title(ids[0], "work")
    assert db.set_session_title(ids[2], "work") is True
    assert [db.get_session_title(session_id) for session_id in ids] == [None, None, "work"]
    db.create_session("stranger", "cli")
    with pytest.raises(ValueError, match="already in use"):
        db.set_session_title("stranger", "work")


@pytest.mark.parametrize("late", [-0.9, -0.010, 0.0, 0.010, 60.0])
def test_a_clock_that_is_a_little_off_does_not_hide_the_continuation(db: Any, late: float) -> None:
    db.create_session("root", "cli")
    db.create_session("child", "cli", parent_session_id="root")
    db.append_message("child", "user", "goes on")
    started(db, "root", 1000.0, 2000.0, "compression")
    started(db, "child", 2000.0 + late)
    assert db.get_compression_tip("root") == "child"
    (row,) = db.list_sessions_rich()
    assert (row["id"], row["_lineage_root_id"]) == ("child", "root")


def test_a_sub_agent_is_no_continuation(db: Any) -> None:
    db.create_session("root", "cli")
    for child, at in (("agent", 1500.0), ("tip", 2000.1), ("later", 2400.0)):
        db.create_session(child, "cli", parent_session_id="root")
        started(db, child, at)
    for session in ("agent", "tip", "later"):
        db.append_message(session, "user", f"of {session}")
    started(db, "root", 1000.0, 2000.0, "compression")
    assert db.get_compression_tip("root") == "tip"
    assert db.get_compression_tip("agent") == "agent"
    assert [row["id"] for row in db.list_sessions_rich()] == ["tip"]
    assert {row["id"] for row in db.list_sessions_rich(include_children=True)} == {
        "root",
        "agent",
        "tip",
        "later",
    }


def test_a_child_of_a_session_that_ended_otherwise_is_no_continuation(db: Any) -> None:
    db.create_session("root", "cli")
    db.create_session("child", "cli", parent_session_id="root")
    db.append_message("child", "user", "x")
    started(db, "root", 1000.0, 2000.0, "user_exit")
    started(db, "child", 2000.5)
    assert db.get_compression_tip("root") == "root"
    assert [row["id"] for row in db.list_sessions_rich()] == ["root"]
    started(db, "root", 1000.0, 2000.0, "branched")
    assert db.get_compression_tip("root") == "root"
    assert {row["id"] for row in db.list_sessions_rich()} == {"root", "child"}


def test_a_chain_of_150_is_walked_to_its_end(db: Any) -> None:
    ids = chain(db, 150)
    assert db.get_compression_tip(ids[0]) == ids[-1]
    assert db.get_compression_tip(ids[70]) == ids[-1]
    assert db.resolve_resume_session_id(ids[0]) == ids[-1]
    assert [row["id"] for row in db.get_lineage(ids[-1])] == ids[::-1]
    assert [row["id"] for row in db.get_descendants(ids[0])] == ids
    whole = db.get_messages_as_conversation(ids[-1], include_ancestors=True)
    assert [message["content"] for message in whole] == [f"message of {session_id}" for session_id in ids]
    for by_activity in (False, True):
        (row,) = db.list_sessions_rich(order_by_last_active=by_activity)
        assert (row["id"], row["_lineage_root_id"], row["preview"]) == (
            ids[-1],
            ids[0],
            f"message of {ids[-1]}",
        )
    (row,) = db.list_sessions_rich(project_compression_tips=False)
    assert row["id"] == ids[0]


def every_walk(db: Any, session_id: str) -> None:
    db.get_compression_tip(session_id)
    db.resolve_resume_session_id(session_id)
    db.get_lineage(session_id)
    db.get_descendants(session_id)
    db.get_messages_as_conversation(session_id, include_ancestors=True)
    db.set_session_title(session_id, "title of " + session_id)
    db.finalize_orphaned_compression_sessions()
    db.prune_candidates(0)
    db.search_messages("round")
    for children in (False, True):
        for by_activity in (False, True):
            db.list_sessions_rich(include_children=children, order_by_last_active=by_activity)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("reason", ["compression", "branched", "user_exit"])
def test_walks_in_a_circle_end(db: Any, length: int, reason: str) -> None:
    ids = [f"r{number}" for number in range(length)]
    for session_id in ids:
        db.create_session(session_id, "cli")
        db.append_message(session_id, "user", "round and round")
    for number, session_id in enumerate(ids):
        db._conn.execute(
            "UPDATE sessions SET parent_session_id = ?, started_at = 2, ended_at = 2, end_reason = ?"
            " WHERE id = ?",
            (ids[number - 1], reason, session_id),
        )
    for session_id in ids:
        every_walk(db, session_id)
    assert db.delete_session(ids[0]) is True
    assert db.prune_sessions(0) >= 0


def test_ids_resolve_by_their_unique_beginning_and_every_character_is_itself(db: Any) -> None:
    for session_id in ("20260101X", "20260102_a", "20260102_b", "a%b", "axb", "日本語", "日本酒"):
        db.create_session(session_id, "cli")
    assert db.resolve_session_id("") is None
    assert db.resolve_session_id("20260101_") is None
    assert db.resolve_session_id("20260101") == "20260101X"
    assert db.resolve_session_id("20260102_") is None
    assert db.resolve_session_id("20260102_a") == "20260102_a"
    assert db.resolve_session_id("a%") == "a%b"
    assert db.resolve_session_id("%") is None
    assert db.resolve_session_id("a") is None
    assert db.resolve_session_id("日本語") == "日本語"
    assert db.resolve_session_id("日本") is None
    assert db.resolve_session_id("日本酒") == "日本酒"
    assert db.resolve_session_id("nope") is None


def test_an_exact_id_wins_over_longer_ones(db: Any) -> None:
    db.create_session("abc", "cli")
    db.create_session("abcd", "cli")
    assert db.resolve_session_id("abc") == "abc"
    assert db.resolve_session_id("ab") is None


@pytest.mark.parametrize("link", [0, 1, 2])
def test_a_conversation_is_deleted_with_all_its_links(any_db: Any, hits: Any, link: int) -> None:
    ids = chain(any_db, 3)
    any_db.create_session("agent", "cli", parent_session_id=ids[0])
    any_db.create_session("other", "cli")
    kept = any_db.append_message("other", "user", "message of other")
    started(any_db, "agent", 1.0)
    assert any_db.delete_conversation(ids[link]) == ids
    assert hits(any_db, "message") == {kept}
    assert any_db.get_session("agent")["parent_session_id"] is None
    assert any_db.session_count() == 2
    assert any_db.message_count() == 1


def test_resuming_goes_to_the_tip_or_to_where_messages_are(db: Any) -> None:
    ids = chain(db, 2)
    assert db.resolve_resume_session_id(ids[0]) == ids[1]
    db.create_session("empty", "cli")
    db.create_session("mid", "cli", parent_session_id="empty")
    db.create_session("leaf", "cli", parent_session_id="mid")
    assert db.resolve_resume_session_id("empty") == "empty"
    db.append_message("leaf", "user", "here")
    assert db.resolve_resume_session_id("empty") == "leaf"
    db.append_message("empty", "user", "and here")
    assert db.resolve_resume_session_id("empty") == "empty"
    assert db.resolve_resume_session_id("nobody") == "nobody"


def test_orphaned_continuations_are_ended(db: Any) -> None:
    now = time.time()
    db.create_session("root", "cli")
    for child, at in (
        ("orphan", now - 8 * 86400),
        ("young", now - 86400),
        ("used", now - 8 * 86400),
        ("empty", now - 8 * 86400),
    ):
        db.create_session(child, "cli", parent_session_id="root")
        if child != "empty":
            db.append_message(child, "user", "carried over")
        started(db, child, at)
    db.update_token_counts("used", api_call_count=1)
    started(db, "root", now - 9 * 86400, now - 8 * 86400, "compression")
    assert db.finalize_orphaned_compression_sessions() == 1
    assert db.get_session("orphan")["end_reason"] == "orphaned_compression"
    assert [db.get_session(child)["ended_at"] for child in ("young", "used", "empty")] == [None] * 3
    assert db.finalize_orphaned_compression_sessions() == 0
