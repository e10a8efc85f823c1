"""What ``doctor`` asks the system about the store's file: rights, file system, room, locks, leftovers."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw

from hermes_state.cli.diagnosis import Finding
from hermes_state.cli.text import size_text

LITTLE_ROOM_BYTES = 200_000_000
LOCK_WAIT_MS = 3_000
"""How long the write lock is waited for before somebody is said to hold it."""
NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs", "fuse.rclone")
)
"""File systems on which SQLite's locks or shared memory cannot be relied on."""


def file(path: Path) -> Iterator[Finding]:
    """The file, its sidecars and its folder: what they are and who may use them."""
    if not path.exists():
        yield Finding(
            "file", "note", f"there is no store at {path} yet", "the first program that opens it makes it"
        )
        yield from _folder(path)
        return
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        yield Finding("file", "problem", f"{path} is no regular file", "move it away")
        return
    link = f", a link to {os.path.realpath(path)}" if path.is_symlink() else ""
    yield Finding("file", "ok", f"{size_text(found.st_size)}{link}")
    real = Path(os.path.realpath(path))
    yield from _rights(real)
    yield from _folder(real)
    yield from _leftovers(real)


def _rights(path: Path) -> Iterator[Finding]:
    """Whether this user may write the file and its sidecars, and who else may read them."""
    open_to_others = []
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        try:
            found = name.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            yield Finding("permissions", "problem", f"{name} is a symbolic link", "remove it")
        if not os.access(name, os.R_OK | os.W_OK):
            yield Finding(
                "permissions", "problem",
                f"this user may not read and write {name} (owner: user {found.st_uid})",
                "run the programs as one user, or give the file to this one (chown)",
            )  # fmt: skip
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            open_to_others.append(name)
    if open_to_others:
        names = " ".join(str(name) for name in open_to_others)
        yield Finding("permissions", "warning", f"other users may open {names}", f"chmod 600 {names}")
    else:
        yield Finding("permissions", "ok", "only the owner may open the file")


def _folder(path: Path) -> Iterator[Finding]:
    """The folder's rights, its file system, and the room on its disk."""
    folder = next((place for place in path.absolute().parents if place.is_dir()), Path("/"))
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            "folder", "problem",
            f"this user may not make files in {folder}: SQLite needs -wal and -shm there",
            "make the folder writable by this user",
        )  # fmt: skip
    kind = file_system(folder)
    if kind in NETWORK:
        yield Finding(
            "file system", "problem", f"{folder} is on {kind}: locks and shared memory are not safe there",
            "put the store on a local disk",
        )  # fmt: skip
    elif kind is not None:
        yield Finding("file system", "ok", kind)
    free = shutil.disk_usage(folder).free
    size = path.stat().st_size if path.exists() else 0
    if free < LITTLE_ROOM_BYTES:
        yield Finding(
            "disk", "problem", f"{size_text(free)} are free", "free space; writes fail on a full disk"
        )
    elif free < 2 * size:
        yield Finding(
            "disk", "warning", f"{size_text(free)} are free: too little for a vacuum of {size_text(size)}",
            "free space, or hermes-state prune",
        )  # fmt: skip
    else:
        yield Finding("disk", "ok", f"{size_text(free)} are free")


def file_system(folder: Path, mounts: str = "/proc/self/mounts") -> str | None:
    """The type of the file system that ``folder`` is on, as Linux names it; None where it does not say."""
    if sys.platform != "linux":
        return None
    place = os.path.realpath(folder)
    best: tuple[int, str] | None = None
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        parts = line.split(" ")
        # Octal escapes stand for white space in a name (proc(5), fstab(5)).
        point = parts[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= best[0]):
            best = len(point), parts[2]
    return best[1] if best else None


def _leftovers(path: Path) -> Iterator[Finding]:
    """Files beside the store that a restore kept, or that a backup which was killed left."""
    kept = sorted(place.name for place in path.parent.glob(f"{_plain(path.name)}.before-restore*"))
    if kept:
        yield Finding(
            "kept files", "note", f"{', '.join(kept[:5])} from a restore", "delete them when all is well"
        )
    left = sorted(place.name for place in path.parent.glob(f".{_plain(path.name)}.*.unfinished*"))
    if left:
        yield Finding(
            "leftovers", "note", f"{', '.join(left[:5])} of a copy that was cut off",
            "delete them when no backup runs",
        )  # fmt: skip


def _plain(name: str) -> str:
    """A file's name as a pattern that matches it alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def lock(path: Path) -> Finding:
    """Whether the write lock is to be had: taken and given back at once, with nothing written."""
    try:
        conn = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        return Finding("write lock", "problem", str(error), "hermes-state check")
    try:
        conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        conn.set_busy_timeout(LOCK_WAIT_MS)
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("ROLLBACK")
    except apsw.BusyError:
        return Finding(
            "write lock", "problem", f"some program holds it for more than {LOCK_WAIT_MS / 1000:.0f} s",
            "look for a program that hangs in a transaction (on Linux: lslocks, or fuser on the -shm file)",
        )  # fmt: skip
    except apsw.Error as error:
        return Finding("write lock", "problem", str(error), "see the other findings")
    finally:
        conn.close()
    return Finding("write lock", "ok", "free")
