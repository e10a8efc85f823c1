"""Indexing in one statement: TEMP triggers that bring rows into the full-text tables.

Each statement through APSW lets the GIL go and takes it back, and beside threads that compute
each time can cost some milliseconds, with the write lock held. A step of ``indexing.index_step`` is
about ten statements; here the same step is one INSERT into a TEMP table, in autocommit: lock, rows,
watermark and COMMIT without a word of Python between them.

It serves rows that SQL alone can tell to be plain (``row_text.plain``) and gives way to the ordinary
step where there are others. TEMP triggers fire although the file's own are switched off, and only
on the connection that made them.
"""

from __future__ import annotations

from typing import Final

import apsw

from . import row_text
from .row_text import ALL_TRIGRAM, NEWEST, WATERMARK, stands
from .tables import FTS, META_WATERMARK, TRIGRAM, WORDS

FEW_ROWS: Final = 16
"""A run of plain rows shorter than this, before others, is left to the ordinary step, which takes both."""


def _move_watermark(to: str) -> str:
    return (
        f"INSERT INTO state_meta(key, value) SELECT '{META_WATERMARK}', {to}"
        " ON CONFLICT(key) DO UPDATE SET value = excluded.value"
    )


# Of the next rows, as many as a step takes, those before the first that is not plain: none of it
# in the words table, nor in the trigram table where that is for unspaced scripts only.
_TAKE = f"""
SELECT new.ticket, {WATERMARK}, max(id) FILTER (WHERE good), COALESCE(sum(good), 0), count(*) FROM (
    SELECT t.id, min({row_text.plain("m")} AND NOT {stands(WORDS, "m.id")}
        AND ({ALL_TRIGRAM} OR NOT {stands(TRIGRAM, "m.id")})) OVER (ORDER BY t.id) AS good
    FROM ({row_text.taken(WATERMARK, NEWEST, "new.max_rows", "new.max_bytes")}) t
    CROSS JOIN messages m ON m.id = t.id
)
"""  # noqa: S608 - constant text


def _add(table: str) -> str:
    return (
        f"INSERT INTO {table}(rowid, content) SELECT m.id, {row_text.v11_text('m')}"  # noqa: S608 - constant text
        " FROM hs_taken t CROSS JOIN messages m ON m.id > t.after AND m.id <= t.through"
        f" WHERE NOT {stands(table, 'm.id')}"
    )


_STEP = f"""
CREATE TEMP TABLE IF NOT EXISTS hs_step(ticket INTEGER PRIMARY KEY, max_rows INTEGER, max_bytes INTEGER);
CREATE TEMP TABLE IF NOT EXISTS hs_taken(
    ticket INTEGER PRIMARY KEY, after INTEGER, through INTEGER, plain INTEGER, looked INTEGER
);
CREATE TEMP TRIGGER IF NOT EXISTS hs_index AFTER INSERT ON hs_step BEGIN
    DELETE FROM hs_step;
    DELETE FROM hs_taken;
    INSERT INTO hs_taken {_TAKE};
    UPDATE hs_taken SET through = NULL, plain = 0 WHERE plain < looked AND plain < {FEW_ROWS};
    {_add(FTS)};
    {_add(TRIGRAM)} AND {ALL_TRIGRAM};
    {_move_watermark("through FROM hs_taken WHERE through IS NOT NULL")};
END;
"""  # noqa: S608 - constant text


def prepare_steps(conn: apsw.Connection) -> None:
    """Let ``conn`` serve ``step``."""
    conn.execute("PRAGMA temp_store=MEMORY")
    conn.execute(_STEP)


def step(conn: apsw.Connection, ticket: int, max_rows: int, max_bytes: int) -> None:
    """Bring the next plain rows above the watermark into the indexes, in a transaction of its own.

    ``conn`` is in autocommit and was given to ``prepare_steps``; ``ticket`` is another number each
    time, for ``taken``. Raises apsw.SQLError where a full-text table is missing, apsw.BusyError where
    another has the write lock; nothing is done then.
    """
    conn.execute("INSERT INTO hs_step VALUES (?, ?, ?)", (ticket, max_rows, max_bytes))


def taken(conn: apsw.Connection, ticket: int) -> tuple[int, int]:
    """What the step of that ticket did: (rows brought in, rows looked at).

    None brought in of some looked at: it left them to the ordinary step.
    """
    row = conn.execute("SELECT plain, looked FROM hs_taken WHERE ticket = ?", (ticket,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


# A row that is appended comes into the tables where SQL can tell that it is plain. The watermark moves
# over it where no other row stands between; else a step comes by, and finds it there.
_BEFORE = "COALESCE((SELECT max(id) FROM messages WHERE id < new.id), 0)"
_ROW = f"""
CREATE TEMP TRIGGER IF NOT EXISTS hs_index_row AFTER INSERT ON main.messages
WHEN ({row_text.plain("new")}) BEGIN
    INSERT INTO {FTS}(rowid, content) VALUES (new.id, {row_text.v11_text("new")});
    INSERT INTO {TRIGRAM}(rowid, content) SELECT new.id, {row_text.v11_text("new")} WHERE {ALL_TRIGRAM};
    {_move_watermark(f"new.id WHERE {_BEFORE} <= {WATERMARK}")};
END;
"""  # noqa: S608 - constant text


def prepare_rows(conn: apsw.Connection) -> None:
    """Index every plain message that ``conn`` inserts, in the INSERT itself; others stay above the watermark.

    The INSERTs raise apsw.SQLError where a full-text table is missing.
    """
    conn.execute(_ROW)
