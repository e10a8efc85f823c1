"""Session store for Hermes Agent on APSW: the import name, API and file of the v11 module."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from hermes_state import errors
from hermes_state._fastpath import fastpath_info
from hermes_state.api.rescue import check_file, restore, salvage
from hermes_state.engine.paths import DEFAULT_DB_PATH
from hermes_state.engine.wal import (
    _set_last_init_error,
    _wal_fallback_warned_paths,
    apply_wal_with_fallback,
    format_session_db_unavailable,
    get_last_init_error,
)
from hermes_state.schema.ddl import FTS_SQL, FTS_TRIGRAM_SQL, SCHEMA_SQL, SCHEMA_VERSION
from hermes_state.session_db import SessionDB

if TYPE_CHECKING:
    from hermes_state.aio import AsyncSessionDB

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_DB_PATH",
    "FTS_SQL",
    "FTS_TRIGRAM_SQL",
    "SCHEMA_SQL",
    "SCHEMA_VERSION",
    "AsyncSessionDB",
    "SessionDB",
    "_set_last_init_error",
    "_wal_fallback_warned_paths",
    "apply_wal_with_fallback",
    "check_file",
    "errors",
    "fastpath_info",
    "format_session_db_unavailable",
    "get_last_init_error",
    "restore",
    "salvage",
    "sqlite3",
]


def __getattr__(name: str) -> Any:
    """``AsyncSessionDB``, imported at its first use: asyncio is not for everybody."""
    if name == "AsyncSessionDB":
        from hermes_state.aio import AsyncSessionDB

        return AsyncSessionDB
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
