"""The twins of a kernel side by side, and what makes two results the same.

``both(name)`` gives the modules to test, compiled first; the pure one alone where none was compiled
(``builds`` says when that fails the run).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from builds import KERNELS


def both(name: str) -> list[ModuleType]:
    """Return ``[compiled, pure]`` of the kernel ``name``, or ``[pure]`` where nothing is compiled."""
    pure = import_module(f"hermes_state._fastpath._{name}_py")
    if not KERNELS:
        return [pure]
    return [import_module(f"hermes_state._fastpath._{name}_c"), pure]


def shape(value: Any) -> Any:
    """Return ``value`` with every type spelled out, so that ``==`` tells 1 from True and NaN equals NaN.

    Subclasses count by what they hold, whatever their methods say.
    """
    kind = type(value)
    if issubclass(kind, list):
        return kind, [shape(item) for item in list.copy(value)]
    if issubclass(kind, tuple):
        return kind, [shape(item) for item in tuple.__iter__(value)]
    if issubclass(kind, dict):
        return kind, [(shape(key), shape(item)) for key, item in dict.items(value)]
    if issubclass(kind, float):
        return kind, "nan" if float.__ne__(value, value) else float.hex(value)
    if issubclass(kind, str):
        return kind, str.__str__(value)
    return kind, value


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a call gives: the shape of its value, or the kind and message of its exception."""
    try:
        return "value", shape(function(*args))
    except Exception as error:
        return "raised", type(error), str(error)


def same(name: str, function: str, *args: Any) -> Any:
    """Assert that the twins of kernel ``name`` do alike with ``args``; return the outcome."""
    return same_fresh(name, function, lambda: args)


def same_fresh(name: str, function: str, make: Callable[[], tuple[Any, ...]]) -> Any:
    """The same for arguments that a call may change: each twin gets its own from ``make()``."""
    first, *others = [outcome(getattr(module, function), *make()) for module in both(name)]
    for other in others:
        assert first == other
    return first
