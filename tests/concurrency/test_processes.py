"""Many processes on one file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import program, sound

from hermes_state import SessionDB

APPEND = """
me, count = args[0], int(args[1])
db = SessionDB(path)
db.create_session(me, "cli")
barrier()
ids = []
for n in range(count):
    ids.append(db.append_message(me, "user", f"process {me} {n}"))
say(ids=ids)
db.close()
"""

OPEN_FRESH = """
barrier()
db = SessionDB(path)
db.create_session("s" + args[0], "cli")
say(id=db.append_message("s" + args[0], "user", "fresh " + args[0]))
db.close()
"""


@pytest.mark.slow
def test_eight_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with ExitStack() as stack:
        running = [stack.enter_context(program(APPEND, path, f"p{n}", 150)) for n in range(8)]
        for one in running:
            one.ready()
        for one in running:
            one.go()
        ids = [one.finish()[-1]["ids"] for one in running]
    assert all(mine == sorted(mine) for mine in ids)
    everyone = {i for mine in ids for i in mine}
    assert len(everyone) == 1200
    assert sound(path) == everyone
    with SessionDB(path) as db:
        for number, mine in enumerate(ids):
            assert [m["id"] for m in db.get_messages(f"p{number}")] == mine
            assert len(db.search_messages(f'"process p{number}"', limit=-1)) == 150


@pytest.mark.slow
def test_eighty_processes_that_open_a_fresh_file_at_once_all_work(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "state.db"
    with ExitStack() as stack:
        running = [stack.enter_context(program(OPEN_FRESH, path, n)) for n in range(80)]
        for one in running:
            one.ready()
        assert not path.exists()
        for one in running:
            one.go()
        ids = {one.finish()[-1]["id"] for one in running}
    assert len(ids) == 80
    assert sound(path) == ids


def test_what_one_process_commits_another_finds_at_its_next_search(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db, program(APPEND, path, "other", 30) as other:
        assert db.search_messages("process") == []
        other.ready().go()
        ids = other.answer()["ids"]
        assert {hit["id"] for hit in db.search_messages("process", limit=-1)} == set(ids)
        other.finish()


def test_a_process_that_ends_without_close_leaves_what_the_next_one_finds(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = """
db = SessionDB(path)
db.create_session("s", "cli")
say(ids=[db.append_message("s", "user", f"left behind {n}") for n in range(25)])
os._exit(0)
"""
    with program(code, path) as running:
        ids = running.finish()[-1]["ids"]
    with SessionDB(path) as db:
        assert {hit["id"] for hit in db.search_messages("behind", limit=-1)} == set(ids)
    assert sound(path) == set(ids)
