"""Values of every kind that callers hand to the message kernels, for the tests of the twins."""

from __future__ import annotations

import datetime
import enum
import json
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import corpus
from hypothesis import strategies as st


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not " + "this"


class Whole(int):
    def __repr__(self) -> str:
        return "not this"


class Real(float):
    def __repr__(self) -> str:
        return "not this"


class Items(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(["not this"])


class Pairs(dict[Any, Any]):
    pass


class BrokenPairs(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


class OddPairs(dict[Any, Any]):
    def items(self) -> Any:
        return [("only one",), 5]


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    HI = "hi"


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __bool__(self) -> bool:
        raise RuntimeError("neither")


class Strange:
    """Claims to be a str, and has a text that is no exact str and cannot be UTF-8."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return str

    def __str__(self) -> str:
        return Text("strange \ud800")


class Index:
    def __index__(self) -> int:
        return 7


class BrokenIndex:
    def __index__(self) -> int:
        raise ValueError("no index")


Point = namedtuple("Point", "x y")

RELEASED = memoryview(b"abc")
RELEASED.release()

ODD: list[Any] = [
    "",
    "\x00",
    "\x00json:[1]",
    "\x00json:",
    "\ud83c\udf89 pair",
    "lone \ud83d",
    "\udc00\ud800",
    "é\ud800\U0001f600\x00\x1f\x7f",
    '"\\\b\f\n\r\t/',
    "x" * 31 + '"' + "y" * 9 + "\\",
    Text("sub \ud800"),
    Word.HI,
    0,
    -1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    10**4299,
    10**5000,
    -(10**5000),
    True,
    False,
    Whole(5),
    Whole(2**70),
    Whole(10**5000),
    Colour.RED,
    0.0,
    -0.0,
    1e16,
    1e-7,
    5e-324,
    1.7976931348623157e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    Real(1.5),
    Real("nan"),
    None,
    [],
    {},
    (),
    Items([1, "two"]),
    Pairs(a=1),
    BrokenPairs(a=1),
    OddPairs(a=1),
    OrderedDict(b=1, a=2),
    UserDict(a=1),
    Point(1, "y"),
    {2: 1, None: 3, True: 4, 1.5: 5, float("nan"): 6, float("-inf"): 7, (1, 2): 8, b"k": 9},
    {Text("k\ud800"): 1, Whole(7): 2, Real(2.5): 3, Colour.RED: 4, Word.HI: 5, 10**5000: 6, "\udc00": 7},
    b"",
    b"caf\xc3\xa9 \xff",
    b"\x00json:[1]",
    bytearray(b"ab"),
    memoryview(b"abcd")[::2],
    RELEASED,
    {1},
    frozenset(),
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 2),
    Decimal("1.50"),
    Fraction(1, 3),
    Fraction(10**5000),
    1 + 2j,
    Mute(),
    Mute,
    Strange(),
    Index(),
    BrokenIndex(),
    range(3),
    ...,
    "[1, NaN]",
    '{"a": -Infinity}',
    "[NaN",
    "[]",
    "{}",
    " [1, 2] ",
    "[1] x",
    "5",
    "null",
    '"text"',
    "[" * 5000,
    '["' + "\ud83d" + '"]',
    '{"\ud83c\udf89": "\udc00"}',
    "\ufeff[1]",
    "[" + "1" * 5000 + "]",
    "2024-05-01T10:00:00Z",
    "2024-05-01T10:00:00+09:00",
    "20240501",
    "0001-01-01",
    "9999-12-31T23:59:59-23:59",
    "yesterday",
]

surrogates = st.integers(0xD800, 0xDFFF).map(chr)
texts = st.text(st.one_of(st.characters(), st.characters(max_codepoint=0x7F), surrogates), max_size=40)
plain_texts = st.text(max_size=40)
json_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain_json = st.recursive(
    json_scalars | plain_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain_texts, inner, max_size=4),
    max_leaves=12,
)


def odd_value(index: int) -> Any:
    return ODD[index]


# By index: some have no repr, which sampled_from asks for.
odd_values = st.integers(0, len(ODD) - 1).map(odd_value)
scalars = json_scalars | st.floats() | texts | st.binary(max_size=8) | odd_values
keys = texts | st.integers() | st.floats() | st.booleans() | st.none() | st.binary(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=3).map(Items)
        | st.dictionaries(texts, inner, max_size=3).map(Pairs)
    ),
    max_leaves=10,
)


@cache
def corpus_messages() -> tuple[dict[str, Any], ...]:
    """Some thousand real messages of all kinds: every session of the odd file, a share of the others."""
    sessions = [
        *corpus.sessions("odd"),
        *corpus.sessions("agent", limit=150),
        *corpus.sessions("cjk", limit=60),
    ]
    return tuple(message for session in sessions for message in session["messages"])


def nested(depth: int, kind: type = list) -> Any:
    """Lists or dicts nested ``depth`` levels deep."""
    value: Any = kind()
    for _ in range(depth - 1):
        value = [value] if kind is list else {"k": value}
    return value


def as_json(value: Any) -> Any:
    """``value`` as the JSON parser gives it back, by the stdlib alone."""
    return json.loads(json.dumps(value))
