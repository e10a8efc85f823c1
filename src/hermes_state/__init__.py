"""Session store for Hermes Agent on APSW: the import name, API and file of the v11 module."""

from __future__ import annotations

import sqlite3

from hermes_state import errors
from hermes_state._fastpath import fastpath_info
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

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_DB_PATH",
    "FTS_SQL",
    "FTS_TRIGRAM_SQL",
    "SCHEMA_SQL",
    "SCHEMA_VERSION",
    "SessionDB",
    "_set_last_init_error",
    "_wal_fallback_warned_paths",
    "apply_wal_with_fallback",
    "errors",
    "fastpath_info",
    "format_session_db_unavailable",
    "get_last_init_error",
    "sqlite3",
]
