"""Kernels raise MemoryError where there is no memory, and hold nothing once they have returned."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kernels.calls import GIVEN
from property.twins import both, outcome

EVERY_CALL = [(kernel, number) for kernel, calls in GIVEN.items() for number in range(len(calls))]
TESTS = Path(__file__).resolve().parent.parent
HAS_HOOKS = importlib.util.find_spec("_testcapi") is not None

# Fails one allocation, then twelve in a row, at each place in turn until a call gets by without meeting it.
# (Where all fail from one on, CPython 3.11 itself may look for a handler of its MemoryError for ever.)
STARVED = """
import sys
sys.path.insert(0, sys.argv[1])
from _testcapi import remove_mem_hooks, set_nomemory
from kernels.calls import GIVEN
from property.twins import both, outcome, shape

def starved(function, given, start, stop):
    try:
        set_nomemory(start, stop)
        value = function(*given)
    except MemoryError:
        remove_mem_hooks()
        return "memory"
    except Exception as error:
        remove_mem_hooks()
        return "raised", type(error), str(error)
    remove_mem_hooks()
    return "value", shape(value)

def difference(found, wanted):
    one, other = repr(found), repr(wanted)
    at = next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), 0)
    return f"{one[:60]} ... {one[max(0, at - 40) : at + 120]} for {other[max(0, at - 40) : at + 120]}"

def control():
    raise ValueError("control")

# CPython 3.11 may lose an exception that Python code raises while there is no memory.
LOST = ("error return without exception set", "returned NULL without setting an exception")

def lost(found):
    return found[:2] == ("raised", SystemError) and found[2].endswith(LOST)

loses = any(lost(starved(control, (), start, start + 1)) for start in range(1, 30))

for index, module in enumerate(both(sys.argv[2])):
    for number, (name, given) in enumerate(GIVEN[sys.argv[2]]):
        in_c = module.__name__.endswith("_c") and number == 0
        function = getattr(module, name)
        wanted = outcome(function, *given)
        short = 0
        for width in (1, 12):
            got_by = 0
            for start in range(1, 4000):
                found = starved(function, given, start, start + width)
                short += found == "memory"
                got_by = 0 if found == "memory" else got_by + 1
                if loses and lost(found) and not in_c:
                    continue
                if found != "memory" and found != wanted:
                    place = f"{module.__name__}.{name} {width} at {start}"
                    raise SystemExit(f"{place}: {difference(found, wanted)}")
                if got_by == 40:
                    break
            else:
                raise SystemExit(f"{module.__name__}.{name}: no end")
        print(module.__name__, name, short)
"""


def run(program: str, *arguments: str) -> str:
    """Run ``program`` in a fresh interpreter; what it prints."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.unsanitized
@pytest.mark.parametrize("kernel", GIVEN)
def test_an_allocation_that_fails_anywhere_is_a_memory_error_or_changes_nothing(kernel: str) -> None:
    if not HAS_HOOKS:  # an interpreter without CPython's own test modules cannot be starved
        assert importlib.util.find_spec("_testcapi") is None
        return
    lines = run(STARVED, str(TESTS), kernel).splitlines()
    assert len(lines) == len(GIVEN[kernel]) * len(both(kernel))
    # Only functions that make nothing new get by without a single allocation.
    assert any(int(line.split()[-1]) for line in lines)


BLOCKS = """
import gc, sys
sys.path.insert(0, sys.argv[1])
from kernels.calls import GIVEN
from property.twins import both, outcome

def blocks(function, given, rounds):
    for _ in range(rounds):
        try:
            function(*given)
        except Exception:
            pass
    gc.collect()
    return sys.getallocatedblocks()

for module in both(sys.argv[2]):
    for name, given in GIVEN[sys.argv[2]]:
        function = getattr(module, name)
        counts = [blocks(function, given, 100) for _ in range(6)]
        # Caches and free lists of the interpreter fill up in one window or another; a leak fills all.
        print(module.__name__, name, min(later - former for former, later in zip(counts, counts[1:])))
"""


