"""The file goes away under an open handle; the process has no descriptor left."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from hermes_state import SessionDB, errors


def _stored(db: Any) -> Any:
    db.create_session("s", "cli")
    db.append_message("s", "user", "stored before")
    return db


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_call_on_a_file_that_went_away_is_an_error_and_nothing_is_lost_in_silence(
    db: Any, db_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, gone = Event(), Event()
    checkpoint = db._engine._worker._checkpoint

    def late() -> None:
        gone.wait()
        try:
            checkpoint()
        finally:
            looked.set()

    # The worker opens its connection for checkpoints when the name leads elsewhere already.
    monkeypatch.setattr(db._engine._worker, "_checkpoint", late)
    _stored(db)
    assert len(db.search_messages("stored")) == 1  # all is indexed: a checkpoint is what is left to do
    os.rename(db_path, f"{db_path}.old")
    if how == "replaced":
        shutil.copyfile(f"{db_path}.old", db_path)
    gone.set()
    assert looked.wait(300)
    for write in (
        lambda: db.append_message("s", "user", "lost?"),
        lambda: db.append_messages("s", [{"role": "user", "content": "lost?"}]),
        lambda: db.set_meta("key", "value"),
        lambda: db._conn.execute("UPDATE sessions SET model = 'm'"),
        lambda: db.delete_session("s"),
        lambda: db.get_messages("s"),
        lambda: db.search_messages("stored"),
    ):
        with pytest.raises(errors.StoreReplacedError, match="replaced or deleted") as caught:
            write()
        assert isinstance(caught.value, sqlite3.OperationalError)
    os.replace(f"{db_path}.old", db_path)
    assert [row["content"] for row in db.get_messages("s")] == ["stored before"]


@pytest.mark.parametrize("opened", ["first", "again"])
def test_closing_does_not_touch_the_wal_of_the_file_that_took_the_place(db_path: Path, opened: str) -> None:
    """SQLite's last close removes the WAL by name."""
    script = """
import os, sys
from hermes_state import SessionDB
path = sys.argv[1]
db = SessionDB(path)
if sys.argv[2] == "again":
    db.close()
    db = SessionDB(path)
db.create_session("s", "cli")
db.append_message("s", "user", "old")
for end in ("", "-wal", "-shm"):
    os.rename(path + end, path + ".old" + end)
print("READY", flush=True)
sys.stdin.readline()
db.close()
"""
    program = subprocess.Popen(
        [sys.executable, "-c", script, str(db_path), opened],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "READY\n"
    with SessionDB(db_path) as new:
        new.create_session("n", "cli")
        new.append_message("n", "user", "new")
        wal = os.stat(f"{db_path}-wal").st_ino
        assert program.communicate("\n", timeout=300)[0] == ""
        assert program.returncode == 0
        assert os.stat(f"{db_path}-wal").st_ino == wal
        new.append_message("n", "user", "newer")
    with SessionDB(db_path) as again:
        assert [row["content"] for row in again.get_messages("n")] == ["new", "newer"]
    with SessionDB(f"{db_path}.old") as old:
        assert [row["content"] for row in old.get_messages("s")] == ["old"]


def test_opened_again_it_is_the_new_file(db: Any, db_path: Path) -> None:
    _stored(db)
    os.rename(db_path, f"{db_path}.old")
    db.close()
    with SessionDB(db_path) as fresh:
        assert fresh.session_count() == 0
        fresh.create_session("new", "cli")


@pytest.mark.skipif(os.name != "posix", reason="the limit of descriptors is POSIX's")
def test_without_descriptors_the_error_is_typed_and_all_works_again_later(db_path: Path) -> None:
    script = """
import os, resource, sys
from hermes_state import SessionDB, errors
path = sys.argv[1]
db = SessionDB(path)
db.create_session("s", "cli")
ids = [db.append_message("s", "user", "word0")]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, hard))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    SessionDB(path + ".other")
except errors.StoreCannotOpenError as error:
    print("typed", flush=True)
for number in range(1, 6):
    try:
        ids.append(db.append_message("s", "user", f"word{number}"))
        db.search_messages("word0")
    except errors.HermesStateError:
        pass
for descriptor in taken:
    os.close(descriptor)
ids.append(db.append_message("s", "user", "word9"))
stored = [row["id"] for row in db.get_messages("s")]
assert set(ids) <= set(stored), (ids, stored)
assert db.get_session("s")["message_count"] == len(stored)
assert len(db.search_messages("word0 OR word1 OR word2 OR word3 OR word4 OR word5 OR word9")) == len(stored)
db.close()
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(db_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["typed", "done"]
