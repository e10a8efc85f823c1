"""Two copies of SQLite in one process, while other processes of ours have the store open.

The scenarios of ``test_two_sqlites.py`` have a plain program on the other side; here the other side is a
whole store, which indexes, checkpoints and closes as the last one does.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from processes import program, sound

from hermes_state import SessionDB

OTHER = """
db = SessionDB(path)
db.ensure_session("other", "cli")
barrier()
for n in range(int(args[0])):
    say(id=db.append_message("other", "user", f"other {n}"))
db.close()
"""

OPENED = """
import sqlite3
from hermes_state.engine import protection
protection.install()
exact = protection.active()["ofd_locks"]
# With POSIX locks nothing of ours may commit at the moment when the stdlib is used: no worker that indexes.
db = SessionDB(path, indexing=None if exact else "inline")
"""

MINE = (
    OPENED
    + """
db.ensure_session("mine", "cli")
mine = []

def snapshot(number):
    with_stdlib = sqlite3.connect(path, timeout=30)
    copy = sqlite3.connect(path + f".copy{number}")
    try:
        with_stdlib.execute("SELECT count(*) FROM messages").fetchone()
        with_stdlib.backup(copy)
        assert copy.execute("PRAGMA integrity_check").fetchone()[0] == "ok" or not exact
    except sqlite3.DatabaseError:
        if exact:  # with POSIX locks our checkpoints do not see the snapshot
            raise
    copy.close()
    with_stdlib.close()

def between(conn):
    conn.execute("UPDATE sessions SET title = 'inside' WHERE id = 'mine'")
    snapshot("inside")

barrier()
for number in range(30):
    mine.append(db.append_message("mine", "user", f"mine {number}"))
    snapshot(number)
    db._execute_write(between)
    mine.append(db.append_message("mine", "user", f"mine again {number}"))
    assert len(db.search_messages("mine", limit=-1)) == len(mine)
say(ids=mine, exact=exact)
db.close()
"""
)


@pytest.fixture(params=["both", "anchor", "ofd alone"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The value of HERMES_STATE_NO_OFD_LOCKS for each protection; the third opens a file that is in WAL."""
    if request.param == "ofd alone":
        SessionDB(tmp_path / "state.db").close()
    return "1" if request.param == "anchor" else ""


@pytest.mark.slow
def test_stdlib_snapshots_in_our_process_lose_nothing_while_another_process_writes(
    tmp_path: Path, locks: str
) -> None:
    path = tmp_path / "state.db"
    with (
        program(OTHER, path, 120) as other,
        program(MINE, path, HERMES_STATE_NO_OFD_LOCKS=locks) as mine,
    ):
        other.ready()
        mine.ready()
        other.go()
        mine.go()
        said = mine.finish()[-1]
        ids = set(said["ids"]) | {answer["id"] for answer in other.finish()}
    assert len(ids) == 180
    assert sound(path) == ids
    for copy in tmp_path.glob("*.copy*") if said["exact"] else ():
        with closing(sqlite3.connect(copy)) as conn:
            assert conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_an_idle_store_keeps_its_wal_when_the_stdlib_closes_the_file(tmp_path: Path, locks: str) -> None:
    path = tmp_path / "state.db"
    code = """
db.create_session("s", "cli")
ids = [db.append_message("s", "user", "before")]
for n in range(30):
    conn = sqlite3.connect(path)
    conn.execute("SELECT count(*) FROM messages").fetchone()
    conn.close()
    say(turn=n)
    sys.stdin.readline()
    ids.append(db.append_message("s", "user", f"after {n}"))
say(ids=ids)
db.close()
"""
    with program(OPENED + code, path, HERMES_STATE_NO_OFD_LOCKS=locks) as running:
        for _ in range(30):
            running.answer()
            with program("SessionDB(path).close()", path) as other:
                other.finish()
            running.go()
        ids = running.finish()[-1]["ids"]
    assert len(ids) == 31
    assert sound(path) == set(ids)
