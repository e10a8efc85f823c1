"""Columns: what SCHEMA_SQL asks for, what a file has, and adding the difference."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import apsw

from hermes_state.schema.ddl import TABLES_SQL

log = logging.getLogger("hermes_state")

Columns = dict[str, dict[str, str]]
"""Table name -> column name -> its declaration after the name, as ALTER TABLE takes it."""


def parse_schema_columns(sql: str) -> Columns:
    """The columns of every table that the script ``sql`` creates.

    SQLite itself parses the script, in a private in-memory database, so that
    any spelling it accepts is understood.

    Raises:
        apsw.SQLError: the script is not valid SQL.
    """
    conn = apsw.Connection(":memory:")
    try:
        conn.execute(sql)
        tables = conn.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        ).fetchall()
        return {str(name): _declared(conn, str(name)) for (name,) in tables}
    finally:
        conn.close()


def _declared(conn: apsw.Connection, table: str) -> dict[str, str]:
    declared: dict[str, str] = {}
    row: tuple[Any, ...]
    for row in conn.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,)
    ):
        name, kind, notnull, default, key = row
        parts = [kind] if kind else []
        if notnull and not key:
            parts.append("NOT NULL")
        if default is not None:
            parts.append(f"DEFAULT {default}")
        declared[name] = " ".join(parts)
    return declared


EXPECTED: Columns = parse_schema_columns(TABLES_SQL)

_LIVE_SQL = """
SELECT m.name, c.name, m.sql FROM sqlite_master AS m, pragma_table_info(m.name) AS c
WHERE m.type = 'table' AND m.name IN ('sessions', 'messages', 'state_meta', 'schema_version')
"""


_known: dict[tuple[str, ...], frozenset[tuple[str, str]]] = {}
"""CREATE TABLE texts, as files hold them -> their (table, column) pairs, as SQLite read them."""
_MOST_KNOWN = 64


def missing_columns(conn: apsw.Connection, texts: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """The (table, column) pairs of SCHEMA_SQL that the file lacks; a table that is absent counts whole.

    ``texts``: the CREATE TABLE texts of the file by name, where the caller has them. SQLite need not be
    asked again for the columns of texts that this process has met before.
    """
    live = None if texts is None else _known.get(tuple(texts.get(table, "") for table in EXPECTED))
    if live is None:
        found = [(str(table), str(name), str(text)) for table, name, text in conn.execute(_LIVE_SQL)]
        live = frozenset((table, name) for table, name, _ in found)
        if len(_known) < _MOST_KNOWN:
            # The texts of the same moment: another process may be adding columns.
            now = {table: text for table, _, text in found}
            _known[tuple(now.get(table, "") for table in EXPECTED)] = live
    return [(table, name) for table, names in EXPECTED.items() for name in names if (table, name) not in live]


def reconcile_columns(conn: apsw.Connection) -> list[str]:
    """Add every missing column to the tables that are there; the names added, as ``table.column``.

    Only "duplicate column name" is passed over: another program added it first.
    """
    added = []
    for table, name in missing_columns(conn):
        declaration = EXPECTED[table][name]
        if "NOT NULL" in declaration and "DEFAULT" not in declaration:
            # ALTER TABLE refuses NOT NULL without a default on a table with rows.
            declaration += " DEFAULT 0" if declaration.startswith(("REAL", "INTEGER")) else " DEFAULT ''"
        try:
            conn.execute(f'ALTER TABLE "{table}" ADD COLUMN "{name}" {declaration}')
        except apsw.SQLError as error:
            if "duplicate column name" not in str(error):
                raise
            continue
        added.append(f"{table}.{name}")
    if added:
        log.info("added missing columns: %s", ", ".join(added))
    return added
