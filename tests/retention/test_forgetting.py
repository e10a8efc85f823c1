"""A deletion returns before the indexes have forgotten it: what every program sees meanwhile, and after."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from processes import peer, peer_says, program, sound, value

from hermes_state import SessionDB, check_file, errors
from hermes_state.engine import upkeep

TEXT = "docker {n} 广西 修改youer服务端 words of it"
LISTED = "SELECT count(*) FROM state_meta WHERE key GLOB 'hermes_state.forget.*'"


def fill(db: Any, session_id: str, count: int) -> list[int]:
    db.create_session(session_id, "cli")
    texts = [{"role": "user", "content": TEXT.format(n=f"{session_id}{n}")} for n in range(count)]
    ids: list[int] = db.append_messages(session_id, texts)
    return ids


def ids_of(hits: list[dict[str, Any]]) -> set[int]:
    return {hit["id"] for hit in hits}


@pytest.fixture
def idle(make_db: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a store with the sessions ``kept`` and ``gone``, indexed; nobody removes entries by itself."""
    monkeypatch.setattr(upkeep, "SEARCH_FORGET_S", -1.0)

    def make(**options: Any) -> Any:
        db = make_db(**options)
        db.kept, db.gone = fill(db, "kept", 30), fill(db, "gone", 30)
        assert len(db.search_messages("docker", limit=-1)) == 60
        db._engine._worker.stop()
        return db

    return make


def waiting(db: Any) -> int:
    return int(db._read(lambda conn: conn.execute(LISTED).fetchone()[0], "test"))


DELETIONS = {
    "session": lambda db: db.delete_session("gone"),
    "conversation": lambda db: db.delete_conversation("gone"),
    "clear": lambda db: db.clear_messages("gone"),
    "replace": lambda db: db.replace_messages("gone", []),
}


@pytest.mark.parametrize("deletion", DELETIONS)
@pytest.mark.parametrize("mode", ["background", "inline"])
def test_searches_are_exact_and_a_check_is_content_while_entries_wait_to_be_removed(
    idle: Any, db_path: Path, mode: str, deletion: str
) -> None:
    db = idle(indexing=mode)
    DELETIONS[deletion](db)
    assert waiting(db) == (1 if mode == "background" else 0)
    for query in ("docker", "广西", "西", "youer", "修改", "words NOT gone3"):
        for sort in (None, "newest", "oldest"):
            assert ids_of(db.search_messages(query, limit=-1, sort=sort)) == set(db.kept), (query, sort)
    assert db.search_messages("gone3") == []
    report = db.check()
    assert report["ok"], report["problems"]
    assert report["forgetting"] == (30 if mode == "background" else 0)
    assert (db._engine.journal_mode, db.message_count()) == ("wal", 30)
    db.close()
    assert value(db_path, LISTED) == 0
    assert sound(db_path) == set(db.kept)


def test_a_prune_leaves_its_entries_to_the_worker_which_removes_them(make_db: Any, db_path: Path) -> None:
    db = make_db()
    kept = fill(db, "kept", 10)
    for number in range(8):
        fill(db, f"old{number}", 20)
        db.end_session(f"old{number}", "done")
    db._conn.execute("UPDATE sessions SET started_at = 5.0, ended_at = 6.0 WHERE id LIKE 'old%'")
    db._conn.execute("UPDATE messages SET timestamp = 5.5 WHERE session_id LIKE 'old%'")
    assert db.prune_sessions(30) == 8
    assert ids_of(db.search_messages("docker", limit=-1)) == set(kept)
    db.close()
    assert sound(db_path) == set(kept)


@pytest.mark.parametrize("sort", [None, "newest", "oldest"])
def test_pages_fit_together_while_entries_wait_to_be_removed(idle: Any, sort: str | None) -> None:
    db = idle()
    db.delete_session("gone")
    pages = [db.search_messages("docker", limit=7, offset=offset, sort=sort) for offset in range(0, 35, 7)]
    assert sorted(hit["id"] for page in pages for hit in page) == db.kept
    assert waiting(db) == 1


