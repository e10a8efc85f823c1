"""Index entries that this SQLite cannot bring up to date, left for one that can.

A SQLite without FTS5, or without the trigram tokenizer, may meet a file that has full-text tables.
It leaves the watermark alone then, so that what is appended is indexed later. But rows below the watermark
that it deletes or changes keep entries that are wrong; their ids go into a table of ours,
in the same transaction, and the next engine with a complete SQLite looks at them when it opens the file.
The table exists only while something is owed.
"""

from __future__ import annotations

from typing import Final

import apsw

from hermes_state.store.rows import column, scalar

from . import indexing, tables

TABLE: Final = "hs_owed"

_THERE_SQL = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hs_owed'"
_NEXT_SQL = "SELECT id FROM hs_owed ORDER BY id LIMIT ?"


def anything(conn: apsw.Connection) -> bool:
    """Whether the file has entries to look at again, and this SQLite can do it."""
    return scalar(conn, _THERE_SQL) is not None and not tables.unusable(conn)


def settle_step(conn: apsw.Connection, max_rows: int) -> int:
    """Bring the entries of so many messages up to date, in the caller's write transaction; 0 at the end."""
    if not anything(conn):
        return 0
    ids = column(conn, _NEXT_SQL, (max_rows,))
    if ids:
        indexing.index_rows(conn, ids)
        conn.execute("DELETE FROM hs_owed WHERE id <= ?", (ids[-1],))
    else:
        conn.execute("DROP TABLE hs_owed")
    return len(ids)
