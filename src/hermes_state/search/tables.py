"""Which full-text tables a connection can use, and the settings that the search room keeps."""

from __future__ import annotations

import apsw

from hermes_state.store.rows import column, scalar

FTS = "messages_fts"
TRIGRAM = "messages_fts_trigram"
WORDS = "hs_fts_words"

META_WATERMARK = "hermes_state.indexed_through"
META_TRIGRAM = "hermes_state.trigram"
META_FORGET = "hermes_state.forget."
FORGET_ENDS = (META_FORGET, "hermes_state.forget/")
"""The first of its keys, and what comes after the last: "/" is the character after "."."""
TRIGRAM_MODES = ("all", "unspaced")

_TOKENIZERS = {FTS: "unicode61", TRIGRAM: "trigram", WORDS: "unicode61"}
_ONE_ROW_SQL = {
    table: f"INSERT INTO {table}(rowid, content) VALUES (?, '')"  # noqa: S608 - constant text
    for table in _TOKENIZERS
}
_PRESENT_SQL = (
    "SELECT name FROM sqlite_master WHERE type = 'table'"
    " AND name IN ('messages_fts', 'messages_fts_trigram', 'hs_fts_words')"
)
_VOCABULARY_SQL = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.hs_vocabulary"
    " USING fts5vocab(main, messages_fts_trigram, instance)"
)
_HAS_VOCABULARY_SQL = "SELECT 1 FROM sqlite_temp_master WHERE name = 'hs_vocabulary'"


def present(conn: apsw.Connection) -> frozenset[str]:
    """The full-text tables that exist in the file and whose tokenizer this SQLite has."""
    return frozenset(table for table in column(conn, _PRESENT_SQL) if _usable(conn, _TOKENIZERS[table]))


def lacking(conn: apsw.Connection) -> frozenset[str]:
    """The full-text tables that this SQLite can neither make nor use, whether the file has them or not."""
    return frozenset(table for table, tokenizer in _TOKENIZERS.items() if not _usable(conn, tokenizer))


def unusable(conn: apsw.Connection) -> frozenset[str]:
    """The full-text tables of the file that this SQLite cannot use: without FTS5, or that tokenizer.

    Where there are any, the index is left to programs that can keep all of it.
    """
    lack = lacking(conn)
    return lack.intersection(column(conn, _PRESENT_SQL)) if lack else lack


def owe(conn: apsw.Connection, ids_json: str) -> None:
    """Note messages whose entries in tables that this SQLite cannot use are not what they must be."""
    if unusable(conn):
        conn.execute("CREATE TABLE IF NOT EXISTS hs_owed (id INTEGER PRIMARY KEY)")
        conn.execute("INSERT OR IGNORE INTO hs_owed SELECT value FROM json_each(?)", (ids_json,))


def _usable(conn: apsw.Connection, tokenizer: str) -> bool:
    try:
        return conn.fts5_tokenizer_available(tokenizer)
    except (apsw.NoFTS5Error, apsw.SQLError):
        return False


def has_index(conn: apsw.Connection, name: str) -> bool:
    """Whether an ordinary index of that name exists."""
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
    return scalar(conn, sql, (name,)) is not None


def prepare_connection(conn: apsw.Connection) -> None:
    """Make the vocabulary of the trigram index readable on this connection, as ``temp.hs_vocabulary``.

    The table lives in the connection's own temporary database. A connection with
    ``query_only`` set may not even make that, so the pragma is lifted for this one statement.
    Nothing happens where the table stands already, or where this SQLite has no FTS5.
    """
    if scalar(conn, _HAS_VOCABULARY_SQL) is not None:
        return
    guarded = scalar(conn, "PRAGMA query_only")
    if guarded:
        conn.execute("PRAGMA query_only = 0")
    try:
        conn.execute(_VOCABULARY_SQL)
    except apsw.SQLError as error:
        if "no such module" not in str(error):
            raise
    finally:
        if guarded:
            conn.execute("PRAGMA query_only = 1")


def write_nothing(conn: apsw.Connection) -> None:
    """Write a row of no words into every full-text table; the caller undoes it."""
    for table in present(conn):
        try:
            conn.execute(_ONE_ROW_SQL[table], (-(2**63),))
        except apsw.ConstraintError:
            # It stands there already; that FTS5 has begun to write is all that counts.
            continue


def watermark(conn: apsw.Connection) -> int:
    """The id through which every message is indexed; 0 where nothing is known."""
    value = scalar(conn, "SELECT value FROM state_meta WHERE key = 'hermes_state.indexed_through'")
    try:
        return int(value or 0)
    except ValueError:
        return 0


def trigram_mode(conn: apsw.Connection) -> str:
    """``"all"`` or ``"unspaced"``: which rows the trigram index holds (the file's own setting)."""
    value = scalar(conn, "SELECT value FROM state_meta WHERE key = 'hermes_state.trigram'")
    return value if value in TRIGRAM_MODES else "all"


def clear_forget(conn: apsw.Connection) -> None:
    """Empty the list of deleted messages: their entries are gone, with the tables or otherwise."""
    conn.execute("DELETE FROM state_meta WHERE key >= ? AND key < ?", FORGET_ENDS)


def set_meta(conn: apsw.Connection, key: str, value: str) -> None:
    """Write one ``state_meta`` row."""
    conn.execute(
        "INSERT INTO state_meta(key, value) VALUES (?, ?)"
        " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
