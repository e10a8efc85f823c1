"""The process in which ``fuzz_kernels.py`` fuzzes one kernel.

    python tools/fuzz_worker.py KERNEL [libFuzzer options]

An input is bytes. The kernel's target reads from them which function to call
and with what; the same bytes give each twin arguments of its own, so that
nothing that one twin does can be seen by the other.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

with atheris.instrument_imports(include=["hermes_state._fastpath", "json"]):
    import json
    from json import decoder, scanner

    from hermes_state._fastpath import _decode_py, _encode_py
    from property.twins import both, outcome

MARKER = "\x00json:"
DEEPEST = 6
Call = tuple[str, tuple[Any, ...]]


class Text(str):
    """A str whose methods lie."""

    __slots__ = ()

    def __str__(self) -> str:
        return "not this"

    def __len__(self) -> int:
        return 3


class Whole(int):
    def __repr__(self) -> str:
        return "not this"


class Items(list[Any]):
    def __iter__(self) -> Any:
        return iter(["not this"])

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Pairs(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")

    def get(self, _key: Any, _default: Any = None) -> Any:
        raise RuntimeError("no get")


class Foreign:
    """Its text is given; where that is empty it has none. It may empty a container when it is asked."""

    def __init__(self, text: str, victim: Any) -> None:
        self.text = text
        self.victim = victim

    def __str__(self) -> str:
        if self.victim is not None:
            self.victim.clear()
        if not self.text:
            raise ValueError("no text")
        return self.text

    __repr__ = __str__

    def __bool__(self) -> bool:
        return str(self) != "\x00"

    def __eq__(self, other: object) -> bool:
        return type(other) is Foreign and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class Reader:
    """Python values from bytes; at the end of the bytes everything is zero."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self, size: int | None = None) -> str:
        """``size`` bytes as text, or all that are left: as UTF-8, Latin-1, UTF-16 or UTF-32."""
        mode = self.byte() % 4
        raw = self.take(len(self.data) if size is None else size)
        if mode == 0:
            return raw.decode("utf-8", "surrogateescape")
        if mode == 1:
            return raw.decode("latin-1")
        width = 2 if mode == 2 else 3
        units = (int.from_bytes(raw[i : i + width], "little") for i in range(0, len(raw), width))
        return "".join(chr(unit % 0x110000) for unit in units)

    def short(self) -> str:
        return self.text(self.byte() % 48)

    def number(self) -> Any:
        size = self.byte() % 12
        return int.from_bytes(self.take(size), "little", signed=True)

    def real(self) -> float:
        (made,) = struct.unpack("<d", self.take(8).ljust(8, b"\0"))
        return float(made)

    def scalar(self, victim: Any = None) -> Any:
        """A value without structure; a foreign one may empty ``victim``."""
        kind = self.byte() % 13
        if kind < 4:
            return self.short()
        if kind == 4:
            return self.number()
        if kind == 5:
            return self.real()
        if kind == 6:
            return (None, True, False, 10**4400)[self.byte() % 4]
        if kind == 7:
            return self.take(self.byte() % 8)
        if kind == 8:
            return Text(self.short())
        if kind == 9:
            return Whole(self.number())
        if kind == 10:
            return Foreign(self.short(), victim)
        if kind == 11:
            return MARKER + self.short()
        return json.dumps(self.plain(), ensure_ascii=self.byte() % 2 == 0)

    def plain(self, depth: int = 0) -> Any:
        """A value that JSON has."""
        kind = self.byte() % 8
        if depth >= DEEPEST or kind < 3:
            return self.short()
        if kind == 3:
            return self.number()
        if kind == 4:
            return self.real()
        if kind == 5:
            return (None, True, False)[self.byte() % 3]
        size = self.byte() % 5
        if kind == 6:
            return [self.plain(depth + 1) for _ in range(size)]
        names = ("content", "text", "value", "type")
        return {names[self.byte() % 4]: self.plain(depth + 1) for _ in range(size)}

    def key(self) -> Any:
        made = self.scalar()
        return made.text if isinstance(made, Foreign) else made

    def value(self, depth: int = 0) -> Any:
        """Any value; below DEEPEST one without structure."""
        kind = self.byte() % 10
        if depth >= DEEPEST or kind < 4:
            return self.scalar()
        size = self.byte() % 5
        made: Any
        if kind < 7:
            made = Items() if kind == 6 else []
            for _ in range(size):
                list.append(made, self.inner(made, depth))
            return tuple(list.__getitem__(made, slice(None))) if kind == 5 else made
        made = Pairs() if kind == 9 else {}
        for _ in range(size):
            key = ("content", "text", "value", "k")[self.byte() % 4] if self.byte() % 2 else self.key()
            made[key] = self.inner(made, depth)
        return made

    def inner(self, container: Any, depth: int) -> Any:
        kind = self.byte() % 16
        if kind == 0:
            return self.scalar(container)
        return container if kind == 1 else self.value(depth + 1)

    def groups(self) -> list[Any]:
        """What ``groups`` of the query kernel makes, now and then with something else in it."""

        def term() -> Any:
            kind = ("word", "phrase", "prefix", "substring", None)[self.byte() % 5]
            return kind or self.scalar(), self.scalar() if self.byte() % 16 == 0 else self.short()

        def operand() -> Any:
            negated = self.scalar() if self.byte() % 16 == 0 else self.byte() % 2 == 0
            return negated, tuple(term() for _ in range(self.byte() % 4))

        return [[operand() for _ in range(self.byte() % 4)] for _ in range(self.byte() % 4)]

    def cell(self) -> Any:
        """What may stand in a column."""
        kind = self.byte() % 6
        if kind == 0:
            return None
        if kind == 1:
            return self.text(self.byte())
        if kind == 2:
            return MARKER + self.text(self.byte())
        return self.scalar() if kind == 3 else self.short()