def test_a_program_of_the_older_version_sees_nothing_of_what_waits(idle: Any, db_path: Path) -> None:
    db = idle()
    db.delete_session("gone")
    for route, query in (("fts", "docker"), ("trigram", "服务端"), ("like", "广西")):
        found = peer_says(db_path, "search", "--query", query, "--route", route)
        assert sorted(found["ids"]) == db.kept
    appended = peer_says(
        db_path, "append", "--session", "peer", "--content", "peer docker 服务端", "--count", 5
    )
    assert min(appended["ids"]) > max(db.gone)
    left = {*db.kept, *appended["ids"]}
    assert ids_of(db.search_messages("docker", limit=-1)) == left
    db.close()
    assert sound(db_path) == left


def test_sql_of_other_programs_through_conn_meets_a_finished_index(idle: Any) -> None:
    db = idle()
    db.delete_session("gone")
    assert waiting(db) == 1
    assert db._conn.execute("SELECT count(*) FROM messages_fts").fetchone()[0] == 30
    assert waiting(db) == 0
    db.delete_session("kept")
    new = db.gone[0]
    fill(db, "again", 1)
    sql = "INSERT INTO messages(id, session_id, role, content, timestamp) VALUES (?, 'again', 'user', ?, 1)"
    db._conn.execute(sql, (new, "newtext"))
    assert ids_of(db.search_messages("newtext")) == {new}
    assert {problem["kind"] for problem in db.check()["problems"]} == {"counters"}  # that SQL counts nothing


def test_an_import_that_gives_the_old_ids_again_leaves_the_old_text_nowhere(
    idle: Any, db_path: Path, tmp_path: Path
) -> None:
    db = idle()
    db.export_jsonl(tmp_path / "all.jsonl")
    text = (tmp_path / "all.jsonl").read_text(encoding="utf-8").replace("docker gone", "podman again")
    (tmp_path / "all.jsonl").write_text(text, encoding="utf-8")
    db.delete_session("gone")
    assert waiting(db) == 1
    db.import_jsonl(tmp_path / "all.jsonl")
    assert waiting(db) == 0
    assert ids_of(db.search_messages("podman", limit=-1)) == set(db.gone)
    assert ids_of(db.search_messages("docker", limit=-1)) == set(db.kept)
    assert db.check()["ok"]
    db.close()
    assert sound(db_path) == {*db.kept, *db.gone}


def test_a_search_with_a_time_limit_does_not_spend_it_on_what_is_to_be_removed(idle: Any) -> None:
    db = idle()
    db.delete_session("gone")
    assert ids_of(db.search_messages("docker", limit=-1, time_limit=30.0)) == set(db.kept)
    assert waiting(db) == 1


