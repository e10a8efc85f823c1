"""The key and value pairs of ``state_meta``."""

from __future__ import annotations

from typing import Any

import apsw

from hermes_state.store.rows import scalar
from hermes_state.store.values import required_text, text


def get(conn: apsw.Connection, key: str) -> str | None:
    """The value of ``key``, or None; a value of another type is given as text."""
    value = scalar(conn, "SELECT CAST(value AS TEXT) FROM state_meta WHERE key = ?", (text(key, "key"),))
    return None if value is None else str(value)


def set(conn: apsw.Connection, key: str, value: Any) -> None:  # noqa: A001 -- the pair of `get`
    """Store ``value`` (text, a number or None) under ``key``.

    Raises:
        TypeError: ``key`` is not a str, or ``value`` is of another type.
    """
    conn.execute(
        "INSERT INTO state_meta(key, value) VALUES (?, ?) "
        "ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        (required_text(key, "key"), text(value, "value")),
    )
