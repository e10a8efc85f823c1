"""An interrupt at any call that an open or a close makes: nothing stays open, and the store opens again.

The interrupt is raised where Python could deliver one, at the N-th call of the package's code, for each N.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import program, sound

EVERY_CALL = """
import gc
from hermes_state.engine import registry

def name_of(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""  # closed meanwhile

def left():
    # What a forgotten handle leaves to a thread of its own is waited for.
    for turn in range(10_000):
        gc.collect()
        files = [name for fd in os.listdir("/proc/self/fd") if (name := name_of(fd)).startswith(path)]
        if not (files or registry.open_engines()):
            break
        time.sleep(0.002)
    return files, registry.open_engines()

calls, at = 0, 0
def interrupt(frame, event, argument):
    global calls
    if event in ("call", "c_return") and "/hermes_state/" in frame.f_code.co_filename:
        calls += 1
        if calls == at:
            sys.setprofile(None)
            raise KeyboardInterrupt

def once(phase, number):
    db = SessionDB(path)
    db.append_message("s", "user", f"{phase} {number}")
    if phase == "open":
        db.close()
    try:
        sys.setprofile(interrupt)
        if phase == "open":
            db = SessionDB(path)
        else:
            db.close()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    db.close()
    return False

with SessionDB(path) as db:
    db.create_session("s", "cli")
assert left() == ([], [])
rows = 0
for phase in ("close", "open"):
    interrupted = 0
    for number in range(1, 2000, int(args[0])):
        calls, at = 0, number
        struck = once(phase, number)
        rows += 1
        assert left() == ([], []), (phase, number, left())
        interrupted += struck
        if not struck and calls < at:
            break
    say(phase=phase, interrupted=interrupted)
with SessionDB(path) as db:
    assert db.message_count("s") == rows
    assert len(db.search_messages("open OR close", limit=-1)) == rows
say(rows=rows)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the list of descriptors from /proc")
def test_an_interrupt_at_any_call_of_an_open_or_a_close_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with program(EVERY_CALL, path, 3) as running:
        *phases, last = running.finish()
    assert all(said["interrupted"] > 20 for said in phases), phases
    assert len(sound(path)) == last["rows"]


NESTED = """
db = SessionDB(path)
db.create_session("s", "cli")
inside, closing = threading.Event(), threading.Event()

def close():
    inside.wait(300)
    closing.set()
    db.close()

closer = threading.Thread(target=close)
closer.start()
again = []

def work(conn):
    inside.set()
    closing.wait(300)
    if args[0] == "after its own close":
        db.close()
    again.append(SessionDB(path))

db._execute_write(work)
again[0].append_message("s", "user", "by the second handle")
assert len(again[0].search_messages("second")) == 1
again[0].close()
closer.join(300)
assert not closer.is_alive()
say(done=True)
"""


@pytest.mark.parametrize("when", ["while another closes", "after its own close"])
def test_a_store_can_be_opened_inside_an_operation_of_a_handle_that_is_being_closed(
    tmp_path: Path, when: str
) -> None:
    path = tmp_path / "state.db"
    with program(NESTED, path, when) as running:
        assert running.finish()[-1] == {"done": True}
    assert len(sound(path)) == 1
