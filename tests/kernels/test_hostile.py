"""Objects whose methods lie, raise or change what is read: the twins do alike, and nothing crashes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from property.kernel_values import nested
from property.twins import both, outcome, same, same_fresh, shape


class Liar(str):
    """Every method that a kernel could ask lies or raises."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("asked")

    __contains__ = __iter__ = __getitem__ = __add__ = __mod__ = __format__ = _raise
    startswith = endswith = strip = lstrip = encode = replace = find = isascii = join = split = rsplit = (
        _raise
    )

    def __str__(self) -> str:
        return "lie"

    __repr__ = __str__

    def __len__(self) -> int:
        return 10**9

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return str.__hash__(self)


class LyingList(list[Any]):
    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("asked")

    __iter__ = __getitem__ = __reversed__ = copy = __contains__ = _raise

    def __len__(self) -> int:
        return 10**9

    def __bool__(self) -> bool:
        return True


class LyingTuple(tuple[Any, ...]):
    def __iter__(self) -> Iterator[Any]:
        return iter(["lie"] * 3)

    def __len__(self) -> int:
        return -1

    def __bool__(self) -> bool:
        return True


class LyingDict(dict[Any, Any]):
    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("asked")

    __iter__ = __getitem__ = keys = values = get = __contains__ = _raise

    def items(self) -> Any:
        return 7

    def __len__(self) -> int:
        return 10**9

    def __bool__(self) -> bool:
        return True


class NoMapping(dict[Any, Any]):
    """A mapping whose ``get`` gives what nobody asked for."""

    def get(self, _key: Any, _default: Any = None) -> Any:
        return Liar("x")


