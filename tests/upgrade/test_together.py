"""Upgrades by several processes at once, upgrades that are killed, and v11 programs in the middle of one."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from processes import fixtures, peer, peer_says, program, sound, value

from hermes_state import SessionDB, errors
from hermes_state.engine import upkeep, worker

OPEN = """
barrier()
db = SessionDB(path)
found = [hit["id"] for hit in db.search_messages(args[0])]
new = db.append_message("fx_0001", "user", "written by process " + args[1])
say(found=found, new=new, count=db.message_count())
db.close()
"""

KILLED_AT_STATEMENT = """
import apsw
from hermes_state.engine import upkeep
upkeep.OPEN_INDEX_S = 600.0  # the open does all of it, so that each run has the same statements
limit, seen = int(args[0]), 0

def count(cursor, sql, bindings):
    global seen
    seen += 1
    if seen == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

def watch(conn):
    conn.exec_trace = count

apsw.connection_hooks.append(watch)
db = SessionDB(path)
db.search_messages("anything")
db.close()
say(statements=seen)
"""

UPGRADE = """
say(begun=True)
db = SessionDB(path)
db.search_messages("anything")
db.close()
say(done=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [6])
def test_processes_that_open_an_old_file_at_once_all_work_and_cover_every_row(
    tmp_path: Path, processes: int
) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 10, 3000)
    word, message_id = next(iter(facts.markers.items()))
    with ExitStack() as stack:
        running = [stack.enter_context(program(OPEN, path, word, number)) for number in range(processes)]
        for one in running:
            one.ready()
        for one in running:
            one.go()
        answers = [one.finish()[0] for one in running]
    assert [answer["found"] for answer in answers] == [[message_id]] * processes
    ids = sound(path)
    assert len(ids) == facts.messages + processes
    assert {answer["new"] for answer in answers} <= ids


def _complete_after_kill(path: Path, facts: Any) -> None:
    """What a killed upgrade left is a file that works, and that the next open completes."""
    stamp = value(path, "SELECT max(version) FROM schema_version")
    if stamp == 11:
        sound(path)
    with SessionDB(path) as db:
        assert db.message_count() == facts.messages
        for word, message_id in facts.markers.items():
            assert [hit["id"] for hit in db.search_messages(word)] == [message_id]
        for word, ids in facts.late_markers.items():
            assert {hit["id"] for hit in db.search_messages(word, limit=-1)} == set(ids)
    assert len(sound(path)) == facts.messages


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 10])
def test_an_upgrade_killed_before_any_of_its_statements_is_completed_by_the_next_open(
    tmp_path: Path, version: int
) -> None:
    made = tmp_path / "made.db"
    facts = fixtures().make(made, version, 400)
    path = tmp_path / "state.db"
    shutil.copy(made, path)
    with program(KILLED_AT_STATEMENT, path, 0) as whole:
        total = whole.finish()[0]["statements"]
    assert total > 40
    for limit in sorted({1, total - 1, *range(5, total, total // 8)}):
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        shutil.copy(made, path)
        with program(KILLED_AT_STATEMENT, path, limit) as killed:
            ended = killed.finish(status=None)
        # How many index steps there are depends on how long they take: the last statement may not come.
        assert ended == [] or (ended[0]["statements"] < limit and limit > total // 2)
        _complete_after_kill(path, facts)


@pytest.mark.slow
def test_an_upgrade_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    facts = fixtures().make(made, 10, 1500)
    chance = random.Random(7)
    for number in range(10):
        path = tmp_path / f"{number}.db"
        shutil.copy(made, path)
        with program(UPGRADE, path) as running:
            assert running.answer() == {"begun": True}
            time.sleep(chance.uniform(0, 0.5))
            running.kill()
        _complete_after_kill(path, facts)


@pytest.mark.slow
def test_an_upgrade_killed_again_and_again_makes_progress_or_begins_anew_but_loses_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 9, 1500)
    for seconds in (0.05, 0.1, 0.2, 0.3, 0.4):
        with program(UPGRADE, path) as running:
            running.answer()
            time.sleep(seconds)
            running.kill()
    _complete_after_kill(path, facts)


@pytest.mark.slow
@pytest.mark.parametrize("peers", [1, 3])
def test_v11_programs_that_open_the_file_during_our_upgrade_leave_it_complete(
    tmp_path: Path, peers: int
) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 10, 3000)
    word, message_id = next(iter(facts.markers.items()))
    with ExitStack() as stack:
        old = [stack.enter_context(peer(path, "open", "--start-barrier")) for _ in range(peers)]
        new = [stack.enter_context(program(OPEN, path, word, number)) for number in range(2)]
        for one in (*old, *new):
            one.ready()
        for one in (*new, *old):
            one.go()
        for one in old:
            # The older program has a second of patience, and two of them may both fill an index.
            one.finish(status=None)
        answers = [one.finish()[0] for one in new]
    with SessionDB(path) as db:
        assert [hit["id"] for hit in db.search_messages(word)] == [message_id]
    ids = sound(path)
    assert len(ids) == facts.messages + len(answers)
    assert all(answer["found"] == [message_id] for answer in answers)


def test_a_v11_program_reads_and_writes_a_file_that_we_are_still_upgrading(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 10, 4000)
    db = SessionDB(path)
    try:
        said = peer_says(
            path, "append", "--session", "peer", "--count", 3, "--content", "peer row {n} 漓江畔"
        )
        assert len(db.search_messages('"peer row"')) == 3
        assert len(db.search_messages("漓江畔")) == 3
    finally:
        db.close()
    assert set(said["ids"]) <= sound(path)
    assert len(sound(path)) == facts.messages + 3


def test_an_upgrade_steps_aside_while_another_program_changes_the_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A v11 program fills tables that it has just made anew; a row of ours in them would end it."""
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 10, 1500)
    monkeypatch.setattr(upkeep, "OPEN_INDEX_S", 0.0)
    monkeypatch.setattr(worker.Worker, "_run", lambda self: None)
    with SessionDB(path) as db:
        engine = db._engine
        assert engine.upkeep.upgrading
        assert engine.upkeep.index_now(8)[0] == 8
        with program(
            """
import sqlite3
conn = sqlite3.connect(path)
conn.execute("CREATE TABLE another(x)")
conn.close()
say(done=True)
""",
            path,
        ) as running:
            running.finish()
        with pytest.raises(errors.StoreBusyError, match="another program migrates the file"):
            engine.upkeep.index_now(8)
        assert engine.upkeep.index_now(8)[0] == 8
    assert len(sound(path)) == facts.messages


def test_a_half_done_v11_migration_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 10)
    with closing(sqlite3.connect(path)) as conn:
        for event in ("insert", "delete", "update"):
            for name in ("messages_fts", "messages_fts_trigram"):
                conn.execute(f"DROP TRIGGER {name}_{event}")
        conn.execute("DROP TABLE messages_fts_trigram")
        conn.commit()
    _complete_after_kill(path, facts)


def test_an_upgrade_without_room_leaves_the_file_usable_and_is_completed_later(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, 10, 400)
    code = """
import apsw
def small(conn):
    pages = conn.execute("PRAGMA page_count").fetchone()[0]
    conn.execute(f"PRAGMA max_page_count={pages + int(args[0])}")
apsw.connection_hooks.append(small)
try:
    db = SessionDB(path)
    db.search_messages("anything")
    db.close()
    say(opened=True)
except errors.StoreFullError as error:
    say(full=str(error))
"""
    with program(code, path, 5) as running:
        running.finish()
    _complete_after_kill(path, facts)
