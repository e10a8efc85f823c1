"""Two copies of SQLite in one process: the stdlib's beside APSW's, on the store's file.

Each scenario runs in a process of its own, with another process that writes at
the moment when this process's locks matter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = 30
LINUX_COMPILED = sys.platform == "linux" and os.environ.get("HERMES_STATE_NO_EXTENSIONS", "") in ("", "0")

_COMMON = """
import os, sqlite3, subprocess, sys, threading
from hermes_state import SessionDB
from hermes_state.engine import protection

INSERT = "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)"
path, rounds = sys.argv[1], int(sys.argv[2])
PEER = '''
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
print("READY", flush=True)
for line in sys.stdin:
    try:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)",
                     (line.strip(),))
        conn.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = 's'")
        conn.execute("COMMIT")
        print("OK", flush=True)
    except sqlite3.OperationalError as error:
        print("ERROR", error, flush=True)
'''
if os.environ.get("OPENED_BEFORE"):
    # The file is in WAL mode when it is opened, and its locks are of the kind that needs no anchor.
    SessionDB(path).close()
peer = subprocess.Popen([sys.executable, "-c", PEER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        text=True)

def ask(text):
    peer.stdin.write(text + "\\n")
    peer.stdin.flush()

def answer():
    return peer.stdout.readline().strip()

def read_by_stdlib(read):
    # With POSIX locks the snapshot of a stdlib connection of this process may move while it is read: what is
    # read may look damaged then, and is read again.
    while True:
        other = sqlite3.connect(path, timeout=20)
        try:
            return read(other)
        except sqlite3.DatabaseError as error:
            if protection.active()["ofd_locks"] or "malformed" not in str(error):
                raise
        finally:
            other.close()

def count(conn):
    return conn.execute("SELECT COUNT(*) FROM messages").fetchone()[0]

db = SessionDB(path)
assert db.store_info()["protection"]["anchor"] is not bool(os.environ.get("OPENED_BEFORE"))
db.create_session("s", "cli")
db.append_message("s", "user", "first")
assert answer() == "READY"
expected = 1

def verify():
    db.close()
    peer.stdin.close()
    peer.wait(30)
    conn = sqlite3.connect(path)
    assert conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    count = conn.execute("SELECT COUNT(*) FROM messages").fetchone()[0]
    assert count == expected, (count, expected)
    assert conn.execute("SELECT message_count FROM sessions").fetchone()[0] == expected
    for table in ("messages_fts", "messages_fts_trigram"):
        conn.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
        assert conn.execute(f"SELECT COUNT(*) FROM {table}_docsize").fetchone()[0] == expected
    conn.close()
    print("DONE", protection.active()["ofd_locks"])
"""

SNAPSHOT_IN_A_WRITE = """
# Our writer is in a transaction; the stdlib opens the file, backs it up and closes; another
# process wants to write: it must wait until our transaction has ended.
def snapshot(source):
    target = sqlite3.connect(":memory:")
    source.backup(target)
    target.close()

for number in range(rounds):
    def work(conn):
        conn.execute(INSERT, ("a",))
        read_by_stdlib(snapshot)
        ask("from the other process")
        conn.execute(INSERT, ("b",))
        conn.execute("UPDATE sessions SET message_count = message_count + 2 WHERE id = 's'")
    db._engine.write(work, "test", rows=2)
    assert answer() == "OK"
    expected += 3
verify()
"""

IDLE_OPEN_READ_CLOSE = """
# The stdlib opens, reads and closes while our connections are idle; the other process opens, writes
# and closes as the last one would: our WAL must not be taken from under us.
for number in range(rounds):
    read_by_stdlib(count)
    subprocess.run([sys.executable, "-c", '''
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
conn.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', 'x', 1)")
conn.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = 's'")
conn.execute("COMMIT")
conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
conn.close()
''', path], check=True)
    db.append_message("s", "user", "ours")
    expected += 2
    assert db.message_count("s") == expected
verify()
"""

STDLIB_WRITER = """
# A stdlib writer in this very process, while our writer is in a transaction: refused, not let in.
refused = 0
for number in range(rounds):
    def work(conn):
        global refused
        conn.execute(INSERT, ("a",))
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            refused += "locked" in str(error)
        else:
            other.execute("ROLLBACK")
        other.close()
        conn.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = 's'")
    db._engine.write(work, "test", rows=1)
    expected += 1
assert refused == rounds, refused
verify()
"""

STDLIB_WRITES_BETWEEN = """
# A stdlib writer in this process between our transactions: both are stored.
other = sqlite3.connect(path, timeout=20, isolation_level=None)
for number in range(rounds):
    db.append_message("s", "user", "ours")
    other.execute("BEGIN IMMEDIATE")
    other.execute(INSERT, ("x",))
    other.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = 's'")
    other.execute("COMMIT")
    ask("from the other process")
    assert answer() == "OK"
    expected += 3
    assert db.message_count("s") == expected
other.close()
verify()
"""

MANY_CONNECTIONS = """
# Readers, writer, _conn and the checkpointer are all open; the stdlib comes and goes in threads.
stop = threading.Event()
def stdlib():
    while not stop.is_set():
        read_by_stdlib(count)
threads = [threading.Thread(target=stdlib, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for number in range(rounds):
    ask("from the other process")
    db.append_message("s", "user", f"word{number}")
    db._conn.execute("UPDATE sessions SET model = ? WHERE id = 's'", (str(number),))
    assert len(db.search_messages(f"word{number}")) == 1
    assert answer() == "OK"
    expected += 2
stop.set()
for thread in threads:
    thread.join()
verify()
"""

HEADER_IN_CHANGE = """
# A stdlib reader of this process meets the header of the WAL index in the middle of its change, while our
# writer is in a transaction: it may not take itself for the one that has to recover it, and let others in.
import mmap
index = mmap.mmap(os.open(path + "-shm", os.O_RDWR), 136)  # never closed: that would drop the locks
def read():
    counted.append(read_by_stdlib(count))
for number in range(rounds):
    counted = []
    reader = threading.Thread(target=read, daemon=True)
    def work(conn):
        conn.execute(INSERT, ("a",))
        index[48 + 8] ^= 1
        reader.start()
        reader.join(0.05)  # where nothing keeps it back it has recovered by then
        if index[48:96] != index[0:48]:
            index[48 + 8] ^= 1
        ask("from the other process")
        conn.execute(INSERT, ("b",))
        conn.execute("UPDATE sessions SET message_count = message_count + 2 WHERE id = 's'")
    db._engine.write(work, "test", rows=2)
    reader.join()
    assert answer() == "OK"
    expected += 3
    assert expected - 3 <= counted[0] <= expected, (counted, expected)
    assert db.message_count("s") == expected
verify()
"""

AFTER_OURS_IS_CLOSED = """
# Without the locks of open file descriptions a stdlib writer of this process waits until our store is closed.
other = sqlite3.connect(path, timeout=0, isolation_level=None)
for number in range(rounds):
    assert db.store_info()["protection"]["guard"]
    try:
        other.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        assert "locked" in str(error)
    else:
        raise AssertionError("let in")
    db.append_message("s", "user", "ours")
    db.close()
    other.execute("BEGIN IMMEDIATE")
    other.execute(INSERT, ("x",))
    other.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = 's'")
    other.execute("COMMIT")
    expected += 2
    db = SessionDB(path)
    assert db.message_count("s") == expected
other.close()
verify()
"""

NOTHING_IS_PINNED = """
# What keeps stdlib writers of this process out keeps nobody else out, and pins no WAL.
for number in range(rounds):
    assert db.store_info()["protection"]["guard"]
    done = subprocess.run([sys.executable, "-c", '''
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
for _ in range(20):
    conn.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', 'x', 1)")
conn.execute("UPDATE sessions SET message_count = message_count + 20 WHERE id = 's'")
print(conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
conn.close()
''', path], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "(0, 0, 0)", done.stdout  # not held up by anybody, and nothing left
    db.close()
    db = SessionDB(path)
    expected += 20
    assert db.message_count("s") == expected
verify()
"""

DESCRIPTORS_COME_AND_GO = """
# Python code opens and closes the file and its sidecars while our writer is in a transaction and its readers
# and other connections are idle: for locks of the process each of these would be the end.
import pathlib
for number in range(rounds):
    def work(conn):
        conn.execute(INSERT, ("a",))
        for end in ("", "-wal", "-shm"):
            pathlib.Path(path + end).read_bytes()
        ask("from the other process")
        conn.execute(INSERT, ("b",))
        conn.execute("UPDATE sessions SET message_count = message_count + 2 WHERE id = 's'")
    db._engine.write(work, "test", rows=2)
    assert answer() == "OK"
    expected += 3
    assert db.message_count("s") == expected
verify()
"""

ANOTHER_LAST_CLOSE = """
# A stdlib connection of this process is the last of its copy to close, and so is one of another process,
# while ours are idle and have frames in the WAL: neither may take itself for the last one of all.
for number in range(rounds):
    db.append_message("s", "user", "ours")
    inode = os.stat(path + "-wal").st_ino
    read_by_stdlib(count)
    subprocess.run([sys.executable, "-c", '''
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1])
conn.execute("SELECT COUNT(*) FROM messages").fetchone()
conn.close()
''', path], check=True)
    assert os.stat(path + "-wal").st_ino == inode
    expected += 1
    assert db.message_count("s") == expected
verify()
"""

DELETE_MODE = """
# In DELETE mode a descriptor may be locked by one connection and unlocked by another: plain POSIX
# locks there, or the lock would stay behind and everybody else wait for ever.
import hermes_state.engine.wal as wal
db.close()
conn = sqlite3.connect(path, isolation_level=None)
assert conn.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
conn.close()
def refuse(conn):
    raise sqlite3.OperationalError("locking protocol")
real, wal._set_wal = wal._set_wal, refuse
db = SessionDB(path)
assert db._engine.journal_mode == "delete"
second = SessionDB(path)
for number in range(rounds):
    db.append_message("s", "user", "ours")
    assert second.message_count("s") == expected + 1
    db._conn.execute("UPDATE sessions SET model = ? WHERE id = 's'", (str(number),))
    ask("from the other process")
    assert answer() == "OK"
    expected += 2
    assert db.message_count("s") == expected
second.close()
verify()
"""

FORKED = """
# A child of a fork opens its own connections; the parent goes on; nobody's locks are dropped.
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
for number in range(rounds):
    child = os.fork()
    if child == 0:
        try:
            db.append_message("s", "user", "from the child")
            db.close()
        except BaseException as error:
            print("child:", error, flush=True)
            os._exit(1)
        os._exit(0)
    db.append_message("s", "user", "from the parent")
    ask("from the other process")
    assert answer() == "OK"
    assert os.waitpid(child, 0)[1] == 0
    expected += 3
verify()
"""


def _run(script: str, path: Path, rounds: int, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _COMMON + script, str(path), str(rounds)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


LOCKS = {
    "both": {"HERMES_STATE_NO_OFD_LOCKS": ""},
    "anchor": {"HERMES_STATE_NO_OFD_LOCKS": "1"},
    "ofd alone": {"HERMES_STATE_NO_OFD_LOCKS": "", "OPENED_BEFORE": "1"},
}


@pytest.mark.parametrize("locks", ["anchor", *(["both", "ofd alone"] if LINUX_COMPILED else [])])
@pytest.mark.parametrize(
    ("script", "rounds"),
    [
        pytest.param(SNAPSHOT_IN_A_WRITE, ROUNDS, id="snapshot in the middle of a write"),
        pytest.param(IDLE_OPEN_READ_CLOSE, ROUNDS, id="idle open, read, close"),
        pytest.param(ANOTHER_LAST_CLOSE, ROUNDS, id="another last close"),
        pytest.param(MANY_CONNECTIONS, ROUNDS, id="many connections"),
        pytest.param(HEADER_IN_CHANGE, ROUNDS, id="header in change"),
        pytest.param(STDLIB_WRITER, ROUNDS, id="stdlib writer"),
        pytest.param(FORKED, ROUNDS, id="fork"),
    ],
)
def test_nothing_is_lost_or_damaged_beside_the_stdlib(
    db_path: Path, script: str, rounds: int, locks: str
) -> None:
    _run(script, db_path, rounds, **LOCKS[locks])


@pytest.mark.skipif(os.name != "posix", reason="only POSIX locks belong to the process")
@pytest.mark.parametrize(
    "script", [AFTER_OURS_IS_CLOSED, NOTHING_IS_PINNED], ids=["after ours is closed", "nothing is pinned"]
)
def test_the_guard_keeps_out_stdlib_writers_of_this_process_and_nobody_else(
    db_path: Path, script: str
) -> None:
    _run(script, db_path, ROUNDS, **LOCKS["anchor"])


@pytest.mark.skipif(
    not LINUX_COMPILED, reason="with the locks of the process each descriptor that is closed drops them"
)
@pytest.mark.parametrize(
    "script", [STDLIB_WRITES_BETWEEN, DESCRIPTORS_COME_AND_GO], ids=["between ours", "descriptors"]
)
@pytest.mark.parametrize("locks", ["both", "ofd alone"])
def test_a_stdlib_writer_or_descriptor_in_this_process_does_no_harm(
    db_path: Path, script: str, locks: str
) -> None:
    """Needs the locks of open file descriptions: without them the one is kept out, the other not stopped."""
    assert "DONE True" in _run(script, db_path, ROUNDS, **LOCKS[locks])


def test_in_delete_mode_no_lock_stays_behind(db_path: Path) -> None:
    _run(DELETE_MODE, db_path, ROUNDS)


def test_the_protection_can_be_read(db_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; from hermes_state import SessionDB; print(SessionDB(sys.argv[1]).store_info())"
    guard = "'anchor': True, 'guard': True, 'ofd_locks': False"
    alone = "'anchor': False, 'guard': False, 'ofd_locks': True" if LINUX_COMPILED else guard
    for value, expected in (("1", guard), ("", alone)):
        monkeypatch.setenv("HERMES_STATE_NO_OFD_LOCKS", value)
        done = subprocess.run(
            [sys.executable, "-c", script, str(db_path)], capture_output=True, text=True, check=True
        )
        assert expected in done.stdout


@pytest.mark.skipif(
    not LINUX_COMPILED, reason="without the locks of open file descriptions nothing is watched"
)
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


@pytest.mark.skipif(not LINUX_COMPILED, reason="without those locks the anchor comes first")
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
