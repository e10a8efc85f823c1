"""export, import, backup, restore, salvage: nothing is lost on the way, nothing is overwritten unasked."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from command_line import ROOT, answer, process, run

from hermes_state import SessionDB
from hermes_state.cli.transfer_commands import file_name


def exported(path: Path) -> list[dict[str, object]]:
    with SessionDB(path) as db:
        return db.export_all()


def test_an_export_imported_into_an_empty_store_is_the_same_store(store: Path, tmp_path: Path) -> None:
    out, copy = tmp_path / "all.jsonl.gz", tmp_path / "copy.db"
    assert answer("export", "-o", str(out)) == {"path": str(out), "sessions": 4, "messages": 7}
    (report,) = answer("import", str(out), "--db", str(copy))
    assert (report["sessions"], report["messages"], report["problem_count"]) == (4, 7, 0)
    assert exported(copy) == exported(store)
    (again,) = answer("import", str(out), "--db", str(copy))
    assert (again["messages"], again["messages_present"]) == (0, 7)
    assert "7 messages were there" in run("import", str(out), "--db", str(copy)).stdout


def test_an_export_streams_to_standard_output_and_an_import_reads_standard_input(
    home: Path, tmp_path: Path
) -> None:
    done = process("export", "20260303", HERMES_HOME=str(home), PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "桂林" in done.stdout
    assert [next(iter(json.loads(line))) for line in done.stdout.splitlines()] == [
        "hermes_state_export", "session", "message", "end",
    ]  # fmt: skip
    copy = tmp_path / "copy.db"
    done = process("import", "-", "--db", str(copy), given=done.stdout)
    assert done.returncode == 0, done.stderr
    assert answer("search", "桂林", "--db", str(copy))["hits"][0]["session_id"] == "20260303_tip"


def test_an_export_may_be_of_one_source_or_a_session_a_line(home: Path) -> None:
    lines = run("export", "--source", "cli", "--format", "sessions").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["20260301_root", "20260303_tip"]


def test_markdown_is_one_text_or_a_file_a_conversation(home: Path, tmp_path: Path) -> None:
    text = run("export", "20260301", "--format", "markdown").stdout
    assert text.startswith("# Trip to Guilin\n")
    whole = tmp_path / "all.md"
    run("export", "--format", "markdown", "-o", str(whole))
    assert whole.read_text(encoding="utf-8").count("\n---\n\n# ") == 3
    folder = tmp_path / "many"
    folder.mkdir()
    with SessionDB(home / "state.db") as db:
        db.create_session("../up/.id", "cli")
    found = answer("export", "--format", "markdown", "-o", str(folder))
    assert found["sessions"] == len(list(folder.iterdir())) == 5
    assert (folder / "20260301_root.md").read_text(encoding="utf-8") == text
    assert "exists" in run("export", "--format", "markdown", "-o", str(folder), code=1).stderr
    run("export", "--format", "markdown", "-o", str(folder), "--force")


def test_a_files_name_is_never_a_path_and_never_too_long() -> None:
    for session_id in ("../x", "a/b", "..", ".hidden", "C:\\x", "nul\0", "x" * 5000, "桂" * 500):
        name = file_name(session_id)
        assert Path(name).name == name
        assert not name.startswith(".")
        assert len(name.encode()) < 200
    assert file_name("20260301_root") == "20260301_root"
    assert file_name("x" * 5000) != file_name("x" * 5001)


def test_an_export_replaces_a_file_only_if_told_and_checks_what_it_is_asked(
    home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert "--force" in run("export", "-o", str(out), code=1).stderr
    assert out.read_text() == "mine"
    run("export", "-o", str(out), "--force")
    assert out.read_text().startswith('{"hermes_state_export"')
    run("export", "--json", code=2)
    run("export", "other", "--source", "cli", code=2)
    run("export", "-o", str(tmp_path), code=2)
    run("export", "-o", str(tmp_path / "no" / "folder.jsonl"), code=1)


def test_lines_that_are_wrong_are_named_and_the_rest_comes_in(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "20260401.jsonl"
    path.write_text('{"role": "user", "content": "first"}\n{broken\n{"role": "user", "content": "last"}')
    result = run("import", str(path), code=1)
    assert result.stderr.startswith(f"{path}:2: not JSON")
    assert "; 1 problem\n" in result.stdout
    with SessionDB(home / "state.db") as db:
        assert [m["content"] for m in db.get_messages("20260401")] == ["first", "last"]
    (report,) = answer("import", str(path), "--session-id", "other-name", "--session-source", "old", code=1)
    assert report["problems"][0]["line"] == 2
    assert answer("show", "other-name")["session"]["source"] == "old"


def test_a_folder_of_transcripts_is_imported(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "one.jsonl").write_text('{"role": "user", "content": "number one"}\n')
    with gzip.open(folder / "two.jsonl.gz", "wt") as out:
        out.write('{"role": "user", "content": "number two"}\n')
    (report,) = answer("import", str(folder))
    assert report["sessions"] == 2
    assert len(answer("search", "number")["hits"]) == 2


def test_a_backup_is_a_whole_store_and_never_replaces_a_file_unasked(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    found = answer("backup", str(target))
    assert (found["sessions"], found["messages"], found["bytes"]) == (4, 7, target.stat().st_size)
    assert exported(target) == exported(store)
    assert "--force" in run("backup", str(target), code=1).stderr
    assert "4 sessions and 7 messages" in run("backup", str(target), "--force").stdout
    run("backup", str(tmp_path / "no" / "folder.db"), code=1)


def test_a_restore_asks_and_keeps_what_was_there(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    run("backup", str(target))
    with SessionDB(store) as db:
        db.create_session("later", "cli")
    assert "Aborted" in run("restore", str(target), code=1, given="").stderr
    assert "Aborted" in run("restore", str(target), code=1, given="n\n").stderr
    with SessionDB(store) as db:
        assert db.session_count() == 5
    found = answer("restore", str(target), "--yes")
    assert found["sessions"] == 4
    assert len(exported(Path(found["kept"]))) == 5
    assert "is the store itself" in run("restore", str(store), "-y", code=1).stderr
    assert answer("restore", str(target), "--db", str(tmp_path / "new.db"))["kept"] is None


def test_a_restore_refuses_while_another_process_has_the_store(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    run("backup", str(target))
    program = (
        "import sys; from hermes_state import SessionDB\n"
        "db = SessionDB(sys.argv[1]); print('READY', flush=True); sys.stdin.readline(); db.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == "READY\n"
        assert "in use" in run("restore", str(target), "-y", code=1).stderr
        gateway.communicate("\n")
    run("restore", str(target), "-y")


def test_a_damaged_store_is_salvaged_into_a_new_file(store: Path, tmp_path: Path) -> None:
    before = exported(store)
    whole = answer("salvage", str(tmp_path / "whole.db"))
    assert whole["complete"] is True
    assert exported(tmp_path / "whole.db") == before
    with SessionDB(store) as db:
        db.append_messages("other", [{"role": "user", "content": f"{n} " * 500} for n in range(200)])
    with closing(apsw.Connection(str(store))) as conn:
        sql = "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY 1 LIMIT 4"
        pages = [number for (number,) in conn.execute(sql)]
    data = bytearray(store.read_bytes())
    for number in pages:
        data[(number - 1) * 4096 : number * 4096] = b"\xff" * 4096
    store.write_bytes(data)
    lost = answer("salvage", str(tmp_path / "rest.db"), code=1)
    assert 7 <= lost["messages"] < 207
    assert "missing" in run("salvage", str(tmp_path / "again.db"), code=1).stdout
    assert run("salvage", str(tmp_path / "rest.db"), code=1).stderr.count("\n") == 1


@pytest.mark.parametrize("version", [1, 6, 10])
def test_an_older_store_is_backed_up_as_it_is(version: int, tmp_path: Path) -> None:
    path, target = tmp_path / "old.db", tmp_path / "backup.db"
    path.write_bytes((ROOT / "tests" / "fixtures" / f"v{version}.db").read_bytes())
    assert answer("backup", str(target), "--db", str(path))["messages"] > 0
    assert answer("upgrade", "--dry-run", "--db", str(target))["from"] == version
