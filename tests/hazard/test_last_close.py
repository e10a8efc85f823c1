"""Stdlib connections that outlive the last store of their process: its close leaves them their locks.

POSIX locks of a process are dropped when it closes any descriptor of the file. With the locks of open file
descriptions a descriptor of ours that would do that is kept, and used again by the next store.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import OFD_LOCKS
from processes import program

pytestmark = pytest.mark.skipif(not OFD_LOCKS, reason="with POSIX locks any close drops those of the process")

COMMON = """
import gc, sqlite3, subprocess
from hermes_state.engine import _ofd_locks

ROUNDS = 30
INSERT = "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)"
PEER = '''
import sqlite3, sys
for line in sys.stdin:
    path, text = line.split()
    conn = sqlite3.connect(path, timeout=0.5)
    try:
        if text != "look":
            conn.execute("INSERT INTO messages(session_id, role, content, timestamp)"
                         " VALUES ('s', 'user', ?, 1)", (text,))
            conn.commit()
            print("stored", flush=True)
        else:
            found = [row[0] for row in conn.execute("SELECT content FROM messages ORDER BY 1")]
            print(*found, *conn.execute("PRAGMA integrity_check").fetchone(), flush=True)
    except sqlite3.DatabaseError as error:
        print(error, flush=True)
    conn.close()
'''
peer = subprocess.Popen([sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        text=True)

def another_process_stores(file, text):
    peer.stdin.write(f"{file} {text}\\n")
    peer.stdin.flush()
    return peer.stdout.readline().strip()

def seen_by_others(file):
    *rows, integrity = another_process_stores(file, "look").split()
    assert integrity == "ok", integrity
    return rows

def made(file):
    with SessionDB(file) as db:
        db.create_session("s", "cli")
    return sqlite3.connect(file, isolation_level=None, timeout=0)

def idle(file):
    own = made(file)
    own.execute("SELECT count(*) FROM messages").fetchone()
    return own

def descriptors():
    gc.collect()
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass  # the listing's own
    return [name for name in found if name.startswith(path)]
"""

TRANSACTION = """
for number in range(ROUNDS):
    file = f"{path}{number}"
    own = made(file)
    own.execute("BEGIN IMMEDIATE")
    own.execute(INSERT, ("own-one",))
    for _ in range(2):
        with SessionDB(file) as db:
            assert db.message_count() == 0
    assert another_process_stores(file, "other") == "database is locked"
    own.execute(INSERT, ("own-two",))
    own.execute("COMMIT")
    own.close()
    assert seen_by_others(file) == ["own-one", "own-two"]
say(done=True)
"""

IDLE = """
for number in range(ROUNDS):
    file = f"{path}{number}"
    own = idle(file)
    for turn in range(2):
        with SessionDB(file) as db:
            db.append_message("s", "user", f"ours-{turn}")
    # The peer's close would be the last one and remove the WAL, if the idle connection had lost its lock.
    assert another_process_stores(file, "other") == "stored"
    own.execute(INSERT, ("own",))
    assert seen_by_others(file) == ["other", "ours-0", "ours-1", "own"]
    own.close()
say(done=True)
"""

COUNTED = """
own = idle(path)
counts = []
for number in range(50):
    with SessionDB(path) as db:
        db._engine._worker.stop()  # it may open one more connection or not
        db.append_message("s", "user", f"row {number}")
        db.search_messages("row")
    counts.append((len(descriptors()), _ofd_locks.kept()))
assert len(set(counts[5:])) == 1, counts  # kept ones are used again
assert counts[-1][1] > 0
own.close()
with SessionDB(path) as db:
    assert db.message_count() == 50
assert _ofd_locks.kept() == 0
assert descriptors() == [], descriptors()
say(done=True)
"""

MANY_FILES = """
owns = []
for number in range(100):
    owns.append(idle(f"{path}{number}"))
    with SessionDB(f"{path}{number}") as db:
        db.append_message("s", "user", "row")
assert 0 < _ofd_locks.kept() <= 64
for own in owns:
    own.close()
with SessionDB(path) as db:
    db.create_session("s", "cli")
assert _ofd_locks.kept() == 0
assert descriptors() == [], descriptors()
say(done=True)
"""

FORKED = """
own = idle(path)
with SessionDB(path) as db:
    db.append_message("s", "user", "before")
kept = _ofd_locks.kept()
assert kept > 0
rights, to_parent = os.pipe()
child = os.fork()
if child == 0:
    # Through a description that both have, a lock of the one would be a lock of the other.
    db = SessionDB(path)
    db._conn.execute("BEGIN IMMEDIATE")
    os.write(to_parent, b"x")
    time.sleep(600)
os.read(rights, 1)
db = SessionDB(path, patience=0.2)
try:
    db.append_message("s", "user", "let in")
    refused = False
except errors.StoreBusyError:
    refused = True
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
db.append_message("s", "user", "after")
db.close()
own.execute(INSERT, ("own",))
own.close()
assert refused
assert seen_by_others(path) == ["after", "before", "own"]
say(done=True)
"""

DELETED = """
own = idle(path)
SessionDB(path).close()
assert _ofd_locks.kept() > 0
for end in ("", "-wal", "-shm"):
    os.unlink(path + end)
with SessionDB(path) as db:
    db.create_session("new", "cli")
    assert db.get_session("s") is None
own.close()
with SessionDB(path) as db:
    assert db.get_session("new")
assert _ofd_locks.kept() == 0
say(done=True)
"""


MANY_FORKS = """
own = made(path)
own.execute("BEGIN IMMEDIATE")
own.execute(INSERT, ("own-one",))
db = SessionDB(path)
for number in range(70):
    assert db.message_count() == 0
    child = os.fork()
    if child == 0:
        os._exit(_ofd_locks.kept())
    assert os.waitpid(child, 0)[1] == 0
    assert another_process_stores(path, "other") == "database is locked", number
db.close()
own.execute("COMMIT")
own.close()
assert seen_by_others(path) == ["own-one"]
say(done=True)
"""

CHILD_CLOSES_ALL = """
import socket
own = idle(path)
with SessionDB(path) as db:
    db.append_message("s", "user", "parent")
assert _ofd_locks.kept() > 0
child = os.fork()
if child == 0:
    # As a daemon does; its own descriptors get the numbers then.
    os.closerange(3, 1024)
    pairs = [socket.socketpair() for _ in range(6)]
    with SessionDB(path) as db:
        db.append_message("s", "user", "child")
    for one, other in pairs:
        one.send(b"x")
        assert other.recv(1) == b"x"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
own.execute(INSERT, ("own",))
own.close()
assert seen_by_others(path) == ["child", "own", "parent"]
say(done=True)
"""

NUMBERS_TAKEN = """
own = idle(path)
with SessionDB(path) as db:
    db.append_message("s", "user", "ours")
own.close()
numbers = [int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")
           and os.readlink(f"/proc/self/fd/{n}").startswith(path)]
assert len(numbers) == _ofd_locks.kept() > 0
for number in numbers:
    os.close(number)  # somebody closes what is not his
logs = [open(f"{path}.log{number}", "w+b") for number in range(len(numbers))]
with SessionDB(path) as db:
    db.append_message("s", "user", "again")
for log in logs:
    log.write(b"x")
    log.flush()
    assert os.path.getsize(log.name) == 1
assert seen_by_others(path) == ["again", "ours"]
say(done=True)
"""

NO_DESCRIPTORS = """
import resource
own = made(path)
own.execute("BEGIN IMMEDIATE")
own.execute(INSERT, ("own-one",))
SessionDB(path).close()
other = path + ".other"
made(other).close()
assert another_process_stores(path, "other") == "database is locked"
db = SessionDB(other)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
db.close()
for number in held:
    os.close(number)
assert another_process_stores(path, "other") == "database is locked"
own.execute("COMMIT")
own.close()
assert seen_by_others(path) == ["own-one"]
say(done=True)
"""

NO_STDIN = """
own = idle(path)
os.close(0)
for number in range(5):
    with SessionDB(path) as db:
        db.append_message("s", "user", f"ours-{number}")
assert len(os.listdir("/proc/self/fd")) < 30
own.execute(INSERT, ("own",))
own.close()
assert seen_by_others(path) == [*(f"ours-{number}" for number in range(5)), "own"]
say(done=True)
"""

OUTLIVED = """
import apsw
for number in range(ROUNDS):
    file = f"{path}{number}"
    own = idle(file)
    db = SessionDB(file)
    db.append_message("s", "user", "ours")
    mine = apsw.Connection(file)
    mine.execute("SELECT count(*) FROM messages").fetchall()
    db.close()
    mine.close()  # unlocks by a descriptor that never locked
    assert another_process_stores(file, "other") == "stored"
    own.execute(INSERT, ("own",))
    assert seen_by_others(file) == ["other", "ours", "own"]
    own.close()
say(done=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(TRANSACTION, id="a transaction stays exclusive"),
        pytest.param(IDLE, id="an idle connection keeps its WAL"),
        pytest.param(COUNTED, id="descriptors are used again"),
        pytest.param(MANY_FILES, id="descriptors are bounded"),
        pytest.param(FORKED, id="a fork shares no lock"),
        pytest.param(MANY_FORKS, id="many forks"),
        pytest.param(CHILD_CLOSES_ALL, id="a child closes all descriptors"),
        pytest.param(NUMBERS_TAKEN, id="their numbers are taken by others"),
        pytest.param(NO_DESCRIPTORS, id="none is left to look with"),
        pytest.param(NO_STDIN, id="standard input was closed"),
        pytest.param(OUTLIVED, id="another connection outlives the store"),
        pytest.param(DELETED, id="a deleted file is gone"),
    ],
)
def test_a_stdlib_connection_keeps_its_locks_across_the_last_close(tmp_path: Path, code: str) -> None:
    with program(COMMON + code, tmp_path / "state.db") as running:
        assert running.finish()[-1] == {"done": True}
