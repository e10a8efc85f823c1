"""SQLite without FTS5 or its trigram tokenizer: all works, slower to search, and is made good later."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lacking_sqlite import KINDS, folder
from processes import Program, fixtures, program, sound, value

from hermes_state import SessionDB

Run = Callable[..., Program]

LACKS = {"no fts5": "FTS5", "dropped": "FTS5", "no trigram": "the trigram tokenizer"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: folder(kind, tmp_path_factory.mktemp("lacking")) for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lacking(kind: str, folders: dict[str, Path]) -> Run:
    """Starts a program whose SQLite lacks something; ``found(query)`` are the ids it finds, sorted."""

    def run(code: str, path: Path, *args: object) -> Program:
        return program(_BEGIN + code, path, *args, PYTHONPATH=str(folders[kind]))

    return run


_BEGIN = """
import logging
said = []
class Keep(logging.Handler):
    def emit(self, record):
        said.append((record.levelname, record.getMessage()))
logging.getLogger("hermes_state").addHandler(Keep())
# What SQLite can do is looked up by itself, not believed.
import apsw
def answer(sql):
    try:
        apsw.Connection(":memory:").execute(sql)
    except apsw.SQLError as error:
        return str(error)
    return "ok"
assert answer("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='trigram')").startswith("no such ")

def found(query, **more):
    return sorted(hit["id"] for hit in db.search_messages(query, limit=-1, **more))

def warnings_said():
    return [text for level, text in said if level == "WARNING"]
"""

TEXTS = ["docker networking", "修改youer服务端的计划", "广西 桂林", "half-width ﾊﾝｶｸ", "plain words only"]

EVERYTHING = """
db = SessionDB(path, indexing=args[0])
db.create_session("s", "cli")
ids = db.append_messages("s", [{"role": "user", "content": text} for text in json.loads(args[1])])
ids.append(db.append_message("s", "user", "one more 记录", tool_calls=[{"q": "中文参数"}]))
assert [m["id"] for m in db.get_messages("s")] == ids
assert db.list_sessions_rich()[0]["message_count"] == len(ids)
assert found("docker") == [ids[0]]
assert found("youer") == [ids[1]]
assert found("广西 AND 桂林") == [ids[2]]
assert found("桂") == [ids[2]]
assert found("ﾊﾝｶｸ") == [ids[3]]
assert found("word*") == [ids[4]]
assert found("中文参数") == [ids[5]]
assert found("ocke", match="substring") == [ids[0]]
db.create_session("gone", "cli")
db.append_messages("gone", [{"role": "user", "content": "docker is gone"}] * 3)
db.clear_messages("gone")
db.append_message("gone", "user", "docker is gone again")
assert db.delete_session("gone")
db.replace_messages("s", [dict(m, content=m["content"] + " replaced") for m in db.get_messages("s")])
ids = [m["id"] for m in db.get_messages("s")]
assert found("docker replaced") == [ids[0]]
mine = db._conn.execute("INSERT INTO messages(session_id, role, content, timestamp)"
                        " VALUES ('s', 'user', 'through 连接 conn', 1)").lastrowid
db._conn.execute("UPDATE messages SET content = 'another 连接 text' WHERE id = ?", (ids[0],))
db._conn.execute("DELETE FROM messages WHERE id = ?", (ids[1],))
db._conn.execute("UPDATE sessions SET message_count = (SELECT count(*) FROM messages) WHERE id = 's'")
assert found("连接") == sorted([ids[0], mine])
assert found("docker") == []
assert db.check()["ok"]
info = db.store_info()
db.vacuum()
db.close()
with SessionDB(path) as db:
    assert found("another") == [ids[0]]
