"""Message dicts to rows: the compiled encode kernel against its pure twin.

Run: ``python -m benchmarks.bench_kernel_encode``. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from hermes_state._fastpath import _encode_c as compiled
from hermes_state._fastpath import _encode_py as pure
from hermes_state._fastpath import _text_c, _text_py

from benchmarks import corpus
from benchmarks.kernel_ratio import Case, report

NOW = 1_700_000_000.0


def one_by_one(module: ModuleType) -> Any:
    """What ``append_message`` does: one message a call."""
    encode = module.encode_message

    def run(message: dict[str, Any]) -> Any:
        get = message.get
        return encode(
            *("s", get("role"), get("content"), get("tool_name"), get("tool_calls"), get("tool_call_id")),
            *(None, get("finish_reason"), get("reasoning"), None, None, None, None, NOW),
        )

    return run


def batches(module: ModuleType) -> Any:
    return lambda batch: module.encode_messages("s", batch, NOW)


def main() -> int:
    sessions = [
        [
            {key: item for key, item in message.items() if key != "timestamp"}
            for message in session["messages"]
        ]
        for session in corpus.build(6_000)
    ]
    messages = [message for session in sessions for message in session]
    texts = [message["content"] for message in messages if isinstance(message["content"], str)]
    return report(
        [
            Case("encode_message: compiled / pure", one_by_one(compiled), one_by_one(pure), messages, 0.5),
            Case("encode_messages: compiled / pure", batches(compiled), batches(pure), sessions, 0.5),
            Case("text.clean: compiled / pure", _text_c.clean, _text_py.clean, texts, 0.5),
        ]
    )


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
