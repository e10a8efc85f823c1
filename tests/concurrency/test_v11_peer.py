"""Programs of the older store on the same file at the same moment."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from processes import peer, peer_says, program, sound

from hermes_state import SessionDB

OURS = """
mine = args[0]
db = SessionDB(path, indexing=args[1])
db.create_session(mine, "cli")
barrier()
ids = [db.append_message(mine, "user", f"ours {mine} {n} 广西 修改youer服务端") for n in range(40)]
for n in range(5):
    db.search_messages("peer OR ours", limit=50)
    db.replace_messages("scratch", [{"role": "user", "content": f"scratch {mine} {n} {m}"} for m in range(4)])
    ids.append(db.append_message(mine, "user", f"ours {mine} later {n} 广西"))
db.create_session("gone" + mine, "cli")
db.append_messages("gone" + mine, [{"role": "user", "content": "vanishing"} for _ in range(5)])
db.delete_session("gone" + mine)
say(ids=ids)
db.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_v11_and_our_programs_write_the_same_file_at_once_and_nothing_is_lost(
    tmp_path: Path, indexing: str
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("scratch", "cli")
    with ExitStack() as stack:
        ours = [stack.enter_context(program(OURS, path, f"our{n}", indexing)) for n in range(2)]
        theirs = [
            stack.enter_context(
                peer(
                    path, "append", "--session", f"peer{n}", "--count", 40, "--start-barrier",
                    "--content", "peer row {n} 桂林 修改zyxo后台", "--tool-calls", '[{"a": 1}, {"b": 2}]',
                )
            )
            for n in range(2)
        ]  # fmt: skip
        for one in (*ours, *theirs):
            one.ready()
        for one in (*ours, *theirs):
            one.go()
        our_ids = {i for one in ours for i in one.finish()[-1]["ids"]}
        their_ids = {i for one in theirs for i in one.finish()[-1]["ids"]}
    assert len(our_ids) == 90
    assert len(their_ids) == 80
    found = sound(path)
    assert our_ids | their_ids <= found
    with SessionDB(path) as db:
        assert {hit["id"] for hit in db.search_messages("peer", limit=-1)} == their_ids
        assert {hit["id"] for hit in db.search_messages("桂林", limit=-1)} == their_ids
        assert {hit["id"] for hit in db.search_messages("zyxo", limit=-1)} == their_ids
        assert {hit["id"] for hit in db.search_messages("ours", limit=-1)} == our_ids
        assert db.search_messages("vanishing") == []
        assert db.get_session("peer0")["tool_call_count"] == 80
        assert [m["content"].split()[2] for m in db.get_messages("peer0")] == [str(n) for n in range(40)]
    assert set(peer_says(path, "search", "--query", "ours")["ids"]) == our_ids
    assert set(peer_says(path, "search", "--route", "like", "--query", "广西")["ids"]) == our_ids


@pytest.fixture
def both(make_db: Any, db_path: Path) -> tuple[Any, list[int]]:
    """An open store of ours with six messages that are in the index, two of them of mixed scripts."""
    db = make_db()
    db.create_session("s", "cli")
    texts = ["alpha one", "alpha two", "修改youer服务端", "再改youer后台", "广西 first", "广西 second"]
    ids = [db.append_message("s", "user", text) for text in texts]
    assert len(db.search_messages("alpha")) == 2
    return db, ids


def _ids(db: Any, query: str) -> list[int]:
    return sorted(hit["id"] for hit in db.search_messages(query, limit=-1))


def test_what_v11_deletes_is_no_longer_found(both: tuple[Any, list[int]], db_path: Path) -> None:
    db, ids = both
    for message_id in (ids[0], ids[2], ids[4]):
        peer_says(db_path, "delete", "--id", message_id)
    assert _ids(db, "alpha") == [ids[1]]
    assert _ids(db, "youer") == [ids[3]]
    assert _ids(db, "广西") == [ids[5]]


def test_what_v11_updates_is_found_by_its_new_words_only(both: tuple[Any, list[int]], db_path: Path) -> None:
    db, ids = both
    peer_says(db_path, "update", "--id", ids[0], "--content", "omega 桂林")
    peer_says(db_path, "update", "--id", ids[4], "--content", "omega 漓江")
    assert _ids(db, "alpha") == [ids[1]]
    assert _ids(db, "omega") == [ids[0], ids[4]]
    assert _ids(db, "桂林") == [ids[0]]
    assert _ids(db, "广西") == [ids[5]]


def test_v11_deletes_and_updates_rows_that_still_wait_for_the_index(make_db: Any, db_path: Path) -> None:
    db = make_db()
    db.create_session("s", "cli")
    with peer(db_path, "hold-lock") as holder:
        holder.ready()  # nothing of ours can be indexed until it lets go
        holder.go()
        holder.finish()
    ids = db.append_messages("s", [{"role": "user", "content": f"pending {n} 广西"} for n in range(600)])
    peer_says(db_path, "delete", "--id", ids[-1])
    peer_says(db_path, "update", "--id", ids[-2], "--content", "changed 桂林")
    assert _ids(db, "pending") == ids[:-2]
    assert _ids(db, "桂林") == [ids[-2]]


def test_v11_deletes_a_session_that_we_have_open_and_appends_to_it_say_so(
    make_db: Any, db_path: Path
) -> None:
    import sqlite3

    db = make_db()
    db.create_session("s", "cli")
    db.append_message("s", "user", "soon gone")
    peer_says(db_path, "delete", "--session", "s")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY constraint failed"):
        db.append_message("s", "user", "too late")
    assert db.search_messages("gone") == []
    assert db.get_session("s") is None


def test_v11_replaces_the_messages_of_a_session_that_we_indexed(make_db: Any, db_path: Path) -> None:
    db = make_db()
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"before {n} 广西"} for n in range(20)])
    assert len(_ids(db, "before")) == 20
    peer_says(db_path, "replace", "--session", "s", "--count", 3, "--content", "after {n} 桂林")
    assert _ids(db, "before") == []
    assert _ids(db, "广西") == []
    assert len(_ids(db, "桂林")) == 3
    db.replace_messages("s", [{"role": "user", "content": "ours again"}])
    assert _ids(db, "桂林") == []
    db.close()
    assert len(sound(db_path)) == 1
