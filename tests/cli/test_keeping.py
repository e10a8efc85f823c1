"""check, repair, optimize, prune, vacuum, upgrade, doctor: the store kept in order."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections import namedtuple
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, age, answer, run

from hermes_state import SessionDB
from hermes_state.api import repairing, stepping
from hermes_state.cli import diagnosis, diagnosis_file, upkeep_commands
from hermes_state.engine import patience


def old(tmp_path: Path, version: int) -> Path:
    path = tmp_path / "old.db"
    path.write_bytes((ROOT / "tests" / "fixtures" / f"v{version}.db").read_bytes())
    return path


# -- check and repair --


def test_a_sound_store_is_sound(home: Path) -> None:
    found = answer("check")
    assert (found["ok"], found["verdict"], found["advice"]) == (True, "ok", [])
    assert "sound\n4 sessions, 7 messages" in run("check", "--quick").stdout
    assert answer("repair")["rebuilt"] == []


def test_a_check_tells_what_the_indexes_have_still_to_forget(store: Path) -> None:
    with SessionDB(store) as db:
        db.search_messages("hello")
        db._engine._worker.stop()
        gone = db.message_count("other")
        assert db.delete_session("other")
        assert f"{gone} deleted message" in run("check").stdout
        assert answer("check")["forgetting"] == gone
    assert "deleted" not in run("check").stdout


def test_drift_is_found_explained_and_mended(store: Path) -> None:
    with SessionDB(store) as db:
        db._conn.execute("UPDATE sessions SET message_count = 99 WHERE id = 'other'")
        db._conn.execute("DELETE FROM messages_fts WHERE rowid = 3")
    found = answer("check", code=1)
    assert {p["kind"] for p in found["problems"]} == {"counters", "missing_rows"}
    assert found["advice"] == ["hermes-state repair"]
    assert "What to do: hermes-state repair" in run("check", code=1).stdout
    text = run("repair").stdout
    assert "1 message indexed anew; 1 session counted anew" in text
    assert text.endswith("sound\n4 sessions, 7 messages\n")
    assert answer("check")["ok"] is True


def test_orphans_are_deleted_only_if_told_and_confirmed(store: Path) -> None:
    with closing(sqlite3.connect(store)) as conn, conn:
        conn.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('gone', 'user', 'x', 1)"
        )
    left = answer("repair", code=1)
    assert left["advice"] == ["hermes-state repair --remove-orphans deletes what belongs to no session"]
    assert "Aborted" in run("repair", "--remove-orphans", code=1, given="").stderr
    assert answer("repair", "--remove-orphans", "--yes")["orphans"] == 1
    assert answer("check")["ok"] is True


@pytest.mark.parametrize(
    ("content", "verdict"),
    [(b"", "empty"), (bytes(8192), "zeroed"), (b"no database " * 500, "not a database")],
)
def test_a_file_that_is_no_store_is_named_for_what_it_is(
    tmp_path: Path, content: bytes, verdict: str
) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    found = answer("check", "--db", str(path), code=1)
    assert found["verdict"] == verdict
    assert found["advice"]
    for command in ("list", "stats", "repair"):
        assert run(command, "--db", str(path), code=1).stderr.count("\n") == 1
    assert path.read_bytes() == content


# -- prune --


def test_a_prune_tells_first_and_deletes_only_with_a_yes(store: Path) -> None:
    age(store, "other", 100)
    assert run("prune", "--older-than", "200").stdout == "no session is old enough\n"
    told = run("prune", "--dry-run").stdout
    assert "1 session with 1 message would go" in told
    assert "other" in told
    found = answer("prune")
    assert (found["dry_run"], found["sessions"], found["sample"]) == (True, 1, ["other"])
    assert (found["messages"], found["deleted"]) == (1, 0)
    assert answer("prune", "--source", "cli")["sessions"] == 0
    assert answer("prune", "--source-age", "telegram=never")["kept"]["never"]["sessions"] == 1
    assert answer("prune", "--older-than", "500", "--source-age", "telegram=99")["sessions"] == 1
    for wrong in ("telegram", "=5", "telegram=soon", "telegram=-1", "telegram=nan"):
        run("prune", "--source-age", wrong, code=2)
    assert "Aborted" in run("prune", code=1, given="n\n").stderr
    with SessionDB(store) as db:
        assert db.get_session("other") is not None
    assert "1 session deleted" in run("prune", given="y\n").stdout
    assert answer("prune", "--yes")["deleted"] == 0
    with SessionDB(store) as db:
        assert db.get_session("other") is None


def test_a_prune_takes_the_transcripts_along(store: Path, tmp_path: Path) -> None:
    age(store, "other", 100)
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("other.jsonl", "kept.jsonl"):
        (folder / name).write_text("{}")
    assert answer("prune", "--yes", "--sessions-dir", str(folder))["deleted"] == 1
    assert [path.name for path in folder.iterdir()] == ["kept.jsonl"]


def test_a_negative_age_is_a_wrong_command_line(home: Path) -> None:
    run("prune", "--older-than", "-1", code=2)


# -- optimize and vacuum --


def test_the_trigram_mode_changes_and_searches_find_the_same(home: Path) -> None:
    before = answer("search", "桂林")["hits"]
    assert answer("optimize", "--trigram", "unspaced")["trigram"] == "unspaced"
    assert "unspaced" in run("stats").stdout
    assert answer("search", "桂林")["hits"] == before
    assert "trigram index: unspaced" in run("optimize", "--rebuild").stdout
    assert answer("check")["ok"] is True


def test_a_vacuum_asks_and_gives_free_pages_back(store: Path) -> None:
    with SessionDB(store) as db:
        db.append_messages("other", [{"role": "user", "content": f"{n} " * 500} for n in range(300)])
        db.clear_messages("other")
    assert "Aborted" in run("vacuum", code=1, given="").stderr
    found = answer("vacuum", "--yes")
    assert found["bytes_after"] < found["bytes_before"]
    assert "became" in run("vacuum", "-y").stdout
    run("vacuum", "--incremental", "-y")
    with SessionDB(store) as db:
        db.append_messages("other", [{"role": "user", "content": f"{n} " * 500} for n in range(300)])
        db.clear_messages("other")
    # It was made for it by the run before: nothing is written anew, so nothing is asked.
    found = answer("vacuum", "--incremental")
    assert found["bytes_after"] < found["bytes_before"]


def test_a_vacuum_without_room_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(upkeep_commands.shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    assert "are needed" in run("vacuum", "-y", code=1).stderr


# -- upgrade --


@pytest.mark.parametrize("version", range(1, 11))
def test_only_upgrade_changes_an_older_store(tmp_path: Path, version: int) -> None:
    path = old(tmp_path, version)
    before = path.read_bytes()
    for command in (
        ["list"],
        ["stats"],
        ["search", "x"],
        ["repair"],
        ["prune"],
        ["export"],
        ["vacuum", "-y"],
    ):
        assert "'hermes-state upgrade' brings it to 11" in run(*command, "--db", str(path), code=1).stderr
    for command in (["doctor"], ["upgrade", "--dry-run"]):
        answer(*command, "--db", str(path))
    assert answer("check", "--db", str(path), code=1)["advice"] == ["hermes-state upgrade"]
    assert path.read_bytes() == before
    assert f"from version {version} to 11, complete" in run("upgrade", "--db", str(path)).stdout
    assert "version 11, complete" in run("upgrade", "--db", str(path)).stdout
    assert answer("upgrade", "--dry-run", "--db", str(path))["from"] == 11
    answer("list", "--db", str(path))


def test_another_programs_database_is_never_made_a_store(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("CREATE TABLE notes(text)")
    before = path.read_bytes()
    for command in (["list"], ["upgrade"], ["import", os.devnull], ["repair"]):
        assert "no session store" in run(*command, "--db", str(path), code=1).stderr
    assert answer("doctor", "--db", str(path), code=1)["ok"] is False
    assert path.read_bytes() == before


# -- doctor --


def states(*arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    return {finding["about"]: finding for finding in answer("doctor", *arguments, code=code)["findings"]}


def test_a_sound_set_up_has_no_problem(home: Path) -> None:
    found = states()
    for about in ("full-text search", "file", "permissions", "disk", "version", "index", "write lock"):
        assert found[about]["state"] == "ok", found[about]
    text = run("doctor").stdout
    assert "HERMES_HOME says" in text
    assert "0 problems" in text


def test_a_store_that_is_not_there_yet_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "new"))
    assert states()["file"]["state"] == "note"
    assert not (tmp_path / "new").exists()
    monkeypatch.setenv("HERMES_HOME", "relative")
    assert states()["HERMES_HOME"]["state"] == "warning"


def test_doctor_sees_who_else_may_read_the_file(store: Path) -> None:
    store.chmod(0o644)
    assert states()["permissions"]["do"] == f"chmod 600 {store}"
    assert stat.S_IMODE(store.stat().st_mode) == 0o644


def test_doctor_sees_a_writer_that_hangs(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_file, "LOCK_WAIT_MS", 50)
    program = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN IMMEDIATE'); print('READY', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "READY\n"
        found = states(code=1)["write lock"]
        assert answer("list")
        writer.communicate("\n")
    assert found["state"] == "problem"


def test_doctor_sees_an_upgrade_damage_and_leftovers(store: Path, tmp_path: Path) -> None:
    assert "hermes-state upgrade" in states("--db", str(old(tmp_path, 5)))["version"]["do"]
    (store.parent / f"{store.name}.before-restore").write_bytes(b"")
    (store.parent / f".{store.name}.abc.unfinished").write_bytes(b"")
    assert {"kept files", "leftovers"} <= states().keys()
    store.write_bytes(b"no database " * 500)
    assert states(code=1)["database"]["state"] == "problem"
    store.write_bytes(b"")
    assert states()["database"]["state"] == "warning"


def test_doctor_sees_a_full_disk_and_a_network_file_system(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(diagnosis_file.shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    monkeypatch.setattr(diagnosis_file, "file_system", lambda folder: "nfs4")
    found = states(code=1)
    assert (found["disk"]["state"], found["file system"]["state"]) == ("problem", "problem")


def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis_file.sys, "platform", "linux")
    mounts = tmp_path / "mounts"
    here = str(tmp_path.resolve())
    mounts.write_text(
        f"/dev/sda / ext4 rw 0 0\nhost:/x {here}/a\\040b nfs4 rw 0 0\nx {here}/a tmpfs rw 0 0\n"
    )
    for name, kind in {"a b/c": "nfs4", "a": "tmpfs", "ab": "ext4"}.items():
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        assert diagnosis_file.file_system(tmp_path / name, str(mounts)) == kind
    assert diagnosis_file.file_system(tmp_path, str(tmp_path / "none")) is None


def test_doctor_tells_pure_kernels_and_missing_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    why = {"encode": "HERMES_STATE_NO_EXTENSIONS is set"}
    info = {"compiled": False, "kernels": {"encode": "pure"}, "why": why}
    monkeypatch.setattr(diagnosis.hermes_state, "fastpath_info", lambda: info)
    locks = {"anchor": True, "ofd_locks": False, "why": "HERMES_STATE_NO_OFD_LOCKS is set"}
    monkeypatch.setattr(diagnosis.protection, "active", lambda: locks)
    found = {finding.about: finding for finding in diagnosis.installation()}
    assert found["kernels"].do == "unset HERMES_STATE_NO_EXTENSIONS for the compiled ones"
    assert "HERMES_STATE_NO_OFD_LOCKS" in found["protection"].says


def test_doctor_reads_a_store_that_it_may_not_write(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "frozen" / "state.db"
    copy.parent.mkdir()
    shutil.copy(store, copy)
    copy.chmod(0o400)
    found = answer("doctor", "--db", str(copy), code=0 if os.geteuid() == 0 else 1)
    assert any(f["about"] == "version" for f in found["findings"])


def test_between_two_steps_of_upkeep_every_waiting_writer_wakes_at_least_once() -> None:
    assert repairing.REST_S > patience.EAGER_MAX_S
    assert stepping.REST_S > patience.EAGER_MAX_S
