"""store.retention: what a prune takes, what it leaves, bounded steps, and files beside the store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from store_helpers import DAY, NOW, add_chain, add_message, add_session, connect, no_forget, value

from hermes_state.store import lineage, meta, retention, telegram

CUTOFF = NOW - 90 * DAY
OLD = NOW - 200 * DAY


@pytest.fixture
def conn() -> Iterator[apsw.Connection]:
    connection = connect()
    yield connection
    connection.close()


class Forgotten(list[int]):
    """A ``forget`` that keeps the ids, and sees that their messages are still there."""

    def __call__(self, conn: apsw.Connection, ids: list[int]) -> None:
        there = value(conn, "SELECT COUNT(*) FROM messages WHERE id BETWEEN ? AND ?", min(ids), max(ids))
        assert there >= len(ids) > 0
        self.extend(ids)


def old(conn: apsw.Connection, session_id: str, start: float = OLD, **columns: Any) -> str:
    return add_session(
        conn, session_id, start, **{"ended_at": start + 1, "end_reason": "user_exit", **columns}
    )


def prune(conn: apsw.Connection, **options: Any) -> list[str]:
    remaining = retention.candidates(conn, retention.Age(CUTOFF))
    deleted: list[str] = []
    while remaining:
        step = retention.prune_step(conn, remaining, no_forget, retention.Age(CUTOFF), **options)
        deleted += step.deleted
        remaining = step.remaining
    return deleted


def left(conn: apsw.Connection) -> set[str]:
    return {row[0] for row in conn.execute("SELECT id FROM sessions")}


# ---- one session, one conversation


def test_deleting_a_session_takes_its_messages_and_orphans_its_children(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    add_session(conn, "child", parent_session_id="s")
    ids = [add_message(conn, "s") for _ in range(3)]
    kept = add_message(conn, "child")
    forgotten = Forgotten()
    assert retention.delete_session(conn, "s", forgotten) is True
    assert forgotten == ids
    assert conn.execute("SELECT id, parent_session_id FROM sessions").fetchall() == [("child", None)]
    assert conn.execute("SELECT id FROM messages").fetchall() == [(kept,)]
    assert retention.delete_session(conn, "s", forgotten) is False
    assert retention.delete_session(conn, "", forgotten) is False


def test_a_session_that_is_its_own_parent_can_be_deleted(conn: apsw.Connection) -> None:
    add_session(conn, "a", parent_session_id="a")
    add_session(conn, "b")
    add_session(conn, "c", parent_session_id="b")
    conn.execute("UPDATE sessions SET parent_session_id = 'c' WHERE id = 'b'")
    assert retention.delete_session(conn, "a", no_forget) is True
    assert retention.delete_session(conn, "b", no_forget) is True
    assert left(conn) == {"c"}


@pytest.mark.parametrize("cascade", [True, False])
def test_a_topics_binding_goes_with_its_session(conn: apsw.Connection, cascade: bool) -> None:
    add_session(conn, "s")
    telegram.bind(conn, chat_id=1, thread_id=2, user_id=3, session_key="k", session_id="s")
    if not cascade:
        sql = value(conn, "SELECT sql FROM sqlite_master WHERE name = 'telegram_dm_topic_bindings'")
        saved = conn.execute("SELECT * FROM telegram_dm_topic_bindings").fetchone()
        conn.execute("DROP TABLE telegram_dm_topic_bindings")
        conn.execute(sql.replace("ON DELETE CASCADE", ""))
        conn.execute("INSERT INTO telegram_dm_topic_bindings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", saved)
    assert retention.delete_session(conn, "s", no_forget) is True
    assert telegram.binding(conn, chat_id=1, thread_id=2) is None


@pytest.mark.parametrize("link", [0, 2, 4])
def test_a_conversation_is_deleted_as_a_whole_from_any_of_its_links(conn: apsw.Connection, link: int) -> None:
    chain = add_chain(conn, 5)
    add_session(conn, "sub", NOW + 10, parent_session_id=chain[0])
    add_session(conn, "other")
    forgotten = Forgotten()
    assert retention.delete_conversation(conn, chain[link], forgotten) == chain
    assert left(conn) == {"sub", "other"}
    assert len(forgotten) == 5
    assert retention.delete_conversation(conn, "nobody", forgotten) == []


# ---- bounded steps


def test_a_step_deletes_no_more_messages_than_it_may_and_says_what_is_left(conn: apsw.Connection) -> None:
    for session_id, count in (("a", 3), ("b", 5), ("empty", 0), ("c", 2)):
        add_session(conn, session_id)
        for _ in range(count):
            add_message(conn, session_id, role="assistant", tool_calls='[{"id": "1"}, {"id": "2"}]')
    ids = ["a", "b", "empty", "nobody", "c"]
    step = retention.delete_step(conn, ids, no_forget, max_messages=5)
    assert (step.deleted, step.remaining, step.messages, step.done) == (
        ["a"],
        ["b", "empty", "nobody", "c"],
        5,
        False,
    )
    counted = conn.execute("SELECT message_count, tool_call_count FROM sessions WHERE id = 'b'").fetchone()
    assert counted == (3, 6)
    step = retention.delete_step(conn, step.remaining, no_forget, max_messages=5)
    assert (step.deleted, step.remaining, step.messages, step.done) == (["b", "empty", "c"], [], 5, True)
    assert left(conn) == set()


def test_a_step_is_bounded_by_bytes_too_but_always_goes_on(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    for share in (3, 0.6, 0.6, 0.01):
        add_message(conn, "s", "x" * int(share * retention.STEP_BYTES))
    done = []
    remaining = ["s"]
    while remaining:
        step = retention.delete_step(conn, remaining, no_forget)
        done.append(step.messages)
        remaining = step.remaining
    assert done == [1, 1, 2]


def test_messages_go_oldest_first_so_that_the_last_activity_stays(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    ids = [add_message(conn, "s") for _ in range(6)]
    retention.delete_step(conn, ["s"], no_forget, max_messages=4)
    assert [row[0] for row in conn.execute("SELECT id FROM messages")] == ids[4:]


def test_a_message_appended_between_two_steps_goes_too(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    for _ in range(3):
        add_message(conn, "s")
    step = retention.delete_step(conn, ["s"], no_forget, max_messages=2)
    add_message(conn, "s")
    step = retention.delete_step(conn, step.remaining, no_forget, max_messages=2)
    assert step.deleted == ["s"]


def test_broken_tool_calls_do_not_stop_a_step(conn: apsw.Connection) -> None:
    add_session(conn, "s", message_count=None, tool_call_count=None)
    for calls in (None, "", "[broken", '{"id": 1}', "[1, 2, 3]", "5"):
        conn.execute(
            "INSERT INTO messages(session_id, role, timestamp, tool_calls) VALUES ('s', 'assistant', 1, ?)",
            (calls,),
        )
    conn.execute("UPDATE sessions SET tool_call_count = 6")
    retention.delete_step(conn, ["s"], no_forget, max_messages=5)
    assert conn.execute("SELECT message_count, tool_call_count FROM sessions").fetchone() == (0, 0 + 6 - 5)


def test_forty_thousand_sessions_are_deleted_without_a_limit_of_variables(conn: apsw.Connection) -> None:
    conn.execute(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39999) "
        "INSERT INTO sessions(id, source, started_at, ended_at) SELECT 's' || i, 'cli', ?, ? FROM n",
        (OLD, OLD),
    )
    assert len(retention.candidates(conn, retention.Age(CUTOFF))) == 40_000
    conn.execute("BEGIN")
    assert len(prune(conn)) == 40_000
    conn.execute("COMMIT")
    assert left(conn) == set()


# ---- what a prune takes


def test_a_session_used_today_survives_however_old_its_start(conn: apsw.Connection) -> None:
    old(conn, "used")
    add_message(conn, "used", timestamp=NOW)
    old(conn, "unused")
    add_message(conn, "unused", timestamp=OLD + 5)
    old(conn, "empty")
    assert retention.candidates(conn, retention.Age(CUTOFF)) == ["empty", "unused"]
    assert sorted(prune(conn)) == ["empty", "unused"]
    assert left(conn) == {"used"}


def test_live_young_and_freshly_imported_sessions_are_kept(conn: apsw.Connection) -> None:
    add_session(conn, "live", OLD)
    old(conn, "young", start=NOW - DAY)
    old(conn, "imported", start=NOW - DAY)
    add_message(conn, "imported", timestamp=OLD)
    assert retention.candidates(conn, retention.Age(CUTOFF)) == []


def test_a_prune_of_one_source_leaves_the_others(conn: apsw.Connection) -> None:
    old(conn, "a")
    old(conn, "b", source="telegram")
    assert retention.candidates(conn, retention.Age(CUTOFF, "telegram")) == ["b"]
    assert retention.candidates(conn, retention.Age(CUTOFF, "")) == ["a", "b"]
    assert retention.candidates(conn, retention.Age(CUTOFF), limit=1) == ["a"]


def test_the_links_before_a_live_tip_are_kept(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 4, started_at=OLD)
    assert retention.candidates(conn, retention.Age(CUTOFF)) == []
    conn.execute(
        "UPDATE sessions SET ended_at = ?, end_reason = 'user_exit' WHERE id = ?", (OLD + 900, chain[3])
    )
    assert retention.candidates(conn, retention.Age(CUTOFF)) == chain
    assert sorted(prune(conn)) == chain


def test_a_long_chain_with_equal_stamps_goes_as_a_whole_or_not_at_all(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 150, started_at=OLD, step=0.0)
    assert prune(conn) == []
    conn.execute("UPDATE sessions SET ended_at = ? WHERE id = ?", (OLD, chain[-1]))
    assert sorted(prune(conn, max_messages=7)) == sorted(chain)


def test_a_child_that_is_no_continuation_loses_its_pruned_parent(conn: apsw.Connection) -> None:
    old(conn, "p")
    add_session(conn, "live", NOW, parent_session_id="p")
    assert prune(conn) == ["p"]
    assert conn.execute("SELECT id, parent_session_id FROM sessions").fetchall() == [("live", None)]


def test_a_candidate_that_came_back_to_life_before_its_step_is_dropped(conn: apsw.Connection) -> None:
    old(conn, "reopened")
    old(conn, "written")
    old(conn, "still")
    chain = add_chain(conn, 2, started_at=OLD)
    conn.execute("UPDATE sessions SET ended_at = ? WHERE id = ?", (OLD, chain[1]))
    chosen = retention.candidates(conn, retention.Age(CUTOFF))
    assert set(chosen) == {"reopened", "written", "still", *chain}
    conn.execute("UPDATE sessions SET ended_at = NULL WHERE id = 'reopened'")
    add_message(conn, "written", timestamp=NOW)
    add_message(conn, chain[1], timestamp=NOW)
    step = retention.prune_step(conn, chosen, no_forget, retention.Age(CUTOFF))
    assert (step.deleted, step.done) == (["still"], True)


def test_cyclic_parents_end_a_prune(conn: apsw.Connection) -> None:
    old(conn, "a", end_reason="compression")
    old(conn, "b", start=OLD + 1, end_reason="compression", parent_session_id="a")
    conn.execute("UPDATE sessions SET parent_session_id = 'b', started_at = ? WHERE id = 'a'", (OLD + 1,))
    assert sorted(prune(conn)) == ["a", "b"]


@pytest.mark.parametrize("days", [-1, -0.5, math.nan, math.inf])
def test_a_negative_or_meaningless_age_is_refused(days: float) -> None:
    with pytest.raises(ValueError, match="older_than_days"):
        retention.cutoff(days)


def test_an_age_in_days_is_a_time_in_seconds() -> None:
    assert retention.cutoff(90, now=NOW) == CUTOFF
    assert retention.cutoff(0, now=NOW) == NOW


# ---- ghosts


def test_ghosts_go_and_one_that_is_a_parent_does_not_stop_the_others(conn: apsw.Connection) -> None:
    def ghost(name: str, **columns: Any) -> None:
        old(conn, name, **{"source": "tui", **columns})

    for name in ("ghost1", "parent", "ghost2"):
        ghost(name)
    add_session(conn, "child", parent_session_id="parent")
    ghost("titled", title="t")
    ghost("live", ended_at=None)
    ghost("cli", source="cli")
    ghost("used")
    add_message(conn, "used")
    ghost("young", start=NOW - 3600)
    found = retention.ghosts(conn, now=NOW)
    assert found == ["ghost1", "ghost2"]
    conn.execute("UPDATE sessions SET title = 'named since' WHERE id = 'ghost2'")
    step = retention.ghost_step(conn, found, no_forget, now=NOW)
    assert (step.deleted, step.done) == (["ghost1"], True)


# ---- automatic prune


@pytest.mark.parametrize(
    ("stamp", "due"),
    [
        (None, True),
        (str(NOW - 23 * 3600), False),
        (str(NOW - 24 * 3600), True),
        (str(NOW + 3600), True),
        ("yesterday", True),
        ("", True),
        ("nan", True),
    ],
)
def test_the_automatic_prune_is_due_once_an_interval(
    conn: apsw.Connection, stamp: str | None, due: bool
) -> None:
    if stamp is not None:
        meta.set(conn, "last_auto_prune", stamp)
    assert retention.auto_prune_due(conn, 24, now=NOW) is due


def test_the_time_of_the_automatic_prune_is_kept(conn: apsw.Connection) -> None:
    retention.mark_auto_prune(conn, now=NOW)
    assert meta.get(conn, "last_auto_prune") == str(NOW)
    assert retention.auto_prune_due(conn, 24, now=NOW + 60) is False
    assert retention.auto_prune_due(conn, 0, now=NOW + 60) is True


# ---- files


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_files_of_a_session_are_removed_and_nobody_elses(tmp_path: Path) -> None:
    mine = {"s.json", "s.jsonl", "request_dump_s_20260101_120000.json", "request_dump_s_x.json"}
    others = {
        "s.txt", "ss.json", "request_dump_s.json", "request_dump_ss_1.json", "request_dump_s_1.txt",
        "xs.json", "request_dump_s_2_9.json", "s_2.json", "S_.json",
    }  # fmt: skip
    for name in mine | others:
        (tmp_path / name).write_text("{}")
    assert retention.remove_files(tmp_path, ["s"], kept={"s_2"}) == 4
    assert files(tmp_path) == others
    assert retention.remove_files(str(tmp_path), ["s"]) == 1
    assert "request_dump_s_2_9.json" not in files(tmp_path)


@pytest.mark.parametrize(
    "session_id",
    ["../outside", "..", ".", "", "/etc/x", "a/b", "a\\b", "a*b", "a?b", "[ab]", "x\x00y", "a" * 5000],
)
def test_an_id_is_never_a_path_nor_a_pattern(tmp_path: Path, session_id: str) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    inside = {"aXb.json", "a.json", "b.json", "request_dump_aXb_1.json", ".json", "..json"}
    for name in inside:
        (folder / name).write_text("{}")
    assert retention.remove_files(folder, [session_id]) == 0
    assert outside.exists()
    assert files(folder) == inside


def test_a_star_in_an_id_is_a_star(tmp_path: Path) -> None:
    for name in ("a*b.json", "request_dump_a*b_1.json", "aXb.json"):
        (tmp_path / name).write_text("{}")
    assert retention.remove_files(tmp_path, ["a*b"]) == 2
    assert files(tmp_path) == {"aXb.json"}


def test_files_that_cannot_be_removed_are_left(tmp_path: Path) -> None:
    (tmp_path / "s.json").mkdir()
    assert retention.remove_files(tmp_path, ["s"]) == 0
    assert retention.remove_files(tmp_path / "missing", ["s"]) == 0
    assert retention.remove_files(None, ["s"]) == 0


def test_the_sessions_whose_id_goes_on_after_an_underscore_are_known(conn: apsw.Connection) -> None:
    for session_id in ("s", "s_2", "s_", "s2", "S_2", "s`"):
        add_session(conn, session_id)
    assert retention.longer_ids(conn, ["s"]) == {"s_2", "s_"}
    assert lineage.compression_tip(conn, "s") == "s"
