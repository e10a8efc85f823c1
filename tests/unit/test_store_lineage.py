"""store.lineage: continuations, tips, chains, cycles, and where a session resumes."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest
from store_helpers import DAY, NOW, add_chain, add_message, add_session, connect, value

from hermes_state.store import lineage, listing, sessions


@pytest.fixture
def conn() -> Iterator[apsw.Connection]:
    connection = connect()
    yield connection
    connection.close()


def compressed(
    conn: apsw.Connection, session_id: str = "p", end: float = NOW + 100, **columns: object
) -> str:
    return add_session(conn, session_id, NOW, ended_at=end, end_reason="compression", **columns)


def test_a_session_that_nothing_continues_is_its_own_tip(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    compressed(conn)
    assert lineage.compression_tip(conn, "s") == "s"
    assert lineage.compression_tip(conn, "p") == "p"
    assert lineage.compression_tip(conn, "nobody") == "nobody"
    assert lineage.compression_tip(conn, "") == ""


def test_a_chain_of_150_has_its_tip_at_the_150th_and_150_ancestors(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 150)
    assert lineage.compression_tip(conn, chain[0]) == chain[-1]
    assert lineage.compression_tip(conn, chain[70]) == chain[-1]
    assert [row["id"] for row in lineage.ancestors(conn, chain[-1])] == chain[::-1]
    assert [row["id"] for row in lineage.descendants(conn, chain[0])] == chain
    assert lineage.conversation_chain(conn, chain[-1]) == chain
    assert lineage.compression_chain(conn, chain[75]) == chain
    assert lineage.resolve_resume(conn, chain[0]) == chain[-1]


def test_a_child_stamped_just_before_its_parents_end_is_the_continuation(conn: apsw.Connection) -> None:
    compressed(conn)
    add_session(conn, "c", NOW + 99.99, parent_session_id="p")
    assert lineage.compression_tip(conn, "p") == "c"


def test_a_sub_agent_of_the_parents_life_is_not_the_continuation(conn: apsw.Connection) -> None:
    compressed(conn)
    add_session(conn, "sub", NOW + 50, parent_session_id="p")
    add_message(conn, "sub")
    assert lineage.compression_tip(conn, "p") == "p"
    add_session(conn, "c", NOW + 100, parent_session_id="p")
    assert lineage.compression_tip(conn, "p") == "c"


@pytest.mark.parametrize("sub_agent_has_messages", [True, False])
def test_a_sub_agent_started_later_does_not_become_the_tip(
    conn: apsw.Connection, sub_agent_has_messages: bool
) -> None:
    compressed(conn)
    add_session(conn, "c", NOW + 99.99, parent_session_id="p")
    add_message(conn, "c")
    add_session(conn, "sub", NOW + 160, parent_session_id="p")
    if sub_agent_has_messages:
        add_message(conn, "sub")
    assert lineage.compression_tip(conn, "p") == "c"


def test_an_empty_child_loses_to_one_with_messages_or_one_that_was_compressed(conn: apsw.Connection) -> None:
    compressed(conn)
    add_session(conn, "empty", NOW + 100, parent_session_id="p")
    add_session(conn, "used", NOW + 130, parent_session_id="p")
    assert lineage.compression_tip(conn, "p") == "empty"
    add_message(conn, "used")
    assert lineage.compression_tip(conn, "p") == "used"
    conn.execute(
        "UPDATE sessions SET end_reason = 'compression', ended_at = ? WHERE id = 'empty'", (NOW + 120,)
    )
    assert lineage.compression_tip(conn, "p") == "empty"


def test_of_two_that_began_together_the_newest_id_is_taken(conn: apsw.Connection) -> None:
    compressed(conn)
    for session_id in ("a", "b"):
        add_session(conn, session_id, NOW + 100, parent_session_id="p")
    assert lineage.compression_tip(conn, "p") == "b"


@pytest.mark.parametrize("reason", ["branched", "user_exit", None])
def test_only_a_compression_is_continued(conn: apsw.Connection, reason: str | None) -> None:
    add_session(conn, "p", NOW, ended_at=NOW + 1, end_reason=reason)
    add_session(conn, "c", NOW + 2, parent_session_id="p")
    assert lineage.compression_tip(conn, "p") == "p"
    assert lineage.compression_chain(conn, "c") == ["c"]


def test_a_reopened_parent_has_no_continuation(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 2)
    sessions.reopen(conn, chain[0])
    assert lineage.compression_tip(conn, chain[0]) == chain[0]


def test_the_tips_of_a_page_come_from_one_statement(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 5)
    add_session(conn, "s")
    statements: list[str] = []

    def note(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        statements.append(sql)
        return True

    conn.exec_trace = note
    assert lineage.compression_tips(conn, [chain[0], chain[3], "s", "nobody"]) == {
        chain[0]: chain[4], chain[3]: chain[4],
    }  # fmt: skip
    assert len(statements) == 1


def test_two_sessions_that_name_each_other_as_parent_end_every_walk(conn: apsw.Connection) -> None:
    compressed(conn, "a")
    add_session(conn, "b", NOW + 100, parent_session_id="a", ended_at=NOW + 100, end_reason="compression")
    conn.execute("UPDATE sessions SET parent_session_id = 'b', started_at = ? WHERE id = 'a'", (NOW + 100,))
    add_session(conn, "self", NOW, ended_at=NOW, end_reason="compression", parent_session_id="self")
    for session_id in ("a", "b", "self"):
        assert lineage.compression_tip(conn, session_id) in ("a", "b", "self")
        assert session_id in lineage.compression_chain(conn, session_id)
        assert lineage.conversation_chain(conn, session_id)[-1] == session_id
        assert lineage.ancestors(conn, session_id)[0]["id"] == session_id
        assert lineage.descendants(conn, session_id)[0]["id"] == session_id
        lineage.resolve_resume(conn, session_id)
        lineage.continues(conn, session_id, "a")
    lineage.finalize_orphans(conn)
    for children in (True, False):
        for by_activity in (True, False):
            listing.rich(conn, include_children=children, order_by_last_active=by_activity, limit=-1)
    listing.search_sessions(conn)


def test_ancestors_and_descendants_carry_the_documents_columns(conn: apsw.Connection) -> None:
    add_session(conn, "root", title="r")
    add_session(conn, "late", NOW + 9, parent_session_id="root")
    add_session(conn, "early", NOW + 3, parent_session_id="root")
    add_session(conn, "leaf", NOW + 1, parent_session_id="early")
    assert lineage.ancestors(conn, "leaf")[-1] == {
        "id": "root", "title": "r", "started_at": NOW, "parent_session_id": None,
    }  # fmt: skip
    assert [row["id"] for row in lineage.descendants(conn, "root")] == ["root", "early", "late", "leaf"]
    assert lineage.ancestors(conn, "nobody") == []
    assert lineage.descendants(conn, "nobody") == []
    assert lineage.conversation_chain(conn, "nobody") == ["nobody"]
    assert lineage.children(conn, "root") == ["early", "late"]


def test_a_sub_agent_is_no_link_of_its_parents_chain(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 3)
    add_session(conn, "sub", NOW + 500, parent_session_id=chain[0])
    add_message(conn, "sub")
    assert lineage.compression_chain(conn, chain[2]) == chain
    assert lineage.compression_chain(conn, "sub") == ["sub"]


def test_resuming_an_empty_session_goes_to_its_nearest_descendant_with_messages(
    conn: apsw.Connection,
) -> None:
    add_session(conn, "root")
    add_session(conn, "mid", NOW + 1, parent_session_id="root")
    add_session(conn, "leaf", NOW + 2, parent_session_id="mid")
    add_message(conn, "leaf")
    assert lineage.resolve_resume(conn, "root") == "leaf"
    add_session(conn, "mid2", NOW + 3, parent_session_id="root")
    add_message(conn, "mid2")
    assert lineage.resolve_resume(conn, "root") == "mid2"
    add_message(conn, "root")
    assert lineage.resolve_resume(conn, "root") == "root"


def test_resuming_a_lone_empty_or_unknown_session_is_that_session(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    assert lineage.resolve_resume(conn, "s") == "s"
    assert lineage.resolve_resume(conn, "nobody") == "nobody"
    assert lineage.resolve_resume(conn, "") == ""


def test_only_old_unused_children_of_a_compression_are_finalized(conn: apsw.Connection) -> None:
    late = NOW + 20 * DAY
    compressed(conn)
    add_session(conn, "live-parent")

    def child(
        name: str, start: float = NOW + 100, parent: str = "p", message: bool = True, **columns: object
    ) -> None:
        add_session(conn, name, start, parent_session_id=parent, **columns)
        if message:
            add_message(conn, name)

    child("orphan")
    child("orphan-of-null-count", api_call_count=None)
    child("young", start=late - 6 * DAY)
    child("called", api_call_count=1)
    child("empty", message=False)
    child("of-live", parent="live-parent")
    child("ended", ended_at=NOW + 200, end_reason="user_exit")
    assert lineage.finalize_orphans(conn, now=late) == 2
    ended = conn.execute(
        "SELECT id, ended_at FROM sessions WHERE end_reason = 'orphaned_compression' ORDER BY id"
    )
    assert ended.fetchall() == [("orphan", late), ("orphan-of-null-count", late)]
    assert lineage.finalize_orphans(conn, now=late) == 0


def test_an_end_that_is_not_a_number_harms_nobody(conn: apsw.Connection) -> None:
    compressed(conn)
    conn.execute("UPDATE sessions SET ended_at = 'yesterday'")
    add_session(conn, "c", NOW, parent_session_id="p")
    assert lineage.compression_tip(conn, "p") == "c"
    assert len(listing.rich(conn, order_by_last_active=True)) == 1


def test_children_are_found_by_the_parent_index(conn: apsw.Connection) -> None:
    plans = [row[3] for row in conn.execute("EXPLAIN QUERY PLAN " + lineage._CHAINS, ("[]",))]
    assert any("SEARCH k USING INDEX idx_sessions_parent (parent_session_id=?)" in plan for plan in plans)
    assert not any(plan.startswith(("SCAN k", "SCAN p", "SCAN m")) for plan in plans)
    assert value(conn, "SELECT COUNT(*) FROM sessions") == 0
