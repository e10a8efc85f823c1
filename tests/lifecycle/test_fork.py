"""Forks: the child may use the store, the parent is unharmed. Each in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import program, sound

from hermes_state import SessionDB

NO_WARNING = ("-W", "ignore::DeprecationWarning")
"""Python 3.12 and later warn of a fork while other threads run, which is what is tested here."""

WAIT = """
def wait_for(pid):
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status)

def in_child(work):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)

db = SessionDB(path)
db.ensure_session("s", "cli")
"""


def _ids(answers: list[dict[str, int]]) -> set[int]:
    return {answer["id"] for answer in answers if "id" in answer}


def test_parent_and_children_use_the_same_handle_after_a_fork(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = (
        WAIT
        + """
say(id=db.append_message("s", "user", "before the fork"))

def child():
    for n in range(10):
        say(id=db.append_message("s", "user", f"child {n}"))
    assert db.search_messages("before")
    db.close()

pids = [in_child(child) for _ in range(3)]
for n in range(10):
    say(id=db.append_message("s", "user", f"parent {n}"))
assert [wait_for(pid) for pid in pids] == [0, 0, 0]
assert len(db.search_messages("child", limit=-1)) == 30
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        ids = _ids(running.finish())
    assert len(ids) == 41
    assert sound(path) == ids


