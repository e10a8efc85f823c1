"""``SessionDB(":memory:")``: a store that lasts as long as its handle.

An engine has several connections, which an SQLite in-memory database cannot
serve, so such a store is a file in a private temporary folder.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

NAME = ":memory:"


def private_file() -> Path:
    """The path of a new store's file, in a folder of its own that only this user can enter."""
    return Path(tempfile.mkdtemp(prefix="hermes_state-")) / "state.db"


def remove(file: Path) -> None:
    """Remove the folder that ``private_file`` made."""
    shutil.rmtree(file.parent, ignore_errors=True)
