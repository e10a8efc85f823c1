"""The lists by activity are the same however the sessions active last are found."""

from __future__ import annotations

import random
from typing import Any

import apsw
import pytest
import search_store

from hermes_state.store import listing


def filled(seed: int) -> tuple[apsw.Connection, dict[str, tuple[Any, Any]]]:
    """A store of random sessions, and id -> (last activity, start).

    Some have no messages, some share a moment, some messages belong to no session.
    """
    random_ = random.Random(seed)
    conn = search_store.store()
    conn.execute("DELETE FROM sessions")
    ids = [f"s{n}" for n in range(40)]
    about: dict[str, tuple[Any, Any]] = {}
    for n, session_id in enumerate(ids):
        started = float(random_.randrange(60))
        parent, reason = None, random_.choice([None, "compression", "branched", "user_exit"])
        if n and random_.random() < 0.4:
            parent = random_.choice(ids[:n])
        conn.execute(
            "INSERT INTO sessions(id, source, started_at, ended_at, end_reason, parent_session_id)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                session_id,
                random_.choice(["cli", "web"]),
                started,
                started + 1 if reason else None,
                reason,
                parent,
            ),
        )
        about[session_id] = (started, started)
    conn.execute("PRAGMA foreign_keys = 0")
    talkers = random_.sample(ids, 25)
    for _ in range(random_.choice([0, 5, 200])):
        session_id = random_.choice([*talkers, talkers[0], "gone"])
        stamp = random_.choice([float(random_.randrange(70)), float(random_.randrange(70)), 70.0])
        if random_.random() < 0.01:
            conn.execute(
                "INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', 'x', 'late')",
                (session_id,),
            )
        else:
            search_store.add(conn, "hello", session_id=session_id, timestamp=stamp)
    for session_id in ids:
        newest = conn.execute(
            "SELECT MAX(timestamp) FROM messages WHERE session_id = ?", (session_id,)
        ).fetchone()[0]
        if newest is not None:
            about[session_id] = (newest, about[session_id][1])
    return conn, about


def order(at: Any) -> tuple[bool, Any]:
    """As SQLite orders: text behind every number."""
    return isinstance(at, str), at


@pytest.mark.parametrize("walks", [(0, 0), (1, 2), (3, 20), (20, 100), (150, 199), (500, 4_000)])
@pytest.mark.parametrize("seed", range(8))
def test_lists_by_activity_are_the_whole_order_cut_into_pages(
    seed: int, walks: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, about = filled(seed)
    sources = dict(conn.execute("SELECT id, source FROM sessions"))
    whole = {
        source: listing.rich(conn, source, limit=-1, order_by_last_active=True) for source in (None, "cli")
    }
    monkeypatch.setattr(listing, "WALKS", walks)
    monkeypatch.setattr(listing, "_SPARE", 0)
    for source in (None, "cli"):
        mine = [i for i in about if source in (None, sources[i])]
        mine.sort(key=lambda i: (order(about[i][0]), about[i][1], i), reverse=True)
        for limit, offset in ((1, 0), (5, 0), (5, 3), (20, 10), (100, 0), (-1, 2), (0, 0)):
            end = None if limit < 0 else offset + limit
            found = listing.search_sessions(conn, source, limit, offset)
            assert [row["id"] for row in found] == mine[offset:end]
            assert [row["last_active"] for row in found] == [about[i][0] for i in mine[offset:end]]
            page = listing.rich(conn, source, limit=limit, offset=offset, order_by_last_active=True)
            assert page == whole[source][offset:end]
    conn.close()


def test_the_walk_is_taken_where_many_sessions_are_active_and_left_where_one_is() -> None:
    conn = search_store.store()
    for n in range(50):
        search_store.session(conn, f"s{n}")
    for n in range(1_000):
        search_store.add(conn, "x", session_id=f"s{n % 50}", timestamp=float(n))
    found = listing._active(conn, 40)
    assert found is not None
    assert len(found) == 50
    for n in range(5_000):
        search_store.add(conn, "x", session_id="s", timestamp=float(2_000 + n))
    assert listing._active(conn, 40) is None
    conn.execute("DROP INDEX hs_idx_messages_time")
    assert listing._active(conn, 1) is None
    assert [row["id"] for row in listing.search_sessions(conn, limit=2)] == ["s", "s49"]
    conn.close()