@pytest.mark.slow
def test_forks_while_other_threads_write_search_open_and_close_harm_nobody(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = (
        WAIT
        + """
stop = threading.Event()
lost = []
acknowledged = []

def write():
    while not stop.is_set():
        acknowledged.append(db.append_message("s", "user", "thread row"))

def search():
    while not stop.is_set():
        db.search_messages("row")

def reopen():
    while not stop.is_set():
        with SessionDB(path + ".other") as other:
            other.set_meta("a", "b")

def guarded(work):
    try:
        work()
    except BaseException as error:
        lost.append(repr(error))

threads = [threading.Thread(target=guarded, args=(w,)) for w in (write, write, search, reopen)]
for thread in threads:
    thread.start()

def child():
    say(id=db.append_message("s", "user", "child row"))
    with SessionDB(path + ".other") as other:
        other.set_meta("child", "here")

# A fork that waited for a lock that its own thread holds would do so for ever now.
from hermes_state.engine import core
core.FORK_WAIT_S = 1e6
for n in range(15):
    assert wait_for(in_child(child)) == 0
stop.set()
for thread in threads:
    thread.join(300)
assert not lost, lost
say(acknowledged=acknowledged)
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        answers = running.finish()
    ids = _ids(answers)
    assert len(ids) == 15
    found = sound(path)
    assert ids <= found
    assert set(answers[-1]["acknowledged"]) <= found


def test_a_fork_inside_a_transaction_gives_the_child_a_clear_error_and_leaves_the_parent_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    code = (
        WAIT
        + """
def child():
    try:
        db.append_message("s", "user", "never")
    except errors.StoreForkError:
        say(refused=True)
    try:
        SessionDB(path).message_count()
    except errors.StoreForkError:
        say(refused=True)

def work(conn):
    row = ("s", "user", "parent", 1)
    conn.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", row)
    conn.execute("UPDATE sessions SET message_count = message_count + 1")
    assert wait_for(in_child(child)) == 0
    return "done"

assert db._execute_write(work) == "done"
say(id=db.append_message("s", "user", "and goes on"))
assert len(db.search_messages("parent")) == 1
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        answers = running.finish()
    assert [answer for answer in answers if "refused" in answer] == [{"refused": True}] * 2
    assert len(sound(path)) == 2


@pytest.mark.parametrize(
    "leaving",
    ["raise SystemExit(0)", "return", "raise KeyError", "os._exit(0)"],
    ids=lambda text: text.split("(")[0],
)
def test_a_child_of_such_a_fork_that_ends_in_the_ordinary_way_does_not_touch_the_transaction(
    tmp_path: Path, leaving: str
) -> None:
    path = tmp_path / "state.db"
    # Big enough to be spilled into the WAL before it is committed: a ROLLBACK in the child would undo that.
    code = (
        WAIT
        + f"""
parent = os.getpid()

def work(conn):
    for n in range(3000):
        conn.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)",
                     (f"parent row {{n}} " + "x" * 3000,))
    conn.execute("UPDATE sessions SET message_count = 3000")
    pid = os.fork()
    if pid == 0:
        {leaving}
    else:
        assert wait_for(pid) == 0

try:
    db._execute_write(work)
    assert os.getpid() == parent, "the child committed"
except (errors.StoreForkError, KeyError):
    assert os.getpid() != parent
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        running.finish()
    assert len(sound(path)) == 3000


def test_a_fork_between_begin_and_commit_of_conn_loses_nothing_of_the_parent(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = (
        WAIT
        + """
db._conn.execute("BEGIN IMMEDIATE")
db._conn.execute("INSERT INTO state_meta VALUES ('a', 'kept')")
pid = in_child(lambda: None)
assert wait_for(pid) == 0
db._conn.execute("COMMIT")
say(value=db.get_meta("a"))
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        assert running.finish() == [{"value": "kept"}]


POOL = """
import multiprocessing

def work(n):
    with SessionDB(path) as db:
        db.ensure_session("pool", "cli")
        return db.append_message("pool", "user", f"pool {n}")

if __name__ == "__main__":
    db = SessionDB(path)
    db.create_session("s", "cli")
    ids = [db.append_message("s", "user", "parent before")]
    with multiprocessing.get_context(args[0]).Pool(2) as pool:
        ids += pool.map(work, range(12))
        ids.append(db.append_message("s", "user", "parent during"))
    say(ids=ids)
    db.close()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_use_the_store(tmp_path: Path, method: str) -> None:
    path = tmp_path / "state.db"
    script = tmp_path / "pool.py"
    preamble = "import json, sys\nfrom hermes_state import SessionDB\npath, *args = sys.argv[1:]\n"
    say = "def say(**answer):\n    print(json.dumps(answer), flush=True)\n"
    script.write_text(preamble + say + POOL)
    from processes import Program

    with Program([sys.executable, *NO_WARNING, str(script), str(path), method]) as running:
        ids = running.finish()[-1]["ids"]
    assert len(set(ids)) == 14
    assert sound(path) == set(ids)


def test_a_fork_while_another_process_holds_the_lock_is_not_delayed_by_it(tmp_path: Path) -> None:
    from processes import peer

    path = tmp_path / "state.db"
    code = (
        WAIT
        + """
db.append_messages("s", [{"role": "user", "content": f"pending {n}"} for n in range(50)])
barrier()
pid = in_child(lambda: None)
say(forked=True)
assert wait_for(pid) == 0
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        running.ready()
        with peer(path, "hold-lock") as holder:
            holder.ready()
            running.go()
            assert running.answer() == {"forked": True}, "while the lock is held"
            holder.go().finish()
        running.finish()
    with SessionDB(path) as db:
        assert len(db.search_messages("pending", limit=-1)) == 50


def test_a_child_does_not_wait_for_a_lock_that_a_thread_of_the_parent_holds(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = (
        WAIT
        + """
taken, done = threading.Event(), threading.Event()

def hold():
    with db._lock:
        taken.set()
        done.wait()

holder = threading.Thread(target=hold)
holder.start()
taken.wait()

def child():
    assert db._lock.acquire(timeout=5), "held by a thread that is not here"
    say(id=db.append_message("s", "user", "with the lock"))
    db._lock.release()
    db.close()

status = wait_for(in_child(child))
assert not db._lock.acquire(blocking=False), "the parent's thread still has it"
done.set()
holder.join()
assert status == 0
with db._lock:
    def inside():
        with db._lock:
            say(id=db.append_message("s", "user", "forked with the lock held"))
        db.close()
    assert wait_for(in_child(inside)) == 0
db.close()
"""
    )
    with program(code, path, options=NO_WARNING) as running:
        ids = _ids(running.finish())
    assert sound(path) == ids
    assert len(ids) == 2
