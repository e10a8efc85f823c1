"""The wall clock steps back, or far ahead and back again, in the middle of a run.

Each program has a ``time.time`` of its own that jumps; waits and limits go by ``time.monotonic``,
which no clock setting changes. Times are data: what was stamped wrong stays so.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from processes import ROOT, program, sound

from hermes_state import SessionDB

HOUR, DAY = 3600, 86400
TO_1970 = "to 1970"
TO_2100 = "to 2100"

CLOCK = """
real = time.time
shift = 0.0
time.time = lambda: real() + shift

def jump(to):
    global shift
    now = real()
    shift = {"to 1970": 1000.0 - now, "to 2100": 4102444800.0 - now, "right": 0.0}.get(to, to)
"""

RUN = (
    CLOCK
    + """
to = json.loads(args[0])
db = SessionDB(path, indexing=args[1])
moments, previews, ids = {}, {}, {}

def say_in(session, text, **more):
    ids.setdefault(session, []).append(db.append_message(session, "user", text, **more))
    stamp = db.get_messages(session)[-1]["timestamp"]
    assert abs(stamp - time.time()) < 60
    moments[session] = max(stamp, moments.get(session, stamp))
    previews.setdefault(session, text)

def look():
    for session, wanted in ids.items():
        assert [m["id"] for m in db.get_messages(session)] == wanted
        texts = [m["content"] for m in db.get_messages_as_conversation(session)]
        assert texts == [f"word {session} {n}" for n in range(len(wanted))], texts
    listed = db.list_sessions_rich(order_by_last_active=True)
    assert {s["id"] for s in listed} == set(ids)
    assert [s["last_active"] for s in listed] == sorted(moments.values(), reverse=True)
    assert {s["id"]: s["last_active"] for s in listed} == moments
    assert {s["id"]: s["preview"] for s in listed} == previews
    assert [s["id"] for s in db.search_sessions()][:1] == [listed[0]["id"]]
    hits = db.search_messages("word", limit=-1)
    assert sorted(hit["id"] for hit in hits) == sorted(i for of in ids.values() for i in of)
    for hit in hits:
        # Neighbours are those by id, whatever their times.
        at = ids[hit["session_id"]].index(hit["id"])
        around = [f"word {hit['session_id']} {n}" for n in (at - 1, at, at + 1)
                  if 0 <= n < len(ids[hit["session_id"]])]
        assert [part["content"] for part in hit["context"]] == around
    newest = [hit["timestamp"] for hit in db.search_messages("word", limit=-1, sort="newest")]
    assert newest == sorted(newest, reverse=True)
    middle = sorted(newest)[len(newest) // 2]
    since = db.search_messages("word", limit=-1, since=middle)
    until = db.search_messages("word", limit=-1, until=middle)
    assert all(hit["timestamp"] >= middle for hit in since)
    assert all(hit["timestamp"] < middle for hit in until)
    assert len(since) + len(until) == len(hits)

def talk(session, count):
    if session not in ids:
        db.create_session(session, "cli")
    for _ in range(count):
        say_in(session, f"word {session} {len(ids.get(session, []))}")

talk("through", 3)
talk("before", 3)
look()
jump(to)
talk("through", 3)
talk("meanwhile", 3)
look()
# While the clock is wrong nothing of now is pruned where it went back; where it is ahead, all that has
# ended is old by what the clock says, so nothing has ended yet.
assert db.prune_sessions(1) == 0
jump("right")
talk("through", 3)
talk("after", 3)
look()
for session in ids:
    db.end_session(session, "done")
assert db.get_session("through")["ended_at"] <= time.time()
gone = {"meanwhile"} if to == "to 1970" or to == -10 * 86400 else set()
assert db.prune_sessions(5) == len(gone)
for session in gone:
    del ids[session], moments[session], previews[session]
look()
assert db.check()["ok"]
db.close()
say(ids=sorted(i for of in ids.values() for i in of))
"""
)


@pytest.mark.parametrize("indexing", ["background", "inline"])
@pytest.mark.parametrize("to", [-HOUR, -DAY, -10 * DAY, TO_1970, TO_2100], ids=str)
def test_order_lists_searches_and_pruning_are_right_through_a_jump(
    tmp_path: Path, to: object, indexing: str
) -> None:
    path = tmp_path / "state.db"
    with program(RUN, path, json.dumps(to), indexing) as running:
        (told,) = running.finish()
    assert sound(path) == set(told["ids"])


def test_the_automatic_prune_is_not_off_for_ever_after_a_jump_ahead(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = (
        CLOCK
        + """
db = SessionDB(path)
db.create_session("live", "cli")
db.append_message("live", "user", "kept")
jump("to 2100")
assert not db.maybe_auto_prune_and_vacuum()["skipped"]
assert db.maybe_auto_prune_and_vacuum()["skipped"]
jump("right")
assert not db.maybe_auto_prune_and_vacuum()["skipped"], "a stamp of the future is no reason to wait"
assert db.maybe_auto_prune_and_vacuum()["skipped"]
jump("to 1970")
assert not db.maybe_auto_prune_and_vacuum()["skipped"]
jump("right")
assert not db.maybe_auto_prune_and_vacuum()["skipped"]
jump(25 * 3600)
assert not db.maybe_auto_prune_and_vacuum()["skipped"]
assert db.message_count("live") == 1
db.close()
"""
    )
    with program(code, path) as running:
        running.finish()


HOLDER = """
import sqlite3
conn = sqlite3.connect(path, isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
barrier()
conn.execute("ROLLBACK")
"""

WAITER = (
    CLOCK
    + """
to = json.loads(args[0])
db = SessionDB(path, patience=float(args[1]))
db.ensure_session("s", "cli")
barrier()
began = time.monotonic()

def jump_in_the_wait():
    jump(to)
    say(jumped=True)

threading.Timer(0.3, jump_in_the_wait).start()
try:
    db.append_message("s", "user", "waited")
    said = "stored"
except errors.StoreBusyError as error:
    said = error.waited
say(said=said, took=time.monotonic() - began)
db.close()
"""
)


@pytest.mark.parametrize("to", [-DAY, TO_1970, TO_2100], ids=str)
def test_a_wait_for_the_lock_neither_ends_early_nor_goes_on_for_ever(tmp_path: Path, to: object) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    for patience, wanted in ((100.0, "stored"), (0.8, "refused")):
        with program(WAITER, path, json.dumps(to), patience) as waiter:
            waiter.ready()
            with program(HOLDER, path) as holder:
                holder.ready()
                waiter.go()
                if wanted == "stored":
                    assert waiter.answer() == {"jumped": True}
                    holder.go()
                told = next(answer for answer in waiter.finish() if "said" in answer)
                if wanted == "refused":
                    holder.go()
                holder.finish()
        if wanted == "stored":
            assert told["said"] == "stored"
        else:
            assert 0.8 <= told["said"] <= told["took"]


def test_keys_imports_and_replacements_go_through_a_jump(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    code = (
        CLOCK
        + """
db = SessionDB(path)
db.create_session("s", "cli")
first = db.append_message("s", "user", "once", idempotency_key="k")
for to in (-86400, "to 1970", "to 2100", "right"):
    jump(to)
    assert db.append_message("s", "user", "once", idempotency_key="k") == first
    db.append_message("s", "assistant", f"at {to}")
before = db.get_messages("s")
db.replace_messages("s", before)
assert db.get_messages("s") == before
db.export_jsonl(path + ".jsonl")
jump("to 1970")
with SessionDB(path + ".copy") as copy:
    copy.import_jsonl(path + ".jsonl")
    assert [(m["content"], m["timestamp"]) for m in copy.get_messages("s")] == [
        (m["content"], m["timestamp"]) for m in before]
    assert len(copy.search_messages("once OR at", limit=-1)) == len(before)
assert db.check()["ok"]
db.close()
"""
    )
    with program(code, path) as running:
        running.finish()


WALL = {("time", "time"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}


@pytest.mark.parametrize("room", ["engine", "search", "schema", "transfer"])
def test_the_rooms_that_wait_never_read_the_wall_clock(room: str) -> None:
    for file in sorted((ROOT / "src" / "hermes_state" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in WALL, f"{file.name}:{node.lineno}"
