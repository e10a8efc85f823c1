"""Golden files of the kernels: what each twin writes, for the other twin to read.

    python tools/make_golden.py [--check]

Writes ``tests/golden/compiled.json`` and ``tests/golden/pure.json``, each by its own
twin from the samples below and the package's sample conversations: the rows that are
bound, JSON text, searchable texts and FTS5 queries. ``--check`` writes nothing and
fails where a file is not what the twin writes now. A change of these files is a change
of the format on disk or of what is searched: say so in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
CONVERSATIONS = ROOT / "src" / "hermes_state" / "cli" / "sample" / "conversations.jsonl"
SESSIONS = 6
"""Sample conversations of which rows are kept."""

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "\u6587\u4ef6"}'},
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "plain"},
    {"role": "user", "content": ""},
    {"role": "user", "content": None},
    {"role": "user", "content": "\x00json:[1]"},
    {"role": "user", "content": "NUL \x00 inside, lone \ud83d and pair \ud83d\ude00"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "\u4fee\u6539youer"}, {"type": "image_url", "n": None}],
    },
    {
        "role": "user",
        "content": {"nested": [[[{"deep": True}]]], "float": 1e-7, "big": 2**70, "lone": "\udc00"},
    },
    {"role": "user", "content": 5},
    {"role": "user", "content": True},
    {"role": "user", "content": 2.5},
    {"role": "assistant", "content": "x", "tool_calls": [CALL, CALL], "finish_reason": "tool_calls"},
    {"role": "assistant", "tool_calls": '[{"id": "as text"}]', "reasoning": "why", "reasoning_content": ""},
    {"role": "assistant", "content": "x", "tool_calls": "no JSON", "token_count": 7},
    {"role": "assistant", "reasoning_details": [{"a": [float("nan"), float("inf")]}]},
    {"role": "assistant", "codex_reasoning_items": [{"i": 1}], "codex_message_items": {"j": "\u00e9"}},
    {
        "role": "tool",
        "content": "<memory-context>kept</memory-context>",
        "tool_call_id": "c1",
        "tool_name": "t",
    },
    {"role": "system", "content": "when", "timestamp": 1_714_557_600},
    {},
]
QUERIES = (
    "hello world", '"exact phrase" deploy*', "chat-send my-app.config.ts", "python NOT java OR \u5e7f\u897f",
    "AND NOT docker",
    "100%\u9009\u54c1 src/main.py C++", "NEAR(a b) \"open", "a\x00b \ud800 \u4f60\u597d\uff0cworld",
)  # fmt: skip
COLUMNS: tuple[tuple[Any, Any, Any], ...] = (
    ("plain", None, None),
    ("\u4fee\u6539youer\u670d\u52a1\u7aef", "terminal", None),
    ('\x00json:[{"type": "text", "text": "part"}, {"text": {"value": "other"}}]', None, None),
    ("\x00json:[broken", None, None),
    (
        None,
        "t",
        '[{"arguments": "{\\"q\\": \\"\\\\u4e2d\\\\u6587\\"}", "e": "\\ud83d\\ude00 \\u0041 \\u0022"}]',
    ),
    ("NUL \x00", b"\xff", 5),
)
VALUES: tuple[Any, ...] = (
    *([], {}, None, True, 0, -(2**63), 2**64, 1.0, -0.0, 1e16, 5e-324, float("-inf"), '\u2028\x7f\x1f"\\/'),
    *({"b": 1, "a": [()]}, {2: 2, None: 3, True: 4, 1.5: 5}, b"\xff", "\ud83d\ude00", "\ud83d"),
)


def twin(kernel: str, kind: str) -> ModuleType:
    """The compiled (``kind`` "c") or pure ("py") twin of ``kernel``."""
    return importlib.import_module(f"hermes_state._fastpath._{kernel}_{kind}")


def batches() -> list[list[dict[str, Any]]]:
    """The messages above, and those of the first sample conversations."""
    with CONVERSATIONS.open(encoding="utf-8") as lines:
        sessions = [json.loads(line) for line, _ in zip(lines, range(SESSIONS), strict=False)]
    return [MESSAGES, *(session["messages"] for session in sessions)]


def written(kind: str) -> dict[str, Any]:
    """What one twin of every writing kernel makes of the samples."""
    encode, dumps = twin("encode", kind), twin("json_text", kind).dumps
    return {
        "rows": [encode.encode_messages("s", batch, 1.7e9) for batch in batches()],
        "json": [dumps(value) for value in VALUES],
        "searchable": [twin("searchable", kind).text(*columns) for columns in COLUMNS],
        "queries": [twin("query_text", kind).sanitize(query) for query in QUERIES],
        "groups": [twin("query_text", kind).groups(query) for query in QUERIES],
        "split": [twin("scripts", kind).split_mixed(str(columns[0])) for columns in COLUMNS],
        "clean": [twin("text", kind).clean(query) for query in QUERIES],
    }


def golden(kind: str) -> str:
    """The text of a golden file: JSON, one list item a line."""
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(item) for item in items) + "\n]"
        for name, items in written(kind).items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


FILES = {"c": GOLDEN / "compiled.json", "py": GOLDEN / "pure.json"}


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--check", action="store_true", help="compare only; 1 where a file differs")
    options = made.parse_args(given)
    differing = []
    for kind, path in FILES.items():
        text = golden(kind)
        if options.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                differing.append(path.name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in differing:
        print(f"tests/golden/{name} is not what its twin writes", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
