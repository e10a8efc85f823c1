"""Ctrl-C at any moment: the store goes on, nobody waits for ever, nothing is stored twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from processes import peer, program, sound

STORM = """
db = SessionDB(path)
for name in ("main", "t0", "t1", "t2"):
    db.ensure_session(name, "cli")
stop = threading.Event()
acknowledged = {"t0": [], "t1": [], "t2": []}
failures = []
interrupts = 0

def write(name):
    n = 0
    try:
        while not stop.is_set():
            acknowledged[name].append((db.append_message(name, "user", f"{name} {n}"), f"{name} {n}"))
            n += 1
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=write, args=(name,)) for name in acknowledged]
for thread in threads:
    thread.start()

def storm():
    for _ in range(int(args[0])):
        time.sleep(0.003)
        os.kill(os.getpid(), signal.SIGINT)
    stop.set()

# An interrupt is raised inside the "try" only, and counted elsewhere: there is no line between two of them.
inside = False
def interrupted(number, frame):
    global inside, interrupts
    interrupts += 1
    if inside:
        inside = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupted)

sender = threading.Thread(target=storm)
mine, n = [], 0
work = args[1]
sender.start()
while not stop.is_set():
    try:
        inside = True
        while not stop.is_set():
            n += 1
            if work == "append":
                mine.append((db.append_message("main", "user", f"main {n}"), f"main {n}"))
            elif work == "search":
                db.search_messages("t0 OR t1", limit=3)
            elif work == "conn":
                db._conn.execute("INSERT OR REPLACE INTO state_meta VALUES ('k', 'v')")
            else:
                with SessionDB(path) as other:
                    other.set_meta("k", "v")
        inside = False
    except KeyboardInterrupt:
        pass
for thread in (*threads, sender):
    thread.join()
assert not failures, failures
for name, rows in (*acknowledged.items(), ("main", mine)):
    stored = {m["id"]: m["content"] for m in db.get_messages(name)}
    assert len(set(stored.values())) == len(stored), "a message was stored twice"
    assert all(stored[i] == text for i, text in rows), "an acknowledged message is not there"
    if name != "main":
        assert len(stored) == len(rows)
new = db.append_message("main", "user", "after the storm")
assert [hit["id"] for hit in db.search_messages('"after the storm"')] == [new]
say(interrupts=interrupts, rows=db.message_count())
db.close()
from hermes_state.engine import registry
say(open=len(registry.open_engines()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("work", ["append", "search", "conn", "open"])
def test_a_storm_of_interrupts_harms_neither_the_main_thread_nor_the_others(
    tmp_path: Path, work: str
) -> None:
    path = tmp_path / "state.db"
    with program(STORM, path, 300, work) as running:
        said, left = running.finish()
    assert said["interrupts"] > 20
    assert left["open"] == 0
    assert len(sound(path)) == said["rows"]


WAITING = """
db = SessionDB(path)
db.ensure_session("s", "cli")
call = {
    "append": lambda: db.append_message("s", "user", "never"),
    "conn": lambda: db._conn.execute("UPDATE sessions SET title = 'never'"),
    "open": lambda: SessionDB(path + "x"),
}[args[0]]
barrier()
try:
    say(begun=True)
    call()
    say(done=True)
except KeyboardInterrupt:
    say(interrupted=True)
barrier()
say(id=db.append_message("s", "user", "after the interrupt"))
db.close()
"""


@pytest.mark.parametrize("call", ["append", "conn"])
def test_an_interrupt_ends_a_wait_for_another_process_and_the_store_works_on(
    tmp_path: Path, call: str
) -> None:
    path = tmp_path / "state.db"
    with program(WAITING, path, call) as running:
        running.ready()
        with peer(path, "hold-lock") as holder:
            holder.ready()
            running.go()
            assert running.answer() == {"begun": True}
            time.sleep(0.3)  # it may be interrupted anywhere on its way in, not only in the wait
            running.signal()
            assert running.answer() == {"interrupted": True}, "while the lock is held"
            holder.go().finish()
        running.ready().go()
        new = running.finish()[-1]["id"]
    assert sound(path) == {new}


def test_an_interrupt_that_nobody_catches_ends_the_program_and_keeps_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    code = """
db = SessionDB(path)
db.create_session("s", "cli")
threading.Thread(target=lambda: [db.append_message("s", "user", "beside") for _ in range(50)]).start()
while True:
    say(id=db.append_message("s", "user", "again and again"))
"""
    with program(code, path) as running:
        ids = {running.answer()["id"] for _ in range(20)}
        running.signal()
        answers = running.finish(status=None)
        assert running.process.returncode in (1, -2)
    ids |= {answer["id"] for answer in answers}
    assert ids <= sound(path)


def test_interrupts_while_a_thread_stands_in_line_behind_another_do_not_stop_the_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    code = """
db = SessionDB(path)
db.create_session("s", "cli")
inside, leave = threading.Event(), threading.Event()

def hold(conn):
    inside.set()
    leave.wait()

holder = threading.Thread(target=db._execute_write, args=(hold,))
holder.start()
inside.wait()
behind = [threading.Thread(target=db.append_message, args=("s", "user", f"behind {n}")) for n in range(3)]
for thread in behind:
    thread.start()
main = threading.main_thread().ident
seen = 0
for _ in range(5):
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    try:
        timer.start()
        db.append_message("s", "user", "never")
    except KeyboardInterrupt:
        seen += 1
leave.set()
for thread in (holder, *behind):
    thread.join(300)
    assert not thread.is_alive()
say(seen=seen, texts=sorted(m["content"] for m in db.get_messages("s")), waiting=db._engine._writer.waiting)
db.close()
"""
    with program(code, path) as running:
        said = running.finish()[-1]
    assert said == {"seen": 5, "texts": ["behind 0", "behind 1", "behind 2"], "waiting": 0}
    assert len(sound(path)) == 3
