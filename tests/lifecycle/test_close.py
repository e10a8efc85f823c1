"""Closing: what a closed handle says, what is left behind, and closing while others work."""

from __future__ import annotations

import gc
import inspect
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import program, sound, wait_until_released

from hermes_state import SessionDB, errors
from hermes_state.engine import registry
from hermes_state.engine.options import Options

NOT_CALLS = {"close", "sanitize_title"}
"""Public names of the class that work without a file."""


def _public_calls() -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(SessionDB, callable)
        if not name.startswith("_") and name not in NOT_CALLS
    ]


def _arguments(call: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Something for every parameter without a default."""
    plain: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(call).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            continue
        given: Any = [] if parameter.name == "messages" else 1 if "message_id" in parameter.name else "text"
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = given
        else:
            plain.append(given)
    return plain, named


@pytest.mark.parametrize("name", _public_calls())
@pytest.mark.parametrize("shared", [False, True], ids=["last", "another-open"])
def test_every_public_call_after_close_says_that_the_store_is_closed(
    db_path: Path, name: str, shared: bool
) -> None:
    other = SessionDB(db_path) if shared else None
    db = SessionDB(db_path)
    db.close()
    call = getattr(db, name)
    plain, named = _arguments(call)
    if name == "maybe_auto_prune_and_vacuum":  # it never raises
        assert "closed database" in call()["error"]
    else:
        with pytest.raises(errors.StoreClosedError, match="closed database") as caught:
            call(*plain, **named)
        assert isinstance(caught.value, sqlite3.ProgrammingError)
    if other is not None:
        other.close()


def test_the_private_ways_in_say_closed_too(db_path: Path) -> None:
    db = SessionDB(db_path)
    db.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        db._conn.execute("SELECT 1")
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        db._execute_write(lambda conn: None)
    db._conn.close()


def test_closing_twice_and_from_two_threads_is_one_close(db_path: Path) -> None:
    db, other = SessionDB(db_path), SessionDB(db_path)
    threads = [threading.Thread(target=db.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    db.close()
    other.create_session("s", "cli")
    assert other.append_message("s", "user", "still open") == 1
    other.close()
    other.close()
    assert not registry.is_open(db_path)


def test_with_closes_also_after_an_exception(db_path: Path) -> None:
    with pytest.raises(KeyError), SessionDB(db_path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "kept")
        raise KeyError("ours")
    assert not registry.is_open(db_path)
    assert len(sound(db_path)) == 1


def test_close_while_four_threads_write_loses_nothing_that_was_acknowledged(db_path: Path) -> None:
    for _ in range(5):
        db = SessionDB(db_path)
        db.ensure_session("s", "cli")
        acknowledged: list[int] = []
        unexpected: list[BaseException] = []
        started = threading.Barrier(5)

        def write(
            db: SessionDB = db,
            acknowledged: list[int] = acknowledged,
            unexpected: list[BaseException] = unexpected,
            started: threading.Barrier = started,
        ) -> None:
            started.wait(300)
            try:
                while True:
                    acknowledged.append(db.append_message("s", "user", "racing close"))
            except errors.StoreClosedError:
                return
            except BaseException as error:
                unexpected.append(error)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait(300)
        while len(acknowledged) < 20:
            pass
        db.close()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        assert unexpected == []
        assert set(acknowledged) <= sound(db_path)


def test_close_while_threads_search_and_read_ends_them_with_closed_errors_only(db_path: Path) -> None:
    db = SessionDB(db_path)
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"row {n} 广西"} for n in range(300)])
    unexpected: list[BaseException] = []
    rounds = threading.Semaphore(0)

    def read() -> None:
        try:
            while True:
                db.search_messages("row")
                db.get_messages("s", limit=5)
                db._conn.execute("SELECT count(*) FROM messages").fetchone()
                rounds.release()
        except errors.StoreClosedError:
            return
        except BaseException as error:
            unexpected.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(16):
        rounds.acquire()
    db.close()
    for thread in threads:
        thread.join(300)
    assert unexpected == []


def test_close_from_inside_an_operation_of_the_store_does_not_hang(db_path: Path) -> None:
    db = SessionDB(db_path)
    db.create_session("s", "cli")

    def work(conn: Any) -> None:
        conn.execute("UPDATE sessions SET title = 'inside'")
        db.close()

    db._execute_write(work)
    wait_until_released()
    with SessionDB(db_path) as again:
        assert again.get_session_title("s") == "inside"


THOUSAND = """
import gc, resource

def pages():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def turns(count):
    for number in range(count):
        db = SessionDB(path)
        if number % 10 == 0:
            db.ensure_session("s", "cli")
            db.append_message("s", "user", f"row {number}")
            db.search_messages("row", limit=5)
        db.close()

turns(250)
before = pages()
turns(750)
say(grown=pages() - before, handles=len([o for o in gc.get_objects() if isinstance(o, SessionDB)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
def test_a_thousand_opens_and_closes_leave_no_memory_behind(tmp_path: Path) -> None:
    with program(THOUSAND, tmp_path / "state.db") as running:
        (told,) = running.finish()
    assert told["handles"] <= 1
    # The file grows a little meanwhile; a kilobyte that each turn left would be 750 of them.
    assert told["grown"] < 500_000


# Descriptors and threads are counted in a process of their own: another test may have left something.
COUNTING = """
import gc

def left():
    gc.collect()
    return [len(os.listdir("/proc/self/fd")), threading.active_count()]
"""

THREE_HUNDRED = """
for number in range(3):
    with SessionDB(path) as db:
        db.ensure_session("s", "cli")
        db.append_message("s", "user", f"warm {number}")
before = left()
for number in range(300):
    db = SessionDB(path)
    if number % 10 == 0:
        db.append_message("s", "user", f"row {number}")
        db.search_messages("row")
    db.close()
say(before=before, after=left(), names=[thread.name for thread in threading.enumerate()])
"""

FAILED = """
def fail():
    try:
        SessionDB(path)
    except errors.NotADatabaseError:
        return
    raise AssertionError("it was opened")

for _ in range(3):
    fail()
before = left()
for _ in range(20):
    fail()
after = left()
os.unlink(path)
with SessionDB(path) as db:
    db.create_session("s", "cli")
say(before=before, after=after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors of a process in /proc")
def test_opening_and_closing_300_times_leaves_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    with program(COUNTING + THREE_HUNDRED, tmp_path / "state.db") as running:
        (said,) = running.finish()
    assert said["after"] == said["before"]
    assert said["names"] == ["MainThread"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors of a process in /proc")
def test_a_failed_open_leaves_no_descriptor_and_the_next_open_works(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with program(COUNTING + FAILED, path) as running:
        (said,) = running.finish()
    assert said["after"] == said["before"]


def test_handles_that_are_forgotten_release_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for number in range(5):
        db = SessionDB(path)
        db.ensure_session("s", "cli")
        db.append_message("s", "user", f"forgotten {number}")
        if number % 2:
            db.circle = db  # type: ignore[attr-defined]
        del db
        gc.collect()
    wait_until_released()
    assert len(sound(path)) == 5


def test_a_forgotten_handle_does_not_close_the_file_under_another(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    kept = SessionDB(path)
    kept.create_session("s", "cli")
    for _ in range(50):
        SessionDB(path)
    gc.collect()
    for number in range(50):
        kept.append_message("s", "user", f"row {number}")
    kept.close()
    wait_until_released()
    assert len(sound(path)) == 50


def test_a_lease_that_an_interrupt_lost_on_its_way_keeps_no_engine_open(tmp_path: Path) -> None:
    registry.acquire(tmp_path / "state.db", Options())
    gc.collect()
    wait_until_released()


def test_a_lease_that_is_given_back_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    interrupted = registry.acquire(path, Options())
    with SessionDB(path) as db:
        registry.release(interrupted)
        registry.release(interrupted)
        db.create_session("s", "cli")
        assert len([one for one in registry.open_engines() if one.path.parent == tmp_path.resolve()]) == 1
    assert not registry.is_open(path)


def test_opening_and_closing_in_many_threads_at_once_is_safe(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work(index: int) -> None:
        try:
            start.wait(300)
            for number in range(15):
                with SessionDB(path) as db:
                    db.append_message("s", "user", f"thread {index} {number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert failures == []
    assert len(sound(path)) == 120
    assert not registry.is_open(path)


def test_two_spellings_of_a_path_share_one_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    handles = [
        SessionDB("state.db"),
        SessionDB(tmp_path / "state.db"),
        SessionDB(tmp_path / "link" / "state.db"),
    ]
    assert len([one for one in registry.open_engines() if one.path.parent == tmp_path.resolve()]) == 1
    for handle in handles:
        handle.close()


EXIT = """
db = SessionDB(path)
db.create_session("s", "cli")
ids = db.append_messages("s", [{"role": "user", "content": f"at exit {n} 广西"} for n in range(400)])
say(ids=ids)
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("sys.exit(3)", 3), ("raise KeyError('lost')", 1), ("del db", 0), ("os._exit(0)", 0)],
    ids=["falls-off", "sys.exit", "exception", "forgotten", "os._exit"],
)
def test_however_the_interpreter_ends_what_was_acknowledged_is_found(
    tmp_path: Path, ending: str, status: int
) -> None:
    path = tmp_path / "state.db"
    with program(EXIT + ending, path) as running:
        ids = running.finish(status)[-1]["ids"]
    with SessionDB(path) as db:
        assert {hit["id"] for hit in db.search_messages("exit", limit=-1)} == set(ids)
        assert {hit["id"] for hit in db.search_messages("广西", limit=-1)} == set(ids)
    assert sound(path) == set(ids)


def test_the_interpreter_ends_with_an_open_store_and_daemon_threads_at_work(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = """
db = SessionDB(path)
db.create_session("s", "cli")
done = threading.Semaphore(0)

def write():
    while True:
        new = db.append_message("s", "user", "daemon")
        say(id=new)
        done.release()

for _ in range(4):
    threading.Thread(target=write, daemon=True).start()
for _ in range(40):
    done.acquire()
"""
    with program(code, path) as running:
        said = running.finish(status=None)
        assert running.process.returncode == 0
    assert {answer["id"] for answer in said} <= sound(path)


def test_the_interpreter_ends_although_a_daemon_thread_never_leaves_the_store(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = """
from hermes_state.engine import registry
from hermes_state.engine.options import Options
registry.EXIT_WAIT_S = 0.2
db = SessionDB(path)
db.create_session("s", "cli")
new = db.append_message("s", "user", "before")
inside = threading.Event()

def stay(conn):
    inside.set()
    threading.Event().wait()

threading.Thread(target=db._read, args=(stay, "stay"), daemon=True).start()
inside.wait()
say(id=new)
"""
    with program(code, path) as running:
        new = running.finish()[-1]["id"]
    with SessionDB(path) as db:
        assert [hit["id"] for hit in db.search_messages("before")] == [new]
