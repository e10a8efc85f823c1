"""Searchable text of stored messages: compiled against pure.

Run: ``python -m benchmarks.bench_kernel_searchable``. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hermes_state._fastpath import _searchable_c as compiled
from hermes_state._fastpath import _searchable_py as pure

from benchmarks import corpus
from benchmarks.kernel_ratio import Case, report

Row = tuple[str | None, str | None, str | None]


def _row(message: dict[str, Any], *, escaped: bool) -> Row:
    content = message.get("content")
    if isinstance(content, list):
        content = "\x00json:" + json.dumps(content, ensure_ascii=escaped)
    calls = message.get("tool_calls")
    return content, message.get("tool_name"), json.dumps(calls, ensure_ascii=escaped) if calls else None


def _compiled(row: Row) -> str:
    return compiled.text(*row)  # type: ignore[no-any-return]


def _pure(row: Row) -> str:
    return pure.text(*row)


def main() -> int:
    messages = [message for session in corpus.build(6_000) for message in session["messages"]]
    rows = [_row(message, escaped=False) for message in messages]
    plain = [row for row in rows if pure.is_plain(*row)]
    short = [row for row in plain if len(row[0] or "") < 2_000]
    calls = [("", None, json.dumps([{"arguments": json.dumps({"q": "中文参数广西" * 20})}]))] * 500
    lists = [row for row in rows if row[0] and row[0].startswith("\x00json:")] or rows[:200]
    # The wrappers that spread a row over three arguments cost both sides some 0.1 us a call.
    return report(
        [
            Case("plain rows under 2,000 characters", _compiled, _pure, short, 0.2),
            # Long rows are bound by the copy of their text, which both make.
            Case("plain rows", _compiled, _pure, plain, 0.5),
            Case("escaped tool calls", _compiled, _pure, calls, 0.2),
            # Both read the list with stdlib json, which is most of it.
            Case("content lists", _compiled, _pure, lists, 1.1),
            Case(
                "is_plain", lambda row: compiled.is_plain(*row), lambda row: pure.is_plain(*row), rows, 0.25
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
