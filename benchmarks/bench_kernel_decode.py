"""Stored rows to message dicts: the compiled decode kernel against its pure twin.

Run: ``python -m benchmarks.bench_kernel_decode``. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import sys
from typing import Any

from hermes_state._fastpath import _decode_c as compiled
from hermes_state._fastpath import _decode_py as pure
from hermes_state._fastpath import encode

from benchmarks import corpus
from benchmarks.kernel_ratio import Case, report

NAMES = ("id", *encode.COLUMNS)


def stored(sessions: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
    """The rows of each session, as a SELECT gives them."""
    return [
        [
            (index, *row[: len(encode.COLUMNS)])
            for index, row in enumerate(encode.encode_messages("s", session["messages"], 1.0))
        ]
        for session in sessions
    ]


def main() -> int:
    rows = stored(list(corpus.build(6_000)))
    order = [NAMES.index(name) for name in pure.CONVERSATION_COLUMNS]
    narrow = [[tuple(row[index] for index in order) for row in session] for session in rows]
    no_calls = [[row for row in session if row[NAMES.index("tool_calls")] is None] for session in rows]
    return report(
        [
            Case(
                "rows_to_messages: compiled / pure",
                lambda session: compiled.rows_to_messages(NAMES, session),
                lambda session: pure.rows_to_messages(NAMES, session),
                rows,
                0.5,
            ),
            Case(
                "rows_to_messages without tool calls",
                lambda session: compiled.rows_to_messages(NAMES, session),
                lambda session: pure.rows_to_messages(NAMES, session),
                no_calls,
                0.5,
            ),
            Case(
                "rows_to_conversation: compiled / pure",
                compiled.rows_to_conversation,
                pure.rows_to_conversation,
                narrow,
                0.5,
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
