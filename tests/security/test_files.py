"""Who may read the store, and what may stand in its place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import processes
import pytest

import hermes_state
from hermes_state import SessionDB, errors

POSIX = os.name == "posix"


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("umask", ["0o000", "0o022", "0o077"])
def test_file_sidecars_and_folder_are_private_under_every_umask(tmp_path: Path, umask: str) -> None:
    path = tmp_path / "new" / "deeper" / "state.db"
    with processes.program(
        "os.umask(int(args[0], 8))\ndb = SessionDB(path)\ndb.create_session('s', 'cli')\n"
        "db.append_message('s', 'user', 'x')\ndb.backup(path + '.backup')\nbarrier()\ndb.close()\n",
        path,
        umask,
    ) as other:
        other.ready()
        modes = {name.name: mode(name) for name in path.parent.iterdir()}
        assert modes == {f"state.db{end}": 0o600 for end in ("", "-wal", "-shm", ".backup")}
        assert mode(path.parent) == 0o700
        other.go()
        other.finish()


def test_a_looser_file_is_closed_up(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SessionDB(path).close()
    path.chmod(0o664)
    SessionDB(path).close()
    assert mode(path) == 0o600
    assert mode(tmp_path) == 0o700 or mode(tmp_path) != 0o600, "a folder that was there keeps its mode"


def test_an_own_link_is_followed_and_the_file_behind_it_used(tmp_path: Path) -> None:
    real = tmp_path / "disk" / "state.db"
    real.parent.mkdir()
    link = tmp_path / "state.db"
    link.symlink_to(real)
    with SessionDB(link) as db:
        db.create_session("s", "cli")
        with SessionDB(real) as same:
            assert same.get_session("s") is not None
    assert link.is_symlink()
    assert sorted(name.name for name in tmp_path.iterdir()) == ["disk", "state.db"]


def test_another_users_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, link = tmp_path / "real.db", tmp_path / "state.db"
    link.symlink_to(real)
    if os.geteuid() == 0:
        os.lchown(link, 12345, 12345)
    else:
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(errors.StoreCannotOpenError, match="symbolic link"):
        SessionDB(link)
    assert not real.exists()
    assert "symbolic link" in (hermes_state.get_last_init_error() or "")


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_link_in_the_place_of_a_sidecar_is_refused(tmp_path: Path, end: str) -> None:
    path, victim = tmp_path / "state.db", tmp_path / "victim"
    victim.write_bytes(b"precious")
    Path(f"{path}{end}").symlink_to(victim)
    with pytest.raises(errors.StoreCannotOpenError, match="symbolic link"):
        SessionDB(path)
    assert victim.read_bytes() == b"precious"
    assert not path.exists()


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = Path("/dev/null")
    with pytest.raises(errors.StoreCannotOpenError):
        SessionDB(path)


def test_a_temporary_store_is_private(tmp_path: Path) -> None:
    with SessionDB(":memory:") as db:
        file = Path(db._engine.path)
        assert mode(file) == 0o600
        assert mode(file.parent) == 0o700
    assert not file.parent.exists()
