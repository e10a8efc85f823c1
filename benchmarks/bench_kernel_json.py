"""JSON of real tool calls and content lists, written and read: the kernels against the stdlib.

Run: ``python -m benchmarks.bench_kernel_json``. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hermes_state._fastpath import _json_parse_c as parse
from hermes_state._fastpath import _json_text_c as compiled
from hermes_state._fastpath import _json_text_py as pure

from benchmarks import corpus
from benchmarks.kernel_ratio import Case, report


def stdlib(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> int:
    messages = [message for session in corpus.build(6_000) for message in session["messages"]]
    calls = [message["tool_calls"] for message in messages if message.get("tool_calls")]
    lists = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    lists = lists or [[{"type": "text", "text": str(message["content"])}] for message in messages[:200]]
    written = [compiled.dumps(value) for value in calls]
    written_by_v11 = [json.dumps(value) for value in calls]
    cjk = [
        message.get("tool_calls") for session in corpus.build(3_000, "cjk") for message in session["messages"]
    ]
    cjk = [value for value in cjk if value]
    return report(
        [
            Case("tool calls: compiled / json.dumps", compiled.dumps, stdlib, calls, 0.5),
            Case("tool calls: compiled / pure", compiled.dumps, pure.dumps, calls, 0.5),
            Case("CJK tool calls: compiled / json.dumps", compiled.dumps, stdlib, cjk or calls, 0.5),
            Case("content lists: compiled / json.dumps", compiled.dumps, stdlib, lists, 0.5),
            Case(
                "100 KB of ASCII: compiled / json.dumps",
                compiled.dumps,
                stdlib,
                ["line of text\n" * 8000] * 20,
                0.5,
            ),
            # The limit of writing UTF-8 first: one long text is decoded once more at the end.
            Case(
                "100 KB of CJK: compiled / json.dumps",
                compiled.dumps,
                stdlib,
                ["广西桂林漓江" * 6000] * 20,
                2.0,
            ),
            Case("reading tool calls: compiled / json.loads", parse.loads, json.loads, written, 0.6),
            Case("reading v11's tool calls: same", parse.loads, json.loads, written_by_v11, 0.6),
        ]
    )


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
