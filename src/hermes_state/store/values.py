"""What is bound for a caller's value: text, numbers, and lists as one JSON array."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import apsw

from hermes_state._fastpath.text import clean

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)


def required_text(value: Any, name: str) -> str:
    """``value`` as text that SQLite can store; raises TypeError naming ``name`` if it is not a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return clean(value)


def text(value: Any, name: str) -> str | None:
    """``value`` as text or None; numbers become their digits, as a TEXT column would make them.

    Raises:
        TypeError: any other type.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"{name} must be a str or None, not {type(value).__name__}")


def count(value: Any, name: str) -> int:
    """A number of tokens, messages or calls; None counts as 0, a float must be a whole number.

    Raises:
        TypeError: not a number, or not a whole one.
        OverflowError: it does not fit in 64 bits.
    """
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number or None, not {value!r:.60}")
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError(f"{name} does not fit in 64 bits")
    return int(value)


def cost(value: Any, name: str) -> float | None:
    """An amount in US dollars or None; NaN counts as None, because SQLite stores it as NULL.

    Raises:
        TypeError: not a number.
        ValueError: infinite.
    """
    if value is None:
        return None
    if not isinstance(value, int | float | Decimal):
        raise TypeError(f"{name} must be a number or None, not {type(value).__name__}")
    amount = float(value)
    if math.isinf(amount):
        raise ValueError(f"{name} must be finite")
    return None if math.isnan(amount) else amount


def bound(value: int) -> int:
    """``value`` (a limit or an offset) brought into SQLite's 64 bits."""
    return max(INT64_MIN, min(INT64_MAX, int(value)))


def json_list(values: Iterable[Any]) -> str:
    """The strings and integers of ``values`` as one JSON array, to be read with ``json_each(?)``.

    Values of other types can equal no text id, so they are left out.
    """
    return json.dumps([clean(v) if isinstance(v, str) else v for v in values if isinstance(v, str | int)])


def json_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """``pairs`` as one JSON array of two-element arrays."""
    return json.dumps(list(pairs))


def has_table(conn: apsw.Connection, name: str) -> bool:
    """True if the main database has the table ``name``."""
    found = conn.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone()
    return found is not None