say(ids=[i for i in ids if i != ids[1]] + [mine], warnings=warnings_said(), lacks=info["full_text_lacks"])
"""


@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_a_new_store_does_everything_and_says_once_what_is_lacking(
    tmp_path: Path, lacking: Run, kind: str, indexing: str
) -> None:
    path = tmp_path / "state.db"
    with lacking(EVERYTHING, path, indexing, json.dumps(TEXTS)) as running:
        (told,) = running.finish()
    assert told["lacks"] == LACKS[kind]
    (warning,) = told["warnings"]
    assert LACKS[kind] in warning
    assert str(path) in warning
    with SessionDB(path) as db:
        assert db.store_info()["full_text_lacks"] is None
        assert {hit["id"] for hit in db.search_messages("replaced OR another OR conn", limit=-1)} == set(
            told["ids"]
        )
        assert len(db.search_messages("连接")) == 2
        assert db.check()["ok"]
    assert sound(path) == set(told["ids"])


def _full(path: Path) -> list[int]:
    """A store with a complete index, made here."""
    with SessionDB(path) as db:
        for session in ("s", "cleared", "deleted", "old"):
            db.create_session(session, "cli")
            db.append_messages(
                session, [{"role": "user", "content": f"{text} of {session}"} for text in TEXTS]
            )
        db.end_session("old", "done")
        db._conn.execute("UPDATE sessions SET started_at = 1 WHERE id = 'old'")
        db._conn.execute("UPDATE messages SET timestamp = 1 WHERE session_id = 'old'")
        assert len(db.search_messages("桂", limit=-1)) == 4
        return [m["id"] for m in db.get_messages("s")]


ON_A_COMPLETE_FILE = """
db = SessionDB(path, indexing=args[0])
ids = [m["id"] for m in db.get_messages("s")]
assert found("docker s") == [ids[0]]
assert len(found("桂")) == 4
new = db.append_message("s", "user", "docker appended 新的")
assert found("docker s OR appended") == [ids[0], new]
assert found("新的") == [new]
db.clear_messages("cleared")
assert db.delete_session("deleted")
assert db.prune_sessions(30) == 1
assert len(found("桂")) == 1
db._conn.execute("UPDATE messages SET content = 'docker changed 改变' WHERE id = ?", (ids[2],))
assert found("桂") == []
assert found("改变") == found("changed") == [ids[2]]
db._conn.execute("DELETE FROM messages WHERE id = ?", (ids[4],))
# An id below the watermark that is free again, given by hand.
db._conn.execute("INSERT INTO messages(id, session_id, role, content, timestamp)"
                 " VALUES (7, 's', 'user', 'by hand 手工', 1)")
assert found("手工") == found("hand") == [7]
db._conn.execute("UPDATE sessions SET message_count = (SELECT count(*) FROM messages WHERE session_id = 's')"
                 " WHERE id = 's'")
db._execute_write(lambda conn: conn.execute("DELETE FROM messages WHERE id = ?", (ids[3],)))
db._conn.execute("UPDATE sessions SET message_count = message_count - 1 WHERE id = 's'")
db.close()
say(ids=[ids[0], ids[1], ids[2], 7, new], warnings=warnings_said())
"""


@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_a_complete_file_is_used_on_and_made_complete_again_by_the_next_full_sqlite(
    tmp_path: Path, lacking: Run, kind: str, indexing: str
) -> None:
    path = tmp_path / "state.db"
    first = _full(path)
    assert value(path, "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'") == 6
    with lacking(ON_A_COMPLETE_FILE, path, indexing) as running:
        (told,) = running.finish()
    assert len(told["warnings"]) == 1
    with SessionDB(path) as db:
        for query, wanted in (
            ("docker", {first[0], first[2], told["ids"][-1]}),
            ("桂", set()),
            ("改变", {first[2]}),
            ("手工 hand", {7}),
            ("新的", {told["ids"][-1]}),
            ("ﾊﾝｶｸ OR networking", {first[0]}),
        ):
            assert {hit["id"] for hit in db.search_messages(query, limit=-1)} == wanted, query
        assert db.check()["ok"]
    assert sound(path) == set(told["ids"])
    assert value(path, "SELECT count(*) FROM sqlite_master WHERE name = 'hs_owed'") == 0
    assert value(path, "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'") == 6


@pytest.mark.parametrize("version", [1, 4, 8, 9, 10, 11])
def test_an_old_file_is_upgraded_as_far_as_can_be_and_completed_later(
    tmp_path: Path, lacking: Run, version: int
) -> None:
    path = tmp_path / "state.db"
    facts = fixtures().make(path, version)
    code = """
db = SessionDB(path)
before = db.message_count()
db.ensure_session("new", "cli")
wanted = db.append_message("new", "user", "zzyzx 补充 words")
assert found("zzyzx") == found("补充") == [wanted]
db.close()
with SessionDB(path) as db:
    assert found("zzyzx") == found("补充") == [wanted]
