"""File systems that are small or read-only, where this user may mount them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def _can_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A folder on a file system of 3 MB, or None where it cannot be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = _can_mount() and _mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Callable[[Path], bool]]:
    """Makes a folder read-only by a bind mount over itself; False where that cannot be done."""
    mounted: list[Path] = []

    def make(folder: Path) -> bool:
        if not _can_mount() or not _mount("--bind", str(folder), str(folder)):
            return False
        mounted.append(folder)
        return _mount("-o", "remount,ro,bind", str(folder))

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