@pytest.mark.parametrize("kernel", GIVEN)
def test_a_hundred_calls_leave_no_block_behind(kernel: str) -> None:
    for line in run(BLOCKS, str(TESTS), kernel).splitlines():
        assert int(line.split()[-1]) < 50, line


def referents(value: Any, found: dict[int, Any]) -> dict[int, Any]:
    """``value`` and all containers and texts that it holds, by id."""
    if id(value) not in found and isinstance(value, list | tuple | dict | str | bytes | set):
        found[id(value)] = value
        inside = (
            value.items() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        )
        for item in inside:
            for part in item if isinstance(value, dict) else (item,):
                referents(part, found)
    return found


def counts(value: Any) -> dict[str, int]:
    return {ascii(item)[:80]: sys.getrefcount(item) for item in referents(value, {}).values()}


@pytest.mark.parametrize(("kernel", "number"), EVERY_CALL)
def test_no_reference_to_what_was_given_stays(kernel: str, number: int) -> None:
    name, given = GIVEN[kernel][number]
    for module in both(kernel):
        function = getattr(module, name)
        outcome(function, *given)
        gc.collect()
        before = counts(given)
        for _ in range(3):
            outcome(function, *given)
        gc.collect()
        assert counts(given) == before


class Watched:
    """Counts how many of it are alive."""

    alive = 0

    def __init__(self, text: str = "watched") -> None:
        self.text = text
        Watched.alive += 1

    def __del__(self) -> None:
        Watched.alive -= 1

    def __str__(self) -> str:
        if not self.text:
            raise ValueError("no text")
        return self.text


def with_watched() -> dict[str, list[tuple[str, tuple[Any, ...]]]]:
    """Calls whose arguments hold fresh objects, of which some raise."""
    value = [Watched(), {"k": Watched(""), "l": Watched("\ud800")}, (Watched(),)]
    return {
        "decode": [
            ("rows_to_messages", (("content", "tool_calls"), [(Watched(), Watched()), [Watched(), None]])),
            ("rows_to_messages", (("content", "tool_calls"), [(Watched(), Watched()), (Watched(),)])),
            ("rows_to_conversation", ([("user", *(Watched() for _ in range(10))), (Watched(),)],)),
        ],
        "encode": [
            (
                "encode_messages",
                ("s", [{"content": value, "tool_calls": value, "reasoning": Watched()}], 1.0),
            ),
            ("encode_messages", ("s", [{"content": value}, {"timestamp": Watched()}], 1.0)),
            ("encode_messages", ("s", [{"content": value}, Watched()], 1.0)),
            ("encode_messages", ("s", [{"content": 1}], 1.0, lambda _content: Watched())),
        ],
        "json_text": [("dumps", (value,)), ("dumps", ({"k": [value, Watched()]},))],
        "json_parse": [("loads", (Watched(),)), ("loads", (value,))],
        "query_text": [("sanitize", (Watched(),)), ("match_string", (value,))],
        "scripts": [("runs", (Watched(),)), ("split_mixed", (Watched(),))],
        "searchable": [
            ("parts", (value,)),
            ("text", (Watched(), None, None)),
            ("is_plain", ("x", Watched(), 1)),
        ],
        "text": [("fallback", (value,)), ("clean", (Watched(),))],
    }


@pytest.mark.parametrize("kernel", GIVEN)
def test_objects_die_with_their_last_owner(kernel: str) -> None:
    for module in both(kernel):
        for number in range(len(with_watched()[kernel])):
            name, given = with_watched()[kernel][number]
            called(module, name, given)
            del given
            gc.collect()
            assert Watched.alive == 0, (module.__name__, name, number)


def called(module: ModuleType, name: str, given: tuple[Any, ...]) -> None:
    """Call and forget, whatever comes of it."""
    outcome(getattr(module, name), *given)
