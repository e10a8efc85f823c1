"""Storing once what a caller sends twice.

A caller that does not know whether its append arrived (a timeout, a restart)
sends it again with the same key. The key is kept, with the ids it got, in a
table of ours, in the transaction of the append itself; the second call finds
it and gets the same ids. A key belongs to one session and lives as long as
its messages: when they are gone, the key stores anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from hermes_state._fastpath.text import clean
from hermes_state.store import message_writes
from hermes_state.store.message_writes import Row

Outcome = list[int] | BaseException


class KeyedRows(tuple[Row, ...]):
    """The rows of one caller, with the key under which they are stored once."""

    key: str

    @classmethod
    def of(cls, rows: Sequence[Row], key: str) -> KeyedRows:
        """``rows`` under ``key``.

        Raises:
            TypeError: the key is not a str.
        """
        if not isinstance(key, str):
            raise TypeError(f"idempotency_key must be a str, not {type(key).__name__}")
        keyed = cls(rows)
        keyed.key = clean(key)
        return keyed


def insert_group(conn: apsw.Connection, groups: Sequence[Sequence[Row]]) -> list[Outcome]:
    """Like ``message_writes.insert_group``; of rows with a key that is known already, the ids it has."""
    plain = [index for index, group in enumerate(groups) if not isinstance(group, KeyedRows)]
    outcomes: list[Any] = [None] * len(groups)
    for index, outcome in zip(
        plain, message_writes.insert_group(conn, [groups[index] for index in plain]), strict=True
    ):
        outcomes[index] = outcome
    for index, group in enumerate(groups):
        if isinstance(group, KeyedRows):
            outcomes[index] = _insert_once(conn, group)
    return outcomes


def _insert_once(conn: apsw.Connection, group: KeyedRows) -> Outcome:
    session_id = group[0][0]
    known = _find(conn, session_id, group.key)
    if known is not None:
        return known
    outcome = message_writes.insert_group(conn, [group])[0]
    if isinstance(outcome, list):
        conn.execute(
            "INSERT OR REPLACE INTO hs_idempotency(session_id, key, first_id, rows) VALUES (?, ?, ?, ?)",
            (session_id, group.key, outcome[0], len(outcome)),
        )
    return outcome


def _find(conn: apsw.Connection, session_id: str, key: str) -> list[int] | None:
    """The ids that were stored under ``key``, if their messages are still there."""
    row: Any = conn.execute(
        "SELECT k.first_id, k.rows FROM hs_idempotency k JOIN messages m ON m.id = k.first_id"
        " WHERE k.session_id = ? AND k.key = ? AND m.session_id = k.session_id",
        (session_id, key),
    ).fetchone()
    return None if row is None else list(range(row[0], row[0] + row[1]))


def forget_sessions(conn: apsw.Connection, ids_json: str) -> None:
    """Drop the keys of sessions (a JSON array of ids) that are being deleted."""
    conn.execute(
        "DELETE FROM hs_idempotency WHERE session_id IN (SELECT value FROM json_each(?))", (ids_json,)
    )
