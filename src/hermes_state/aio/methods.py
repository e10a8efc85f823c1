"""The coroutine of each public method of ``SessionDB``, made from it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

OWN = frozenset({"close", "append_message", "append_messages"})
"""Methods that ``AsyncSessionDB`` writes out."""
STREAMS = frozenset({"export_markdown"})
"""Methods that return an iterator, beside those whose names begin with ``iter_``."""


def is_stream(name: str) -> bool:
    """Whether the method gives one thing after another."""
    return name.startswith("iter_") or name in STREAMS


def public_methods(cls: type) -> dict[str, Any]:
    """Name -> attribute, as it stands in the class, of every public method, inherited ones too."""
    found: dict[str, Any] = {}
    for name in dir(cls):
        if not name.startswith("_"):
            attribute = inspect.getattr_static(cls, name)
            if callable(getattr(cls, name)):
                found[name] = attribute
    return found


def add_methods(source: type) -> Callable[[type], type]:
    """A class decorator: a coroutine, or an async iterator, for each public method of ``source``.

    Signature, name and docstring are those of the method. Static methods and
    constants compute without the store and are taken over as they are.
    """

    def decorate(cls: type) -> type:
        for name in dir(source):
            attribute = inspect.getattr_static(source, name)
            if name.startswith("_") or name in OWN or name in vars(cls):
                continue
            setattr(cls, name, _counterpart(name, attribute) if inspect.isfunction(attribute) else attribute)
        return cls

    return decorate


def _counterpart(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    if is_stream(name):

        def stream(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._stream(name, args, kwargs)

        return _dressed(stream, method)

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._call(name, args, kwargs)

    return _dressed(call, method)


def _dressed(made: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    functools.update_wrapper(made, method)
    made.__module__ = __name__.rpartition(".")[0]
    made.__qualname__ = f"AsyncSessionDB.{method.__name__}"
    return made
