"""Scenarios of a store whose process has stdlib connections to its file, too, and how they are run.

Each is a script that runs in a process of its own, with another process, ``ask`` and ``answer``, that writes
at the moment when this process's locks matter. ``verify`` ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMON = """
import os, sqlite3, subprocess, sys, threading
from hermes_state import SessionDB
from hermes_state.engine import protection

INSERT = "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)"
path, rounds = sys.argv[1], int(sys.argv[2])
PEER = '''
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=300, isolation_level=None)
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
os.makedirs(os.path.dirname(path), exist_ok=True)  # the other process may come first
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
        other = sqlite3.connect(path, timeout=300)
        try:
            return read(other)
        except sqlite3.DatabaseError as error:
            if exact or "malformed" not in str(error):
                raise
        finally:
            other.close()

def count(conn):
    return conn.execute("SELECT COUNT(*) FROM messages").fetchone()[0]

protection.install()
exact = protection.active()["ofd_locks"]
# With POSIX locks nothing of ours may commit at the moment when a stdlib connection of this process is used,
# so the scenarios use one between or inside our transactions, and no worker writes beside them.
db = SessionDB(path, indexing=None if exact else "inline")
assert db.store_info()["protection"]["anchor"] is not bool(os.environ.get("OPENED_BEFORE"))
db.create_session("s", "cli")
db.append_message("s", "user", "first")
assert answer() == "READY"
expected = 1

def verify():
    db.close()
    peer.stdin.close()
    peer.wait(300)
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
conn = sqlite3.connect(sys.argv[1], timeout=300, isolation_level=None)
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
other = sqlite3.connect(path, timeout=300, isolation_level=None)
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
# Readers, writer, _conn and the checkpointer are all open; the stdlib comes and goes, in threads where the
# locks bear it.
stop = threading.Event()
def stdlib():
    while not stop.is_set():
        read_by_stdlib(count)
def visit():
    if not exact:
        read_by_stdlib(count)
threads = [threading.Thread(target=stdlib, daemon=True) for _ in range(2 if exact else 0)]
for thread in threads:
    thread.start()
def inside(conn):
    conn.execute("UPDATE sessions SET title = ? WHERE id = 's'", (str(number),))
    visit()
for number in range(rounds):
    ask("from the other process")
    visit()
    db.append_message("s", "user", f"word{number}")
    visit()
    db._conn.execute("UPDATE sessions SET model = ? WHERE id = 's'", (str(number),))
    db._execute_write(inside)
    assert len(db.search_messages(f"word{number}")) == 1
    visit()
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


def run(script: str, path: Path, rounds: int, **environment: str) -> str:
    """Run the scenario in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", COMMON + script, str(path), str(rounds)],
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
