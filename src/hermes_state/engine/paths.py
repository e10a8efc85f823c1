"""Where the database is when nobody says."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

FILE_NAME = "state.db"


def hermes_home() -> Path:
    """What ``hermes_constants`` says where that module is, else ``$HERMES_HOME``, else ``~/.hermes``."""
    try:
        constants = importlib.import_module("hermes_constants")
    except ModuleNotFoundError as error:
        if error.name != "hermes_constants":
            raise
        given = os.environ.get("HERMES_HOME", "").strip()
        return Path(given).expanduser() if given else Path.home() / ".hermes"
    return Path(constants.get_hermes_home())


DEFAULT_DB_PATH = hermes_home() / FILE_NAME
"""The default as it was at import; a program may re-point ``hermes_state.DEFAULT_DB_PATH``."""


def database_path(given: str | os.PathLike[str] | None) -> Path:
    """The file to open: ``given``, else the re-pointed module attribute, else the home of this moment.

    Raises:
        TypeError: ``given`` is neither text nor a path.
    """
    if given is not None:
        if not isinstance(given, str | os.PathLike):
            raise TypeError(f"db_path must be a str, a Path or None, not {type(given).__name__}")
        return Path(given)
    module = sys.modules.get("hermes_state")
    pointed = getattr(module, "DEFAULT_DB_PATH", DEFAULT_DB_PATH)
    if pointed is not DEFAULT_DB_PATH:
        return Path(pointed)
    return hermes_home() / FILE_NAME