def of_text(*functions: str) -> Callable[[Reader], Call]:
    """A target for functions of one text."""

    def target(read: Reader) -> Call:
        kind = read.byte()
        text: Any = read.text()
        if kind & 0x80:
            text = Text(text)
        return functions[kind % len(functions)], (text,)

    return target


class Guide(json.JSONDecoder):
    """The stdlib's parser in Python: json.loads is C, in which the fuzzer sees no branches."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = decoder.py_scanstring
        self.scan_once = scanner.py_make_scanner(self)


GUIDE = Guide()


def json_parse(read: Reader) -> Call:
    marked = read.byte() % 4 == 3
    text = read.text()
    with contextlib.suppress(ValueError, RecursionError):
        GUIDE.decode(text)
    return "loads", (MARKER + text, len(MARKER)) if marked else (text,)


def json_text(read: Reader) -> Call:
    if read.byte() % 4 == 3:
        return "escape_surrogates", (read.text(),)
    return "dumps", (read.value(),)


def text(read: Reader) -> Call:
    kind = read.byte() % 3
    if kind == 0:
        return "clean", (read.text(),)
    return ("clean", "fallback")[kind - 1], (read.value(),)


def searchable(read: Reader) -> Call:
    kind = read.byte() % 4
    if kind == 0:
        return "text", (None, None, read.text())
    if kind == 1:
        return "parts", (read.value(),)
    return ("text", "is_plain")[kind - 2], (read.cell(), read.cell(), read.cell())


def query_text(read: Reader) -> Call:
    kind = read.byte() % 5
    if kind == 4:
        return "match_string", (read.value() if read.byte() % 4 == 0 else read.groups(),)
    return ("sanitize", "groups", "tokenize", "sanitize")[kind], (read.text(),)


def encode(read: Reader) -> Call:
    kind = read.byte() % 7
    if kind < 4:
        name = ("encode_content", "decode_content", "encode_json_column", "count_tool_calls")[kind]
        return name, (read.value(),)
    if kind == 4:
        fields = [read.value() for _ in range(12)]
        return "encode_message", (read.short(), read.short(), *fields[:11], 1.5)
    batch = []
    for _ in range(read.byte() % 4):
        names = [_encode_py.COLUMNS[read.byte() % len(_encode_py.COLUMNS)] for _ in range(read.byte() % 6)]
        batch.append({name: read.value(1) for name in names})
    if kind == 5:
        batch.append(read.value())
    return "encode_messages", ("s", batch, 1.5 if read.byte() % 2 else None)


def decode(read: Reader) -> Call:
    kind = read.byte() % 4
    if kind == 0:
        return "strip_memory", (read.text(),)
    if kind == 1:
        role: Any = ("user", "assistant", "tool", Text("user"))[read.byte() % 4]
        width = len(_decode_py.CONVERSATION_COLUMNS)
        rows: Any = [(role, *(read.cell() for _ in range(width - 1))) for _ in range(read.byte() % 3)]
        return "rows_to_conversation", (rows,)
    names = tuple(_encode_py.COLUMNS[read.byte() % len(_encode_py.COLUMNS)] for _ in range(read.byte() % 8))
    rows = [tuple(read.cell() for _ in names) for _ in range(read.byte() % 4)]
    if kind == 3:
        rows.append(read.value())
    return "rows_to_messages", (names, rows)


TARGETS: dict[str, Callable[[Reader], Call]] = {
    "decode": decode,
    "encode": encode,
    "json_parse": json_parse,
    "json_text": json_text,
    "query_text": query_text,
    "scripts": of_text("has_unspaced", "count_cjk", "runs", "has_mixed", "split_mixed"),
    "searchable": searchable,
    "text": text,
}


class Difference(AssertionError):
    """The twins do not do alike."""


def compared(kernel: str) -> Callable[[bytes], None]:
    """The function that libFuzzer calls with each input."""
    compiled, pure = both(kernel)
    target = TARGETS[kernel]

    def once(data: bytes) -> None:
        results = []
        for module in (compiled, pure):
            name, given = target(Reader(data))
            results.append(outcome(getattr(module, name), *given))
        try:
            alike = results[0] == results[1]
        except RecursionError:  # both passed on a value that contains itself
            return
        if not alike:
            shown = [ascii(result)[:1000] for result in results]
            raise Difference(f"{kernel}.{name}\ncompiled {shown[0]}\npure     {shown[1]}")

    return once


if __name__ == "__main__":
    chosen = sys.argv.pop(1)
    atheris.Setup(sys.argv, compared(chosen))
    atheris.Fuzz()
