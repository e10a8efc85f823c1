"""Compiled kernels against their pure twins, in this process.

Rows exist for the kernels that are compiled.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from .runner import Bench, Goal, Measure, Side, Values, repeated, row

CALLS = 200
"""Calls of the kernel in one timed piece."""


def _twin(kernel: str, twin: str) -> Any:
    return importlib.import_module(f"hermes_state._fastpath._{kernel}_{twin}")


def _timed(call: Callable[[], Any]) -> Values:
    def piece() -> None:
        for _ in range(CALLS):
            call()

    return repeated(piece, CALLS * 1e-6, seconds=0.05)


def _kernel(
    name: str, kernel: str, most: float, call: Callable[[Any], Any], against: str = "pure twin"
) -> None:
    if find_spec(f"hermes_state._fastpath._{kernel}_c") is None:
        return

    def other(bench: Bench, side: Side) -> Values:
        return _timed(_dumped if against == "json.dumps" else lambda: call(_twin(kernel, "py")))

    @row(
        f"{name}, {against}", "kernels", Measure("time", "us", Goal(most=most)), short=True,
        against=against, baseline=other,
    )  # fmt: skip
    def run(bench: Bench, side: Side) -> Values:
        return _timed(lambda: call(_twin(kernel, "c")))


QUERY = 'docker AND "error message" OR 广西 NOT wrong-book deploy* src/main.py 50% of $5'
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "terminal", "arguments": json.dumps({"command": "ls -la", "q": "中文参数" * 20})},
}
_chance = random.Random(3)
LATIN = " ".join("".join(_chance.choices("abcdefghié", k=6)) for _ in range(1_500))[:10_000]
MIXED = "修改youer服务端的计划 and more words " * 20


def _dumped() -> str:
    return json.dumps([CALL, CALL])


def _names() -> tuple[str, ...]:
    return (
        "id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp",
        "token_count", "finish_reason", "reasoning", "reasoning_content", "reasoning_details",
        "codex_reasoning_items", "codex_message_items",
    )  # fmt: skip


_ROWS = [
    (number, "s", "user", "an answer of ordinary length", None, None, None, 1.5e9 + number, *(None,) * 7)
    for number in range(50)
]

_kernel("query text", "query_text", 0.12, lambda twin: twin.sanitize(QUERY))
_kernel("JSON text of tool calls", "json_text", 0.5, lambda twin: twin.dumps([CALL, CALL]), "json.dumps")
_kernel("rows to message dicts", "decode", 0.5, lambda twin: twin.rows_to_messages(_names(), _ROWS))
_kernel("script test of a 10 KB text", "scripts", 0.03, lambda twin: twin.has_unspaced(LATIN))
_kernel("searchable text of a message", "searchable", 0.2, lambda twin: twin.text(MIXED, "terminal", None))
