"""SQL for what the full-text tables hold of a message row, and for how far they have come."""

from __future__ import annotations

from typing import Final

from hermes_state._fastpath import searchable

from .tables import META_TRIGRAM, META_WATERMARK

NEWEST: Final = "(SELECT max(id) FROM messages)"
WATERMARK: Final = (
    "COALESCE((SELECT CAST(value AS INTEGER) FROM state_meta"  # noqa: S608 - constant text
    f" WHERE key = '{META_WATERMARK}'), 0)"
)
"""The id through which every message is indexed."""
ALL_TRIGRAM: Final = (
    "COALESCE((SELECT value FROM state_meta"  # noqa: S608 - constant text
    f" WHERE key = '{META_TRIGRAM}'), 'all') <> 'unspaced'"
)
"""Whether the trigram table is to hold every row."""
_COLUMNS: Final = ("content", "tool_name", "tool_calls")


def v11_text(row: str) -> str:
    """The text of ``row`` (an alias) as v11's triggers index it."""
    return " || ' ' || ".join(f"COALESCE({row}.{name}, '')" for name in _COLUMNS)


def stored_bytes(row: str) -> str:
    """The bytes of that text without its spaces; no page of a long value is read for it."""
    return " + ".join(f"COALESCE(octet_length({row}.{name}), 0)" for name in _COLUMNS)


def plain(row: str) -> str:
    """True for a message that SQL alone can tell to be ASCII that is indexed as ``v11_text``."""
    # ASCII without NUL, by lengths: octets equal characters (length() stops at a NUL, octets do not).
    ascii_only = " AND ".join(
        f"({row}.{name} IS NULL OR (typeof({row}.{name}) <> 'blob'"
        f" AND octet_length({row}.{name}) = length({row}.{name})))"
        for name in _COLUMNS
    )
    short = f"{stored_bytes(row)} + 2 <= {searchable.MAX_INDEXED_CHARS}"
    return rf"({ascii_only} AND {short} AND instr(COALESCE({row}.tool_calls, ''), '\u') = 0)"


def stands(table: str, row_id: str) -> str:
    """Whether the full-text ``table`` holds the row of that id."""
    return f"EXISTS (SELECT 1 FROM {table}_docsize d WHERE d.id = {row_id})"  # noqa: S608 - names of ours


def taken(after: str, upto: str, rows: str, size: str) -> str:
    """A query for the ids that a step takes, in order.

    Above ``after`` up to ``upto``, at most ``rows`` and no more than ``size`` bytes of text beyond the first.
    """
    return f"""
    SELECT id FROM (
        SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS total FROM (
            SELECT m.id, {stored_bytes("m")} AS bytes FROM messages m
            WHERE m.id > {after} AND m.id <= {upto} ORDER BY m.id LIMIT {rows}
        )
    ) WHERE total - bytes < {size}
    """  # noqa: S608 - the parts are constants of this package
