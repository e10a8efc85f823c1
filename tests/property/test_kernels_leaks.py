"""The compiled message kernels leave no memory behind, neither when they succeed nor when they refuse."""

from __future__ import annotations

import subprocess
import sys

from property.twins import both

PROGRAM = """
import contextlib, gc, sys
from hermes_state._fastpath import decode, encode, json_parse, json_text, text

value = {"a": [1, 2.5, "\\u00e9\\ud800x" * 300, {"k" * 40: None}], "b": "x\\n" * 3000}
written = json_text.dumps(value)
odd = [float("nan"), object, 10**400, {1, 2}, b"x"]

def once():
    json_text.dumps(value)
    json_text.dumps(odd)
    json_parse.loads(written)
    text.clean("a\\ud800")
    for broken in (written[:-1], "[1,", "[NaN x", '["\\\\u12', "[" * 300):
        with contextlib.suppress(ValueError):
            json_parse.loads(broken)
    batch = [{"role": "assistant", "content": [value], "tool_calls": [value]}, {"content": "x"}]
    rows = [row[:14] for row in encode.encode_messages("s", batch, 1.0)]
    for refused in ([{"role": 5}], [{"timestamp": []}], ["text"]):
        with contextlib.suppress(TypeError):
            encode.encode_messages("s", refused, 1.0)
    decode.rows_to_messages(encode.COLUMNS, rows)
    order = [encode.COLUMNS.index(name) for name in decode.CONVERSATION_COLUMNS]
    decode.rows_to_conversation([tuple(row[index] for index in order) for row in rows])

def blocks(rounds):
    for _ in range(rounds):
        once()
    gc.collect()
    return sys.getallocatedblocks()

blocks(50)
before = blocks(50)
print(blocks(500) - before)
"""


def test_five_hundred_rounds_allocate_nothing_that_stays() -> None:
    assert both("decode")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert abs(int(done.stdout)) < 100
