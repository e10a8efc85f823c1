"""Two copies of SQLite in one process: the stdlib's beside APSW's, on the store's file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from beside_stdlib import (
    ANOTHER_LAST_CLOSE,
    DELETE_MODE,
    DESCRIPTORS_COME_AND_GO,
    FORKED,
    HEADER_IN_CHANGE,
    IDLE_OPEN_READ_CLOSE,
    LOCKS,
    MANY_CONNECTIONS,
    SNAPSHOT_IN_A_WRITE,
    STDLIB_WRITER,
    STDLIB_WRITES_BETWEEN,
    run,
)
from builds import OFD_LOCKS

ROUNDS = 30


@pytest.mark.parametrize("locks", ["anchor", *(["both", "ofd alone"] if OFD_LOCKS else [])])
@pytest.mark.parametrize(
    ("script", "rounds"),
    [
        pytest.param(SNAPSHOT_IN_A_WRITE, ROUNDS, id="snapshot in the middle of a write"),
        pytest.param(IDLE_OPEN_READ_CLOSE, ROUNDS, id="idle open, read, close"),
        pytest.param(ANOTHER_LAST_CLOSE, ROUNDS, id="another last close"),
        pytest.param(MANY_CONNECTIONS, ROUNDS, id="many connections"),
        pytest.param(FORKED, ROUNDS, id="fork"),
    ],
)
def test_nothing_is_lost_or_damaged_beside_the_stdlib(
    db_path: Path, script: str, rounds: int, locks: str
) -> None:
    run(script, db_path, rounds, **LOCKS[locks])


@pytest.mark.skipif(
    not OFD_LOCKS, reason="locks of the process stop no stdlib writer, and are dropped by others"
)
@pytest.mark.parametrize(
    "script",
    [STDLIB_WRITER, STDLIB_WRITES_BETWEEN, HEADER_IN_CHANGE, DESCRIPTORS_COME_AND_GO],
    ids=["while ours writes", "between ours", "header in change", "descriptors"],
)
@pytest.mark.parametrize("locks", ["both", "ofd alone"])
def test_a_stdlib_writer_or_descriptor_in_this_process_does_no_harm(
    db_path: Path, script: str, locks: str
) -> None:
    """Needs the locks of open file descriptions: the anchor stops neither."""
    assert "DONE True" in run(script, db_path, ROUNDS, **LOCKS[locks])


def test_in_delete_mode_no_lock_stays_behind(db_path: Path) -> None:
    run(DELETE_MODE, db_path, ROUNDS)


def test_the_protection_can_be_read(db_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; from hermes_state import SessionDB; print(SessionDB(sys.argv[1]).store_info())"
    anchor = "'anchor': True, 'ofd_locks': False"
    alone = "'anchor': False, 'ofd_locks': True" if OFD_LOCKS else anchor
    for value, expected in (("1", anchor), ("", alone)):
        monkeypatch.setenv("HERMES_STATE_NO_OFD_LOCKS", value)
        done = subprocess.run(
            [sys.executable, "-c", script, str(db_path)], capture_output=True, text=True, check=True
        )
        assert expected in done.stdout


@pytest.mark.skipif(not OFD_LOCKS, reason="without the locks of open file descriptions nothing is watched")
def test_other_databases_of_this_process_keep_their_own_locks(tmp_path: Path) -> None:
    """Only the store's files are locked by open file description; what else APSW has open is not."""
    script = """
import sys
import apsw
from hermes_state import SessionDB
from hermes_state.engine import _ofd_locks

folder = sys.argv[1]
db = SessionDB(folder + "/state.db")
db.create_session("s", "cli")
db._engine._worker.stop()  # it takes locks of its own
ours = _ofd_locks.locks_taken()
assert ours > 0
other = apsw.Connection(folder + "/other.db")
other.execute("PRAGMA journal_mode=WAL").fetchall()
other.execute("CREATE TABLE t(x)")
for number in range(20):
    other.execute("INSERT INTO t VALUES (?)", (number,))
assert _ofd_locks.locks_taken() == ours
db.append_message("s", "user", "x")
assert _ofd_locks.locks_taken() > ours
db.close()
other.close()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)


@pytest.mark.skipif(not OFD_LOCKS, reason="without those locks the anchor comes first")
def test_a_stdlib_transaction_on_a_file_that_is_not_in_wal_mode_keeps_its_locks(db_path: Path) -> None:
    """The store looks at the file before it opens the anchor; that look must not close a descriptor."""
    script = """
import sqlite3, subprocess, sys
from hermes_state import SessionDB
path = sys.argv[1]
SessionDB(path).close()
own = sqlite3.connect(path, isolation_level=None, timeout=0)
assert own.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
import hermes_state.engine.wal as wal
wal._PATIENCE_S = 0.5
own.execute("BEGIN IMMEDIATE")
own.execute("INSERT INTO state_meta VALUES ('a', 'b')")
try:
    SessionDB(path)
except sqlite3.OperationalError as error:
    assert "locked" in str(error), error
else:
    raise AssertionError("opened beside a transaction")
other = '''
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print("refused" if "locked" in str(error) else error)
'''
done = subprocess.run([sys.executable, "-c", other, path], capture_output=True, text=True, check=True)
print(done.stdout)
own.execute("COMMIT")
own.close()
SessionDB(path).close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(db_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout
