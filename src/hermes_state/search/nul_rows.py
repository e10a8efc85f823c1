"""Rows with a NUL that an older SQLite put into the trigram index.

The trigram tokenizer of older SQLite versions (3.40 among them) stops at a NUL,
the present one goes on behind it. FTS5 takes a row out of an index by tokenizing
its stored text again, so a row that one wrote and the other removes leaves
the index damaged ("database disk image is malformed"). Structured content
begins with a NUL, so every such message of a program on v11 is one of these rows.
"""

from __future__ import annotations

from typing import Final

import apsw

from hermes_state.store.rows import rows, scalar

TRIGRAM_LETTERS: Final = 3

# Shadow tables of FTS5: <name>_content(id, c0) and <name>_docsize(id, sz), where sz is one varint
# a column, the number of its tokens (https://www.sqlite.org/fts5.html, section 9).
_NUL_ROWS_SQL = """
SELECT c.id, d.sz, instr(c.c0, char(0)) - 1
FROM json_each(?) j CROSS JOIN messages_fts_trigram_content c ON c.id = j.value
JOIN messages_fts_trigram_docsize d ON d.id = c.id
WHERE instr(c.c0, char(0)) > 0
"""
_CUT_SQL = """
UPDATE messages_fts_trigram_content SET c0 = substr(c0, 1, instr(c0, char(0)) - 1) WHERE id = ?
"""


def agree(conn: apsw.Connection, ids_json: str) -> None:
    """Make the stored text of these rows what their tokens say, before they leave the trigram index.

    A row whose number of tokens shows that the tokenizer stopped at the NUL has its text in the
    index cut there; others stay as they are. ``ids_json``: a JSON array of message ids.
    """
    wrong = [
        row_id
        for row_id, sizes, before_nul in rows(conn, _NUL_ROWS_SQL, (ids_json,))[1]
        if _varint(sizes) == max(0, before_nul - (TRIGRAM_LETTERS - 1))
    ]
    if wrong:
        _cut(conn, wrong)


def agree_sql(row: str) -> str:
    """What ``agree`` does for the id of ``row`` ("old" or "new"), for the body of a TEMP trigger."""
    return f"""
    UPDATE main.messages_fts_trigram_content SET c0 = substr(c0, 1, instr(c0, char(0)) - 1)
    WHERE id = {row}.id AND instr(c0, char(0)) > 0 AND max(0, instr(c0, char(0)) - {TRIGRAM_LETTERS}) =
        (SELECT hs_tokens(sz) FROM main.messages_fts_trigram_docsize WHERE id = {row}.id);
"""  # noqa: S608 - constant text


_GUARD_SQL = "".join(
    f"""
CREATE TEMP TRIGGER IF NOT EXISTS hs_agree_{event.lower()} BEFORE {event} ON main.messages
WHEN instr(old.content, char(0)) OR instr(old.tool_name, char(0)) OR instr(old.tool_calls, char(0)) BEGIN
    {agree_sql("old")}
END;
"""
    for event in ("DELETE", "UPDATE")
)


def guard(conn: apsw.Connection) -> None:
    """Let the file's triggers find such rows as ``agree`` leaves them, when statements of others write.

    By TEMP triggers, which only this connection has. It must not be in defensive mode.
    """
    if scalar(conn, "SELECT 1 FROM sqlite_master WHERE name = 'messages_fts_trigram_docsize'"):
        conn.create_scalar_function("hs_tokens", _tokens, 1, deterministic=True)
        conn.execute(_GUARD_SQL)


def _cut(conn: apsw.Connection, ids: list[int]) -> None:
    """Cut the stored text of the rows; defensive mode, which guards FTS5's tables, is off meanwhile."""
    defensive = conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        for row_id in ids:
            conn.execute(_CUT_SQL, (row_id,))
    finally:
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, defensive)


def _tokens(*sizes: object) -> int:
    """The SQL function: the number of tokens that a ``sz`` of docsize says."""
    return _varint(sizes[0])


def _varint(data: object) -> int:
    """The first integer of ``data`` in SQLite's varint format, of up to eight bytes; -1 if it is no blob."""
    if not isinstance(data, bytes):
        return -1
    number = 0
    for byte in data[:8]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number