say(wanted=wanted, before=before, warnings=warnings_said())
"""
    with lacking(code, path) as running:
        (told,) = running.finish()
    assert told["before"] == facts.messages
    assert len([text for text in told["warnings"] if "was built without" in text]) == 1
    with SessionDB(path) as db:
        for query in ("zzyzx", "补充"):
            assert [hit["id"] for hit in db.search_messages(query)] == [told["wanted"]]
        db.repair()  # old files' counters and orphans are not what this test is about
    with SessionDB(path) as db:
        assert db.message_count() == facts.messages + 1
    assert len(sound(path)) == facts.messages + 1


def test_opening_and_closing_writes_nothing_and_makes_nothing_anew(tmp_path: Path, lacking: Run) -> None:
    code = """
for _ in range(3):
    SessionDB(path).close()
"""
    for make in (lambda path: lacking(EVERYTHING, path, "background", json.dumps(TEXTS)).finish(), _full):
        path = tmp_path / f"{make.__name__}.db"
        make(path)
        before = path.read_bytes()
        with lacking(code, path) as running:
            running.finish()
        assert path.read_bytes() == before


def test_both_kinds_of_program_use_one_file_at_once(tmp_path: Path, lacking: Run) -> None:
    path = tmp_path / "state.db"
    first = _full(path)
    code = """
db = SessionDB(path)
barrier()
ids = []
for number in range(40):
    ids.append(db.append_message("s", "user", f"lacking {number} 缺少"))
    if number % 4 == 0:
        db.append_message("deleted", "user", "soon gone 缺少")
    assert found("lacking") == ids
db.delete_session("deleted")
say(ids=ids)
db.close()
"""
    with SessionDB(path) as db, lacking(code, path) as running:
        running.ready().go()
        mine = [db.append_message("s", "user", f"complete {n} 完整") for n in range(40)]
        assert {hit["id"] for hit in db.search_messages("完整", limit=-1)} == set(mine)
        (told,) = running.finish()
        for query in ("lacking", "缺少", "缺少 lacking"):
            assert {hit["id"] for hit in db.search_messages(query, limit=-1)} == set(told["ids"])
        assert {hit["id"] for hit in db.search_messages("complete", limit=-1)} == set(mine)
        assert len(db.search_messages("桂", limit=-1)) == 3
    with SessionDB(path) as db:
        assert db.check()["ok"]
    assert set(first) | set(mine) | set(told["ids"]) <= sound(path)


def test_many_deletions_without_an_index_are_made_good_in_short_transactions(
    tmp_path: Path, lacking: Run
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        for number in range(6):
            db.create_session(f"s{number}", "cli")
            db.append_messages(
                f"s{number}", [{"role": "user", "content": f"row {n} 桂林 of many"} for n in range(100)]
            )
    code = """
with SessionDB(path) as db:
    for number in range(5):
        assert db.delete_session(f"s{number}")
    assert len(found("row")) == len(found("桂林")) == 100
"""
    with lacking(code, path) as running:
        running.finish()
    copy = tmp_path / "killed.db"
    shutil.copy(path, copy)
    killed = """
from hermes_state.search import owed
real, steps = owed.settle_step, 0
def step(conn, rows):
    global steps
    steps += 1
    if steps == 4:
        os._exit(7)
    return real(conn, rows)
owed.settle_step = step
SessionDB(path)
"""
    with program(killed, copy) as running:
        running.finish(7)
    assert value(copy, "SELECT count(*) FROM hs_owed") == 500 - 3 * 64
    for name in (path, copy):
        with SessionDB(name) as db:
            assert len(db.search_messages("桂林", limit=-1)) == 100
            assert db.check()["ok"]
        assert len(sound(name)) == 100


def test_doctor_says_what_is_lacking_and_what_to_do(
    tmp_path: Path, kind: str, folders: dict[str, Path]
) -> None:
    path = tmp_path / "state.db"
    _full(path)
    command = [sys.executable, "-m", "hermes_state", "doctor", "--json", "--db", str(path)]
    with Program(command, {"PYTHONPATH": str(folders[kind])}) as running:
        out, _ = running.process.communicate(timeout=300)
    assert running.process.returncode == 1
    (finding,) = [item for item in json.loads(out)["findings"] if item["about"] == "full-text search"]
    assert "no such" in json.dumps(finding)