def test_a_worker_that_only_has_entries_to_remove_does_not_wait_for_the_lock(
    idle: Any, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited would do so until the lock is free, and then do its work."""
    monkeypatch.setattr(upkeep, "WORKER_PATIENCE_S", 600.0)
    db = idle()
    db.delete_session("gone")
    with peer(db_path, "hold-lock", "--no-init", "--seconds", "60") as holder:
        holder.ready()
        with pytest.raises(errors.StoreBusyError):
            db._engine.upkeep.worker_step(20)
        holder.kill()
    assert db._engine.upkeep.worker_step(50)[0] == 30
    assert waiting(db) == 0


def test_a_close_leaves_what_others_deleted_to_the_next_and_removes_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    delete = (
        "db = SessionDB(path)\ndb._engine._worker.stop()\n"
        "db.delete_session('gone')\nsay(done=1)\nos._exit(0)\n"
    )
    with SessionDB(path) as db:
        fill(db, "kept", 30)
        fill(db, "gone", 30)
    with program(delete, path) as other:
        other.finish()
    assert value(path, LISTED) == 1
    monkeypatch.setattr(upkeep, "CLOSE_FORGET_S", -1.0)
    with SessionDB(path) as db:
        assert len(db.get_messages("kept")) == 30
    assert value(path, LISTED) == 1
    with SessionDB(path) as db:
        assert db.delete_session("kept")
    assert value(path, LISTED) == 0
    assert sound(path) == set()


def test_a_vacuum_and_a_repair_remove_what_waits(idle: Any, db_path: Path) -> None:
    db = idle()
    db.delete_session("gone")
    db.vacuum()
    assert waiting(db) == 0
    db.clear_messages("kept")
    assert waiting(db) == 1
    assert db.check()["ok"]
    db.rebuild_index()
    assert waiting(db) == 0
    db.close()
    assert sound(db_path) == set()


def test_a_backup_takes_the_list_along_and_whoever_opens_it_goes_on(
    idle: Any, db_path: Path, tmp_path: Path
) -> None:
    db = idle()
    db.delete_session("gone")
    db.backup(tmp_path / "copy.db")
    assert value(tmp_path / "copy.db", LISTED) == 1
    assert check_file(tmp_path / "copy.db")["ok"]
    with SessionDB(tmp_path / "copy.db") as copy:
        assert ids_of(copy.search_messages("docker", limit=-1)) == set(db.kept)
        copy._conn.execute("SELECT 1")
    assert value(tmp_path / "copy.db", LISTED) == 0
    assert sound(tmp_path / "copy.db") == set(db.kept)


def test_a_deletion_that_is_rolled_back_lists_nothing(idle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    db = idle()
    db._engine._writer.conn.execute(
        "CREATE TEMP TRIGGER refused BEFORE DELETE ON main.messages BEGIN SELECT RAISE(ABORT, 'refused'); END"
    )
    with pytest.raises(sqlite3.IntegrityError):
        db.delete_session("gone")
    assert waiting(db) == 0
    assert len(db.search_messages("docker", limit=-1)) == 60


def test_a_file_that_can_only_be_read_is_searched_rightly_with_its_list(idle: Any, tmp_path: Path) -> None:
    db = idle()
    db.delete_session("gone")
    copy = tmp_path / "copy.db"
    db.backup(copy)
    copy.chmod(0o400)
    code = (
        "db = SessionDB(path)\n"
        "db._engine.read_only = db._engine.read_only or errors.StoreReadOnlyError('attempt to write')\n"
        "say(hits=[hit['id'] for hit in db.search_messages('docker', limit=-1)])\ndb.close()\n"
    )
    with program(code, copy) as reader:
        assert set(reader.finish()[-1]["hits"]) == set(db.kept)
    copy.chmod(0o600)
    assert value(copy, LISTED) == 1


DELETE_AND_DIE = """
db = SessionDB(path, indexing=args[0])
db.create_session("kept", "cli")
kept = db.append_messages("kept", [{"role": "user", "content": f"docker kept {n} 广西"} for n in range(20)])
say(kept=kept)
n = 0
while True:
    n += 1
    db.create_session(f"old{n}", "cli")
    db.append_messages(f"old{n}", [{"role": "user", "content": f"docker old {m} 广西"} for m in range(60)])
    if n % 2:
        db.search_messages("docker", limit=1)
    db.delete_session(f"old{n}")
    say(deleted=n)
"""


@pytest.mark.parametrize("mode", ["background", "inline"])
def test_a_kill_between_deletions_and_their_entries_leaves_nothing_wrong(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "state.db"
    kept: set[int] = set()
    for number in range(5):
        with program(DELETE_AND_DIE, path, mode) as dying:
            kept.update(dying.answer()["kept"])
            for _ in range(number + 1):
                dying.answer()
            dying.kill()
        assert check_file(path)["verdict"] in ("ok", "drift")  # "drift": counters of the session cut off
        with closing(sqlite3.connect(path)) as conn:
            # What is in an index without a message is on the list, so that somebody will remove it.
            (lost,) = conn.execute(
                "SELECT count(*) FROM messages_fts_docsize WHERE id NOT IN (SELECT id FROM messages)"
                " AND id NOT IN (SELECT e.value FROM state_meta m, json_each(m.value) e"
                " WHERE m.key GLOB 'hermes_state.forget.*')"
            ).fetchone()
            assert lost == 0
    with SessionDB(path) as db:
        assert kept <= ids_of(db.search_messages("docker", limit=-1))
        db._conn.execute("SELECT 1")  # waits until the list is empty
    assert kept <= sound(path)
    assert value(path, LISTED) == 0


BESIDE = """
mine = args[0]
db = SessionDB(path, indexing=args[1])
db.create_session(mine, "cli")
barrier()
ids = []
for n in range(12):
    name = f"{mine}-{n}"
    db.create_session(name, "cli")
    db.append_messages(name, [{"role": "user", "content": f"docker {m} 广西 修改youer"} for m in range(25)])
    ids.append(db.append_message(mine, "user", f"stays {mine} {n} 广西"))
    if n % 3 == 0:
        db.search_messages("docker", limit=1)
    db.delete_session(name)
found = sorted(hit["id"] for hit in db.search_messages(f"stays {mine}", limit=-1))
say(ids=ids, found=found)
db.close()
"""


@pytest.mark.parametrize("modes", [("background", "background"), ("background", "inline")])
def test_programs_that_delete_and_remove_entries_side_by_side_leave_a_sound_file(
    tmp_path: Path, modes: tuple[str, str]
) -> None:
    path = tmp_path / "state.db"
    SessionDB(path).close()
    with ExitStack() as stack:
        ours = [stack.enter_context(program(BESIDE, path, f"p{n}", mode)) for n, mode in enumerate(modes)]
        theirs = stack.enter_context(
            peer(path, "append", "--session", "peer", "--count", 40, "--start-barrier")
        )
        for one in (*ours, theirs):
            one.ready()
        for one in (*ours, theirs):
            one.go()
        answers = [one.finish()[-1] for one in (*ours, theirs)]
    for answer in answers[:2]:
        assert answer["found"] == answer["ids"]
    with SessionDB(path) as db:
        db._conn.execute("SELECT 1")
    assert sound(path) == {i for answer in answers for i in answer["ids"]}


def test_a_turn_of_the_worker_indexes_what_is_new_and_goes_on_to_what_is_to_be_removed(idle: Any) -> None:
    db = idle()
    db.delete_session("gone")
    new = [db.append_message("kept", "user", f"brandnew {n}") for n in range(5)]
    done, _ = db._engine.upkeep.worker_step(20)
    assert done == 20
    assert not db.store_info()["index_pending"]
    assert db._engine.upkeep.worker_step(20)[0] == 15
    assert waiting(db) == 0
    assert ids_of(db.search_messages("brandnew", limit=-1)) == set(new)
    assert db.check()["ok"]


def test_a_transaction_through_conn_may_store_a_deleted_message_under_its_id_again(
    idle: Callable[..., Any], db_path: Path
) -> None:
    db = idle()
    db.delete_session("gone")
    again, moved = db.gone[3], db.gone[4]
    db._conn.execute("BEGIN IMMEDIATE")
    db._conn.execute(
        "INSERT INTO messages(id, session_id, role, content, timestamp) VALUES (?, 'kept', 'user', ?, 1.0)",
        (again, "brought 修改back 漓江"),
    )
    db._conn.execute("UPDATE messages SET id = ? WHERE id = ?", (moved, db.kept[0]))
    db._conn.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = 'kept'")
    db._conn.commit()
    assert waiting(db)
    for _ in range(2):
        assert ids_of(db.search_messages("docker", limit=-1)) == {moved, *db.kept[1:]}
        for query in ("brought", "漓江", "back"):
            assert ids_of(db.search_messages(query, limit=-1)) == {again}
        db._engine.upkeep.catch_up()
    assert not waiting(db)
    assert db.check()["problems"] == []
    db.close()
    assert sound(db_path) == {again, moved, *db.kept[1:]}
