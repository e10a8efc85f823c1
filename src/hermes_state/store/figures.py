"""Figures of a whole store: totals of its sessions, and how its file is divided."""

from __future__ import annotations

from typing import Any

import apsw

from hermes_state.store.rows import column, dicts, one, scalar
from hermes_state.store.sessions import end_of_prefix
from hermes_state.store.values import bound, text

# TOTAL() and not SUM(): SUM() raises where integers overflow, and gives NULL where all are NULL.
_TOTALS = """\
SELECT COUNT(*) AS sessions,
       COALESCE(SUM(ended_at IS NULL), 0) AS open_sessions,
       COALESCE(SUM(parent_session_id IS NOT NULL), 0) AS child_sessions,
       CAST(TOTAL(tool_call_count) AS INTEGER) AS tool_calls,
       CAST(TOTAL(api_call_count) AS INTEGER) AS api_calls,
       CAST(TOTAL(input_tokens) AS INTEGER) AS input_tokens,
       CAST(TOTAL(output_tokens) AS INTEGER) AS output_tokens,
       CAST(TOTAL(cache_read_tokens) AS INTEGER) AS cache_read_tokens,
       CAST(TOTAL(cache_write_tokens) AS INTEGER) AS cache_write_tokens,
       CAST(TOTAL(reasoning_tokens) AS INTEGER) AS reasoning_tokens,
       SUM(estimated_cost_usd) AS estimated_cost_usd,
       SUM(actual_cost_usd) AS actual_cost_usd,
       MIN(started_at) AS first_started_at,
       MAX(started_at) AS last_started_at
FROM sessions
"""

_OBJECTS = """\
SELECT 'sqlite_schema' AS name, 'table' AS type, 'sqlite_schema' AS tbl_name
UNION ALL
SELECT name, type, tbl_name FROM sqlite_master WHERE rootpage > 0
"""

# Hidden column `aggregate`: one row for the whole b-tree (https://www.sqlite.org/dbstat.html).
_SIZE = "SELECT pageno AS pages, pgsize AS bytes, unused FROM dbstat WHERE name = ? AND aggregate = TRUE"


def totals(conn: apsw.Connection) -> dict[str, Any]:
    """Counts, tokens and costs (US dollars, None where no session has one) of all sessions.

    ``messages`` counts rows; the rest adds up the sessions' own counters. Times are Unix seconds.
    """
    found: dict[str, Any] = one(conn, _TOTALS) or {}
    found["messages"] = scalar(conn, "SELECT COUNT(*) FROM messages")
    return found


def pages(conn: apsw.Connection) -> dict[str, int]:
    """``page_size`` in bytes, ``page_count``, and ``free_pages``, which ``VACUUM`` gives back."""
    return {
        "page_size": int(scalar(conn, "PRAGMA page_size")),
        "page_count": int(scalar(conn, "PRAGMA page_count")),
        "free_pages": int(scalar(conn, "PRAGMA freelist_count")),
    }


def has_sizes(conn: apsw.Connection) -> bool:
    """Whether this SQLite can tell the size of one table or index (it was built with ``dbstat``)."""
    return bool(scalar(conn, "SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"))


def objects(conn: apsw.Connection) -> list[dict[str, Any]]:
    """``name``, ``type`` ("table" or "index") and ``tbl_name`` of everything that has pages of its own."""
    return dicts(conn, _OBJECTS)


def size(conn: apsw.Connection, name: str) -> dict[str, int]:
    """``pages``, ``bytes`` and ``unused`` bytes of one table or index. Reads every page of it."""
    found = one(conn, _SIZE, (name,))
    return found or {"pages": 0, "bytes": 0, "unused": 0}


def ids_with_prefix(conn: apsw.Connection, prefix: str, limit: int) -> list[str]:
    """The first ids, in their order, that begin with ``prefix``; every character is itself."""
    key = text(prefix, "prefix") or ""
    if not key:
        return column(conn, "SELECT id FROM sessions ORDER BY started_at DESC LIMIT ?", (bound(limit),))
    sql = "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
    return column(conn, sql, (key, end_of_prefix(key), bound(limit)))
