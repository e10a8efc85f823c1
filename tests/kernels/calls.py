"""Calls of every function of every kernel, with values and with what is refused, for the tests of memory.

The first call of each kernel stays in the compiled twin from beginning to end.
"""

from __future__ import annotations

from typing import Any

VALUE: dict[str, Any] = {
    "a": [1, 2.5, "\u00e9\ud800x" * 30, {"k" * 40: None, "b": "x\n" * 300, "c": (True, -(2**60))}],
    "content": [{"type": "text", "text": "hello \u4fee\u6539"}, {"text": {"value": "x" * 500}}],
}
"""A value with something of all that the kernels write themselves."""

ODD: list[Any] = [float("nan"), object, 10**400, 3j, b"x", VALUE]
"""One with what they leave to the pure twin."""

JSON = (
    '{"a": [1, -2.5e3, "x\\u00e9\\ud83d\\ude00\\n", null, true, {"'
    + "k" * 40
    + '": {}}], "\u4e2d": "\u00e9"}'
)
MARKED = "\x00json:" + JSON
MEMORY = "a<memory-context>b</memory-context>c [System note: x] " + "\u4e2d" * 50
QUERY = 'docker AND "error message" OR \u5e7f\u897f NOT wrong-book deploy* src/main.py 9:30 a\ud800b "x"*'
CALLS = '[{"function": {"arguments": "{\\"q\\": \\"\\\\u4e2d\\\\u6587 \\\\ud83d\\\\ude00\\"}"}}]'
GROUPS = [
    [(False, (("word", "a"),)), (True, (("phrase", 'b "c'), ("prefix", "d")))],
    [(False, (("word", "AND"),))],
]
MESSAGE = {
    "role": "assistant",
    "content": VALUE,
    "tool_calls": [VALUE],
    "reasoning": "r\ud800",
    "token_count": 3,
}
NAMES = ("id", "content", "tool_calls", "more")
ROWS: list[Any] = [
    (1, MARKED, JSON, 1.5),
    (2, "plain", "[", b"x"),
    [3, MARKED[:-1], None, "y"],
    (4, None, "", 0),
]
SPOKEN: list[Any] = [
    ("assistant", MEMORY, "c", "t", JSON, "stop", "why", "", JSON, "[", JSON),
    ("user", MARKED, *[None] * 9),
    ["tool", "x", *[None] * 9],
]
WIDE = "\u4fee\u6539you\u0301er\u670d\u52a1\u7aef " * 40 + "\U0001f600"
FIELDS = ("s", "user", VALUE, "t", [VALUE], "c", 5, "stop", "r\ud800", "r", ODD, [VALUE], "[1]", 1.5)

GIVEN: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "decode": [
        ("rows_to_messages", (NAMES, [(1, MARKED, JSON, 1.5), (2, "plain", None, b"x")])),
        ("rows_to_messages", (NAMES, ROWS)),
        ("rows_to_messages", (NAMES, [*ROWS, (1,)])),
        ("rows_to_messages", (NAMES, [*ROWS, 5])),
        ("rows_to_conversation", (SPOKEN,)),
        ("rows_to_conversation", ([*SPOKEN, (1, 2)],)),
        ("strip_memory", (MEMORY,)),
        ("strip_memory", (5,)),
    ],
    "encode": [
        (
            "encode_message",
            ("s", "user", VALUE, "t", [VALUE], "c", 5, "stop", "r", "r", [VALUE], None, {}, 1.5),
        ),
        ("encode_content", (VALUE,)),
        ("encode_content", (ODD,)),
        ("encode_content", (MARKED,)),
        ("decode_content", (MARKED,)),
        ("decode_content", (MARKED[:-1],)),
        ("encode_json_column", (VALUE,)),
        ("encode_json_column", (JSON,)),
        ("encode_json_column", ("[NaN]",)),
        ("count_tool_calls", (CALLS,)),
        ("encode_message", FIELDS),
        ("encode_message", (*FIELDS[:6], "no number", *FIELDS[7:])),
        ("encode_messages", ("s", [MESSAGE, {"content": MEMORY, "other": 1}], 1.0)),
        ("encode_messages", ("s", [MESSAGE, {"timestamp": []}], 1.0)),
        ("encode_messages", ("s", [MESSAGE, "text"], 1.0)),
        ("encode_messages", (5, [MESSAGE], None)),
    ],
    "json_parse": [
        ("loads", (JSON,)),
        ("loads", (MARKED, 6)),
        ("loads", (JSON[:-1],)),
        ("loads", ("[1, NaN, " + "9" * 30 + "]",)),
        ("loads", ('["' + "\\n\u4e2d" * 3000 + '"]',)),
        ("loads", ('["' + "\\n" * 3000,)),
        ("loads", ("[" * 300,)),
        ("loads", (b"[1]",)),
        ("loads", (5,)),
    ],
    "json_text": [
        ("dumps", (VALUE,)),
        ("dumps", (ODD,)),
        ("dumps", (["x\u4e2d\n" * 3000, VALUE],)),
        ("escape_surrogates", ("a\ud800b",)),
    ],
    "query_text": [
        ("tokenize", (QUERY,)),
        ("groups", (QUERY,)),
        ("sanitize", (QUERY,)),
        ("sanitize", ("x" * 9_990 + " docker compose",)),
        ("match_string", (GROUPS,)),
        ("match_string", ([[5]],)),
        ("sanitize", (5,)),
    ],
    "scripts": [
        *((name, (WIDE,)) for name in ("has_unspaced", "count_cjk", "runs", "has_mixed", "split_mixed")),
        *((name, (5,)) for name in ("has_unspaced", "count_cjk", "runs", "has_mixed", "split_mixed")),
    ],
    "searchable": [
        ("text", ("plain \u4fee", "name", CALLS)),
        ("text", (MARKED, "name", CALLS)),
        ("text", (MARKED[:-1] + "\ud800", b"na\xffme", 5)),
        ("text", (VALUE, None, None)),
        ("is_plain", ("x", WIDE, CALLS)),
        ("parts", (VALUE,)),
        ("parts", (ODD,)),
    ],
    "text": [
        ("clean", ("\u4fee",)),
        ("clean", ("a\ud800\ud83d\ude00",)),
        ("clean", (5,)),
        ("fallback", (3j,)),
        ("fallback", (object,)),
    ],
}
