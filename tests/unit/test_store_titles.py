"""store.titles: cleaning, uniqueness, families, and two processes that want one title."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_helpers import NOW, add_chain, add_message, add_session, connect, value

from hermes_state.store import sessions, titles


@pytest.fixture
def conn() -> Iterator[apsw.Connection]:
    connection = connect()
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("given_title", "cleaned"),
    [
        (None, None),
        ("", None),
        (" \t\n ", None),
        ("\u200b\ufeff", None),
        ("  a \t b\r\nc  ", "a b c"),
        ("a\x00b\x1fc\x7fd\x9be", "abcde"),
        ("a\u200bb\u202ec\u2066d\u2028e\ufffaf\ufffcg", "abcdefg"),
        ("👩\u200d💻 at work", "👩\u200d💻 at work"),
        ("👩🏽\u200d💻", "👩🏽\u200d💻"),
        ("🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"),
        ("❤\ufe0f\u200d🔥", "❤\ufe0f\u200d🔥"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("a\u200db", "ab"),
        ("👩\u200d", "👩"),
        ("\u200d💻", "💻"),
        ("👩\u200d\u200d💻", "👩💻"),
        ("👩\u200b\u200d💻", "👩\u200d💻"),
        ("\u3000全角\u3000空白 ", "全角 空白"),
        ("half \ud83d pair \ud83d\ude00", "half \ufffd pair 😀"),
    ],
)
def test_cleaning(given_title: str | None, cleaned: str | None) -> None:
    assert titles.sanitize(given_title) == cleaned


def test_a_hundred_characters_are_a_title_and_one_more_is_too_long() -> None:
    assert titles.sanitize("x" * 100 + "  ") == "x" * 100
    with pytest.raises(ValueError, match=re.escape("Title too long (101 chars, max 100)")):
        titles.sanitize("x" * 101)
    with pytest.raises(TypeError, match="title"):
        titles.sanitize(5)  # type: ignore[arg-type]


@given(st.text(st.sampled_from("a \t\x00\u200d\u200b\ufe0f👩💻🏽\ud800#2"), max_size=30))
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = titles.sanitize(text)
    assert titles.sanitize(once) == once


def test_a_title_is_set_read_replaced_and_taken_away(conn: apsw.Connection) -> None:
    add_session(conn, "s")
    assert titles.set_title(conn, "s", " Fix  Docker ") is True
    assert titles.get(conn, "s") == "Fix Docker"
    assert titles.set_title(conn, "s", "Fix Docker") is True
    row = titles.session_by_title(conn, "Fix Docker")
    assert row is not None
    assert row["id"] == "s"
    assert titles.set_title(conn, "s", "") is True
    assert titles.get(conn, "s") is None
    assert titles.session_by_title(conn, "Fix Docker") is None


def test_an_unknown_session_gets_no_title(conn: apsw.Connection) -> None:
    assert titles.set_title(conn, "nobody", "x") is False
    assert titles.get(conn, "nobody") is None


def test_a_title_in_use_is_refused_by_name_and_holder(conn: apsw.Connection) -> None:
    add_session(conn, "a", title="foo")
    add_session(conn, "b", title="bar")
    with pytest.raises(ValueError, match="Title 'foo' is already in use by session a"):
        titles.set_title(conn, "b", "foo")
    assert titles.get(conn, "b") == "bar"
    assert titles.set_title(conn, "b", "Foo") is True


def test_a_continuation_takes_the_title_of_its_compressed_ancestor(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 4)
    titles.set_title(conn, chain[0], "foo")
    assert titles.set_title(conn, chain[3], "foo") is True
    assert [titles.get(conn, session_id) for session_id in chain] == [None, None, None, "foo"]
    with pytest.raises(ValueError, match="already in use"):
        titles.set_title(conn, chain[1], "foo")


def test_a_continuation_stamped_before_its_parents_end_may_take_the_title(conn: apsw.Connection) -> None:
    add_session(conn, "p", title="foo", ended_at=NOW + 100, end_reason="compression")
    add_session(conn, "c", NOW + 99.99, parent_session_id="p")
    assert titles.set_title(conn, "c", "foo") is True


def test_a_sub_agent_or_a_child_of_a_live_parent_takes_no_title(conn: apsw.Connection) -> None:
    add_session(conn, "p", title="foo", ended_at=NOW + 100, end_reason="compression")
    add_session(conn, "sub", NOW + 10, parent_session_id="p")
    add_session(conn, "live", title="bar")
    add_session(conn, "child", NOW + 10, parent_session_id="live")
    for session_id, title in (("sub", "foo"), ("child", "bar")):
        with pytest.raises(ValueError, match="already in use"):
            titles.set_title(conn, session_id, title)


def family(conn: apsw.Connection, *names: str) -> None:
    for number, title in enumerate(names):
        add_session(conn, f"s{number}", NOW - number, title=title)


def test_a_family_is_its_base_and_numbers_and_nothing_else(conn: apsw.Connection) -> None:
    family(conn, "foo", "foo #2", "foo #bar", "FOO", "foo #bar #9")
    assert titles.resolve(conn, "foo") == "s1"
    assert titles.resolve(conn, "FOO") == "s3"
    assert titles.resolve(conn, "foo #bar") == "s4"
    assert titles.resolve(conn, "foo #2") == "s1"
    assert titles.resolve(conn, "fo") is None
    assert titles.resolve(conn, "") is None
    assert titles.next_in_lineage(conn, "foo") == "foo #3"
    assert titles.next_in_lineage(conn, "FOO") == "FOO #2"


def test_the_highest_number_wins_not_the_newest_session_nor_the_text_order(conn: apsw.Connection) -> None:
    family(conn, "foo", "foo #9", "foo #10", "foo #2", "foo #１１", "foo #12x")
    assert titles.resolve(conn, "foo") == "s2"
    assert titles.next_in_lineage(conn, "foo #2") == "foo #11"


def test_pattern_characters_in_a_title_are_themselves(conn: apsw.Connection) -> None:
    family(conn, "a_c", "abc #2", "100%", "1000 #7", "a*c", "a[b]c #3")
    assert titles.resolve(conn, "a_c") == "s0"
    assert titles.resolve(conn, "100%") == "s2"
    assert titles.next_in_lineage(conn, "a*c") == "a*c #2"
    assert titles.resolve(conn, "a[b]c") == "s5"


def test_a_numbered_member_without_its_base_still_counts(conn: apsw.Connection) -> None:
    family(conn, "foo #4")
    assert titles.resolve(conn, "foo") == "s0"
    assert titles.next_in_lineage(conn, "foo") == "foo #5"


def test_a_free_base_is_returned_as_it_is(conn: apsw.Connection) -> None:
    assert titles.next_in_lineage(conn, "foo #7") == "foo"
    assert titles.next_in_lineage(conn, "#7") == "#7"


def test_a_long_title_is_cut_so_that_its_number_fits(conn: apsw.Connection) -> None:
    base = "x" * 98
    family(conn, base)
    seen = {base}
    for number in range(20):
        following = titles.next_in_lineage(conn, base)
        assert len(following) <= titles.MAX_LENGTH
        assert following not in seen
        seen.add(following)
        add_session(conn, f"n{number}", title=following)
        assert titles.sanitize(following) == following


def test_a_cut_leaves_no_space_and_no_joiner_at_the_end(conn: apsw.Connection) -> None:
    base = "x" * 95 + "  👩\u200d💻".replace("  ", " ")
    family(conn, base)
    following = titles.next_in_lineage(conn, base)
    assert titles.sanitize(following) == following
    assert following.endswith(" #2")


def test_set_or_number_gives_the_title_or_the_next_one(conn: apsw.Connection) -> None:
    for session_id in ("a", "b", "c"):
        add_session(conn, session_id)
    assert titles.set_or_number(conn, "a", "foo") == "foo"
    assert titles.set_or_number(conn, "b", "foo") == "foo #2"
    assert titles.set_or_number(conn, "c", "foo") == "foo #3"
    assert [titles.get(conn, session_id) for session_id in "abc"] == ["foo", "foo #2", "foo #3"]


def test_set_or_number_twice_is_once(conn: apsw.Connection) -> None:
    for session_id in ("a", "b"):
        add_session(conn, session_id)
        for _ in range(2):
            titles.set_or_number(conn, session_id, "foo")
    assert (titles.get(conn, "a"), titles.get(conn, "b")) == ("foo", "foo #2")


def test_set_or_number_refuses_an_empty_title_and_an_unknown_session(conn: apsw.Connection) -> None:
    add_session(conn, "a")
    with pytest.raises(ValueError, match="empty"):
        titles.set_or_number(conn, "a", " ")
    with pytest.raises(LookupError, match="nobody"):
        titles.set_or_number(conn, "nobody", "foo")


def test_a_continuation_is_not_numbered_but_takes_the_title(conn: apsw.Connection) -> None:
    chain = add_chain(conn, 2)
    titles.set_title(conn, chain[0], "foo")
    assert titles.set_or_number(conn, chain[1], "foo") == "foo"


_WANT_TITLE = """
import sys
import apsw
from hermes_state.store import titles
conn = apsw.Connection(sys.argv[1])
conn.set_busy_timeout(20000)
print("READY", flush=True)
sys.stdin.readline()
conn.execute("BEGIN IMMEDIATE")
got = titles.set_or_number(conn, sys.argv[2], "foo")
conn.execute("COMMIT")
print(got, flush=True)
"""


def test_two_processes_that_want_one_title_at_once_are_both_served(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    setup = connect(path)
    for session_id in ("a", "b"):
        add_session(setup, session_id)
    setup.close()
    peers = [
        subprocess.Popen(
            [sys.executable, "-c", _WANT_TITLE, path, session_id],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for session_id in ("a", "b")
    ]  # fmt: skip
    for peer in peers:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "READY\n"
    for peer in peers:
        assert peer.stdin is not None
        peer.stdin.write("\n")
        peer.stdin.flush()
    got = sorted(peer.communicate(timeout=300)[0].strip() for peer in peers)
    assert got == ["foo", "foo #2"]


def test_titles_are_looked_up_in_the_title_index(conn: apsw.Connection) -> None:
    for sql in (
        "SELECT id FROM sessions WHERE title = ?1",
        "SELECT id, title FROM sessions WHERE title >= ?1 AND title < ?1",
    ):
        plan = conn.execute("EXPLAIN QUERY PLAN " + sql, ("a",)).fetchall()[0][3]
        assert "idx_sessions_title_unique" in plan


def test_titles_of_cyclic_parents_end(conn: apsw.Connection) -> None:
    add_session(conn, "a", title="foo", ended_at=NOW, end_reason="compression")
    add_session(conn, "b", parent_session_id="a", ended_at=NOW, end_reason="compression")
    conn.execute("UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'")
    assert titles.set_title(conn, "b", "foo") is True
    assert titles.set_title(conn, "a", "foo") is True
    add_message(conn, "a")
    assert value(conn, "SELECT COUNT(*) FROM sessions WHERE title = 'foo'") == 1
    assert sessions.exists(conn, "b")
