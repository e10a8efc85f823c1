"""Files that are no database, or not ours to write: typed errors, and not a byte of them is changed."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from processes import program, sound

from hermes_state import SessionDB, errors, get_last_init_error


def _filled(path: Path) -> list[int]:
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        return db.append_messages(
            "s", [{"role": "user", "content": f"row {n} 广西 " + "y" * 500} for n in range(200)]
        )


@pytest.mark.parametrize(
    "content",
    [
        b"no database at all, but long enough to look at\n" * 100,
        b"\xff" * 8192,
        b"\x00" * 8192,
        b"SQLite format 3\x00",
    ],
    ids=["text", "ones", "zeros", "header-only"],
)
def test_a_file_that_is_no_database_gives_a_typed_error_and_keeps_its_bytes(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(errors.NotADatabaseError, match="not a database") as caught:
        SessionDB(path)
    assert isinstance(caught.value, sqlite3.DatabaseError)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content
    assert get_last_init_error() == f"NotADatabaseError: {caught.value}"


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    assert len(_filled(path)) == 200
    sound(path)


def test_a_truncated_file_gives_a_typed_error_and_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    _filled(path)
    whole = path.read_bytes()
    cut = whole[: len(whole) // 2 - 1000]
    path.write_bytes(cut)
    with contextlib.suppress(errors.HermesStateError), SessionDB(path) as db:
        db.get_messages("s")
        db.search_messages("row")
    assert path.stat().st_size >= len(cut), "nothing is cut off or deleted"


def test_a_damaged_table_page_is_told_by_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    _filled(path)
    with closing(sqlite3.connect(path)) as conn:
        page, size = conn.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size)"
            " FROM sqlite_master WHERE name = 'messages'"
        ).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x55" * size)
    with pytest.raises(errors.StoreCorruptError, match="malformed"), SessionDB(path) as db:
        db.get_messages("s")


def test_a_folder_in_the_place_of_the_file_gives_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(errors.StoreCannotOpenError, match="unable to open"):
        SessionDB(tmp_path / "state.db")


def test_a_file_in_the_place_of_the_folder_gives_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(errors.StoreCannotOpenError, match="unable to open"):
        SessionDB(tmp_path / "home" / "state.db")


def test_a_read_only_file_system_can_be_read_and_writes_say_what_to_do(
    tmp_path: Path, read_only: Callable[[Path], bool]
) -> None:
    folder = tmp_path / "home"
    ids = _filled(folder / "state.db")
    if not read_only(folder):
        return  # this user may not mount; modes do not bind root, so there is nothing else to try
    with SessionDB(folder / "state.db") as db:
        assert [m["id"] for m in db.get_messages("s")] == ids
        assert {hit["id"] for hit in db.search_messages("row", limit=-1)} == set(ids)
        assert db._conn.execute("SELECT count(*) FROM messages").fetchone()[0] == len(ids)
        for write in (
            lambda: db.append_message("s", "user", "never"),
            lambda: db.set_meta("a", "b"),
            lambda: db._conn.execute("DELETE FROM messages"),
            db.vacuum,
        ):
            with pytest.raises(errors.StoreReadOnlyError, match="readonly") as caught:
                write()
            assert isinstance(caught.value, sqlite3.OperationalError)
            assert "state.db" in str(caught.value)


NO_RIGHTS = """
import json, os, sys
from hermes_state import SessionDB, check_file, errors
folder = sys.argv[1]
SessionDB(folder + "/open/warm.db").close()  # all modules are loaded while this user may still read them
for name in ("open", "shut"):
    for mode in (0o444, 0o666):
        path = f"{folder}/{name}/{mode:o}.db"
        with SessionDB(path) as db:
            db.create_session("s", "cli")
            db.append_message("s", "user", "row")
        os.chmod(path, mode)
os.chmod(folder + "/open", 0o777)
os.chmod(folder + "/shut", 0o555)
os.chmod(folder, 0o755)
if os.geteuid() == 0:
    os.setuid(65534)  # rights do not bind root
with SessionDB(folder + "/open/444.db") as db:
    assert [m["content"] for m in db.get_messages("s")] == ["row"]
    assert len(db.search_messages("row")) == 1
    try:
        db.append_message("s", "user", "never")
    except errors.StoreReadOnlyError as error:
        assert "make the file and its folder writable" in str(error)
    else:
        raise AssertionError("written")
for mode in ("444", "666"):
    path = f"{folder}/shut/{mode}.db"
    for call in (SessionDB, check_file):
        try:
            call(path)
        except errors.StoreReadOnlyError as error:
            assert path in str(error) and "folder" in str(error), error
        else:
            raise AssertionError("opened")
print("seen")
"""


@pytest.mark.skipif(os.name != "posix", reason="the rights of POSIX files")
def test_a_file_without_rights_is_read_and_a_folder_without_them_is_a_typed_error() -> None:
    """In such a folder SQLite cannot make the -shm that WAL needs, even to read."""
    folder = tempfile.mkdtemp(prefix="hermes_state_rights_")  # pytest's own is closed to others
    try:
        for name in ("open", "shut"):
            (Path(folder) / name).mkdir()
        done = subprocess.run(
            [sys.executable, "-c", NO_RIGHTS, folder],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout == "seen\n", done.stdout + done.stderr
    finally:
        (Path(folder) / "shut").chmod(0o700)
        shutil.rmtree(folder)


def test_a_read_only_file_of_an_older_version_can_be_read(
    tmp_path: Path, read_only: Callable[[Path], bool]
) -> None:
    from processes import fixtures

    folder = tmp_path / "home"
    facts = fixtures().make(folder / "state.db", 11)
    if not read_only(folder):
        return
    with SessionDB(folder / "state.db") as db:
        assert db.message_count() == facts.messages
        with pytest.raises(errors.StoreReadOnlyError):
            db.set_meta("a", "b")


def test_a_read_only_folder_without_a_file_gives_a_typed_error(
    tmp_path: Path, read_only: Callable[[Path], bool]
) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    if not read_only(folder):
        return
    with pytest.raises(sqlite3.OperationalError) as caught:
        SessionDB(folder / "state.db")
    assert isinstance(caught.value, errors.HermesStateError)


@pytest.mark.parametrize("loose_before", [False, True])
def test_with_umask_022_the_file_and_its_sidecars_are_0600(tmp_path: Path, loose_before: bool) -> None:
    path = tmp_path / "state.db"
    if loose_before:
        _filled(path)
        path.chmod(0o644)
    code = """
os.umask(0o022)
db = SessionDB(path)
db.ensure_session("s", "cli")
db.append_message("s", "user", "private")
db.search_messages("private")
say(modes={name: oct(os.stat(path + name).st_mode & 0o777) for name in ("", "-wal", "-shm")})
db.close()
say(after=oct(os.stat(path).st_mode & 0o777))
"""
    with program(code, path) as running:
        said, after = running.finish()
    assert said["modes"] == {"": "0o600", "-wal": "0o600", "-shm": "0o600"}
    assert after["after"] == "0o600"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_copy_with_its_wal_of_an_open_store_opens_and_has_every_row(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    code = """
db = SessionDB(path)
db.create_session("s", "cli")
ids = db.append_messages("s", [{"role": "user", "content": f"row {n}"} for n in range(30)])
db._engine._worker.stop()  # a checkpoint between the two copies would be another test
say(ids=ids)
sys.stdin.readline()
os._exit(0)
"""
    with program(code, path) as running:
        ids = running.answer()["ids"]
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
        running.go().finish()
    with SessionDB(copy) as db:
        assert {hit["id"] for hit in db.search_messages("row", limit=-1)} == set(ids)