class Alike:
    """Equal to every other of its class, so that what two calls passed on can be compared."""

    def __repr__(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return 1


class Acting(Alike):
    """Does something when its text or its truth is asked for."""

    def __init__(self, act: Callable[[], Any], text: str = "acted") -> None:
        self.act = act
        self.text = text

    def __str__(self) -> str:
        self.act()
        return self.text

    def __bool__(self) -> bool:
        self.act()
        return True


class NoText(Alike):
    def __str__(self) -> Any:
        return 5


class NoTruth(Alike):
    def __bool__(self) -> Any:
        return "yes"


class Key:
    """Acts when it is compared with a text that has its hash."""

    def __init__(self, name: str, act: Callable[[], Any]) -> None:
        self.name = name
        self.act = act

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if type(other) is Key:
            return True
        self.act()
        return False


def nothing() -> None:
    """An act that does nothing."""


def fail() -> None:
    raise LookupError("mine")


LIARS: list[Callable[[], Any]] = [
    lambda: Liar("text \ud800\u4e2d"),
    lambda: Liar("\x00json:[1]"),
    lambda: Liar(""),
    lambda: Liar('["data:x;base64,"]'),
    lambda: LyingList([1, "two", Liar("three")]),
    lambda: LyingTuple((1, "two")),
    lambda: LyingDict(text="t", content=["c", LyingDict(text=LyingDict(value="v"))]),
    lambda: {"text": Liar("x"), Liar("content"): LyingList(["y"])},
    NoText,
    NoTruth,
    lambda: [NoText(), {NoText(): NoTruth()}],
    lambda: Acting(fail),
    lambda: [Acting(fail)],
    lambda: {Key("text", fail): 1, "k": Acting(fail)},
    lambda: 10**5000,
    lambda: [10**5000, {-(10**5000): 10**5000}],
    lambda: nested(201),
    lambda: nested(5000, dict),
]

ONE_VALUE = [
    ("text", "clean"), ("text", "fallback"), ("json_text", "dumps"), ("json_text", "escape_surrogates"),
    ("json_parse", "loads"), ("encode", "encode_content"), ("encode", "decode_content"),
    ("encode", "encode_json_column"), ("encode", "count_tool_calls"), ("decode", "strip_memory"),
    ("decode", "rows_to_conversation"), ("query_text", "tokenize"), ("query_text", "groups"),
    ("query_text", "sanitize"), ("query_text", "match_string"), ("scripts", "has_unspaced"),
    ("scripts", "count_cjk"), ("scripts", "runs"), ("scripts", "has_mixed"), ("scripts", "split_mixed"),
    ("searchable", "parts"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "function"), ONE_VALUE)
@pytest.mark.parametrize("make", LIARS, ids=range(len(LIARS)))
def test_a_value_that_lies_gets_the_same_answer(kernel: str, function: str, make: Callable[[], Any]) -> None:
    if function == "match_string":
        same_fresh(kernel, function, lambda: ([[(False, (("word", make()),))]],))
        same_fresh(kernel, function, lambda: ([[(make(), (("word", "x"),))]],))
    same_fresh(kernel, function, lambda: (make(),))


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("make", LIARS, ids=range(len(LIARS)))
def test_a_column_that_lies_gets_the_same_answer(place: int, make: Callable[[], Any]) -> None:
    def columns() -> tuple[Any, ...]:
        return tuple(make() if at == place else "x" for at in range(3))

    same_fresh("searchable", "text", columns)
    same_fresh("searchable", "is_plain", columns)


def row_with(kind: type, at: int, make: Callable[[], Any]) -> Any:
    """A row of ``kind`` that holds at ``at`` what ``make`` makes."""
    row: list[Any] = ["user", "text", "[1]"]
    row[at] = make()
    return kind(row)


@pytest.mark.parametrize("make", LIARS, ids=range(len(LIARS)))
def test_a_message_or_row_that_lies_gets_the_same_answer(make: Callable[[], Any]) -> None:
    for key in (
        "role",
        "content",
        "tool_name",
        "tool_calls",
        "token_count",
        "reasoning_details",
        "timestamp",
    ):
        same_fresh("encode", "encode_messages", lambda key=key: ("s", [{key: make()}], 1.0))
    for batch in (lambda: make(), lambda: [make()], lambda: [NoMapping(), LyingDict(role="user")]):
        same_fresh("encode", "encode_messages", lambda batch=batch: ("s", batch(), 1.0))
    names = ("role", "content", "tool_calls")
    for at in range(3):
        for kind in (tuple, list, LyingTuple, LyingList):
            row = partial(row_with, kind, at, make)
            same_fresh("decode", "rows_to_messages", lambda row=row: (names, [row()]))
    same_fresh("decode", "rows_to_messages", lambda: (make(), [("a",)]))
    same_fresh("decode", "rows_to_messages", lambda: ((make(), "content"), [("a", "b")]))
    same_fresh("decode", "rows_to_messages", lambda: (("a", "b"), make()))


def seen_by(twin: ModuleType, function: str, make: Callable[[list[str]], tuple[Any, ...]]) -> Any:
    """The outcome of a call, and what its objects noted meanwhile."""
    notes: list[str] = []
    return outcome(getattr(twin, function), *make(notes)), notes


def test_odd_rows_among_plain_ones_are_each_asked_once() -> None:
    def rows(notes: list[str]) -> tuple[Any, ...]:
        asked = Acting(lambda: notes.append("asked"))
        return ("content", "tool_calls"), [("a", asked), ["b", asked], ("c", None), LyingTuple(("d", asked))]

    first, *others = [seen_by(twin, "rows_to_messages", rows) for twin in both("decode")]
    for other in others:
        assert other[1] == first[1]
    assert first[1] == ["asked"] * 3 or first[0][0] == "raised"


def changing(container: Any) -> Any:
    """``container`` with a value in its midst that empties and refills it when its text is asked for."""

    def act() -> None:
        container.clear()
        if isinstance(container, list):
            container.extend(range(1000))
        else:
            container.update((f"k{i}", i) for i in range(1000))

    first, last = Acting(act), "x" * 5000
    if isinstance(container, list):
        container += ["a", {"b": [first]}, last]
    else:
        container.update(a="a", content=[first], tool_calls=[first], text={"value": first}, z=last)
    return container


@pytest.mark.parametrize(("kernel", "function"), ONE_VALUE)
@pytest.mark.parametrize("kind", [list, dict, LyingList, LyingDict])
def test_a_container_that_changes_under_the_kernel(kernel: str, function: str, kind: type) -> None:
    same_fresh(kernel, function, lambda: (changing(kind()),))
    same_fresh(kernel, function, lambda: ([changing(kind())],))


def test_tool_calls_that_are_emptied_while_they_are_written_count_as_given() -> None:
    def make() -> tuple[Any, ...]:
        return "s", [{"role": "assistant", "tool_calls": changing([])}], 1.0

    _, (_, rows) = same_fresh("encode", "encode_messages", make)
    assert rows[0][1][14] == (int, 3)


def test_messages_that_are_emptied_while_they_are_encoded() -> None:
    def make() -> tuple[Any, ...]:
        batch: list[Any] = []
        batch.append({"role": "user", "content": Acting(batch.clear)})
        batch.append({"role": "user", "content": Acting(batch[0].clear)})
        batch.append(changing({"role": "user"}))
        return "s", batch, 1.0

    kind, (_, rows) = same_fresh("encode", "encode_messages", make)
    assert (kind, len(rows)) == ("value", 3)


def test_a_dict_that_changes_while_a_key_is_compared() -> None:
    def make() -> tuple[Any, ...]:
        message: dict[Any, Any] = {}
        message[Key("content", message.clear)] = 1
        message.update({f"k{i}": i for i in range(20)}, role="user", tool_name="x")
        return "s", [message], 1.0

    same_fresh("encode", "encode_messages", make)

    def part() -> tuple[Any, ...]:
        value: dict[Any, Any] = {}
        value[Key("content", value.clear)] = 1
        value["text"] = "x"
        return (value,)

    same_fresh("searchable", "parts", part)


def test_rows_that_are_emptied_while_they_are_read() -> None:
    def make() -> tuple[Any, ...]:
        rows: list[Any] = []
        rows += [("a", Acting(rows.clear, "[1]")), ("b", "[2]"), ("c", None)]
        return ("content", "tool_calls"), rows

    same_fresh("decode", "rows_to_messages", make)

    def narrow() -> tuple[Any, ...]:
        rows: list[Any] = []
        rows += [("user", "x", Acting(rows.clear), *[None] * 8), ("tool", "y", *[None] * 9)]
        return (rows,)

    same_fresh("decode", "rows_to_conversation", narrow)


def test_a_content_encoder_that_changes_the_message() -> None:
    def make() -> tuple[Any, ...]:
        message: dict[str, Any] = {"role": "user", "content": "x", "reasoning": "r" * 500, "tool_name": "t"}

        def encoder(content: Any) -> Any:
            message.clear()
            return Liar(content)

        return "s", [message], 1.0, encoder

    kind, (_, rows) = same_fresh("encode", "encode_messages", make)
    assert kind == "value"
    assert rows[0][1][2] == (str, "x")


@pytest.mark.parametrize("kernel", ["json_text", "encode"])
def test_cycles_are_refused_alike(kernel: str) -> None:
    function = {"json_text": "dumps", "encode": "encode_content"}[kernel]
    loop: list[Any] = []
    loop.append({"k": (loop,)})
    own = LyingDict()
    dict.__setitem__(own, "content", own)
    for value in (loop, loop[0], own, [own]):
        assert same(kernel, function, value)[:2] == ("raised", ValueError)


def test_parts_of_a_value_that_contains_itself_are_given_once() -> None:
    knot: dict[str, Any] = {"text": "once"}
    knot["content"] = [knot, "more", knot]
    ring = LyingList()
    list.append(ring, ring)
    shared = ["both"]
    deep: Any = "end"
    for _ in range(50_000):
        deep = [deep]
    for value, found in (
        (knot, ["once", "more"]), (ring, []), ([shared, shared], ["both"]), (deep, ["end"]),
    ):  # fmt: skip
        for twin in both("searchable"):
            assert twin.parts(value) == found


def test_strings_that_lie_come_back_as_what_they_hold() -> None:
    assert same("searchable", "parts", [Liar("real")]) == ("value", (list, [(str, "real")]))
    assert same("searchable", "is_plain", Liar("real"), None, Liar("x")) == ("value", (bool, True))
    assert same("query_text", "sanitize", Liar("real words")) == ("value", (str, "real words"))


def test_groups_that_no_query_makes_are_no_crash() -> None:
    for odd in (
        None, (), [None], [[None]], [[(False, None)]], [[(False, [("word", "x")])]],
        [[(False, ((None, None),))]],
        [[(False, (("word", None),))]], [[(True, (("prefix", 5),))]], [([(False, (("word", "x"),))])],
        (((False, (("word", "x"),)),),), [[[False, [["word", "x"]]]]], "text", [[(0, (("word", "x"),))]],
    ):  # fmt: skip
        same("query_text", "match_string", odd)


class Race:
    """A list and dicts in it that other threads change for as long as it is read."""

    def __init__(self) -> None:
        self.value: list[Any] = [{"role": "user", "content": ["x", {"text": "y"}]} for _ in range(50)]
        self.ended = threading.Event()

    def change(self) -> None:
        number = 0
        while not self.ended.is_set():
            number += 1
            self.value.append({"role": "tool", "content": "z" * (number % 300), "tool_calls": [number]})
            self.value[number % 20] = {"content": [number, {"text": "é" * (number % 70)}]}
            self.value[number % 10].pop("content", None)
            self.value[number % 10][f"k{number % 30}"] = [number, str(number), number / 7]
            if len(self.value) > 200:
                del self.value[30:150]


def test_lists_that_other_threads_change_are_read_without_a_crash() -> None:
    race = Race()
    threads = [threading.Thread(target=race.change) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            for twin in both("json_text"):
                assert twin.dumps(race.value).startswith("[{")
            for twin in both("encode"):
                assert len(twin.encode_messages("s", race.value, 1.0)) > 20
                assert twin.encode_json_column(race.value).startswith("[{")
            for twin in both("searchable"):
                assert type(twin.parts(race.value)) is list
    finally:
        race.ended.set()
        for thread in threads:
            thread.join()


def test_threads_that_parse_at_once_share_keys_and_get_their_own_values() -> None:
    texts = [f'[{{"role": {i}, "k{i}": "{i}", "content": [{i}.5]}}]' for i in range(64)]
    wrong: list[Any] = []
    barrier = threading.Barrier(4)

    def read(twin: ModuleType) -> None:
        barrier.wait()
        for _ in range(200):
            for i, text in enumerate(texts):
                found = twin.loads(text)
                if shape(found) != shape([{"role": i, f"k{i}": str(i), "content": [i + 0.5]}]):
                    wrong.append(found)

    threads = [threading.Thread(target=read, args=(both("json_parse")[0],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
