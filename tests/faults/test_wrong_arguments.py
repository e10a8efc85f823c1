"""Wrong paths and arguments: the error names what is wrong and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_state import AsyncSessionDB, SessionDB, check_file, errors, restore, salvage
from hermes_state.cli.commands import root


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda path: SessionDB(path, patience="x"), "patience must be a number, not 'x'"),
        (lambda path: SessionDB(path, on_upgrade_progress=3), "on_upgrade_progress must be callable, not 3"),
        (lambda path: SessionDB(path).prune_sessions("90"), "older_than_days must be a number of days"),
        (lambda path: AsyncSessionDB(path, threads="a"), "threads must be a whole number, not 'a'"),
    ],
    ids=["patience", "on_upgrade_progress", "older_than_days", "threads"],
)
def test_an_argument_of_another_type_is_named(db_path: Path, call: Callable[[Path], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call(db_path)


def test_an_unknown_session_says_how_to_make_it(db: Any) -> None:
    with pytest.raises(errors.UnknownSessionError, match="create_session or ensure_session"):
        db.append_message("nobody", "user", "x")


def test_a_file_among_the_folders_of_a_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "state.db", tmp_path / "file" / "deeper" / "state.db"):
        with pytest.raises(errors.StoreCannotOpenError, match=f"{path.parent} is no folder"):
            SessionDB(path)


def test_a_folder_is_no_file_to_check(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreCannotOpenError, match="no regular file"):
        check_file(tmp_path)


def test_a_target_that_is_there_or_has_no_folder_is_named(db: Any, db_path: Path, tmp_path: Path) -> None:
    db.close()
    with pytest.raises(FileExistsError, match="give another name"):
        salvage(db_path, db_path)
    with SessionDB(db_path) as again, pytest.raises(FileNotFoundError, match=r"no folder .*none$"):
        again.backup(tmp_path / "none" / "copy.db")


def test_a_restore_of_a_store_in_use_says_to_close_it(db: Any, db_path: Path, tmp_path: Path) -> None:
    db.backup(tmp_path / "copy.db")
    with pytest.raises(errors.StoreBusyError, match="close it first") as caught:
        restore(tmp_path / "copy.db", db_path)
    assert "another process" not in str(caught.value)


def test_the_demo_says_which_lines_it_reads_and_names_only_the_first(tmp_path: Path) -> None:
    given = tmp_path / "records.jsonl"
    given.write_text("".join(json.dumps({"id": str(number)}) + "\n" for number in range(150)))
    done = CliRunner().invoke(root, ["demo", "--input", str(given)])
    told = [line for line in done.output.splitlines() if line.startswith(f"{given}:")]
    assert len(told) == 101
    assert "export --format sessions" in told[0]
    assert "more lines like these" in told[-1]
