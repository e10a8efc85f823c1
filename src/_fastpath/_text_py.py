"""Pure twin of the ``text`` kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_type_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def clean(value: str) -> str:
    """Return ``value`` as an exact ``str`` that can be encoded as UTF-8.

    Text without surrogates comes back as the same object. A high surrogate
    followed by a low one becomes the code point the two stand for in UTF-16;
    any other surrogate becomes U+FFFD. Raises TypeError where ``value`` is not
    a ``str``.
    """
    kind = type(value)
    if kind is not str:
        if not issubclass(kind, str):
            raise TypeError(f"text must be str, not {_type_name(kind)}")
        value = str.__str__(value)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def fallback(value: Any) -> str:
    """Return the text that stands for a value of a type that has no form of its own in the store.

    It is ``str(value)``, cleaned. Where that raises, it is ``<TypeName>``:
    what one part of a message does never costs the message. Only MemoryError
    comes through.
    """
    try:
        return clean(str(value))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ raises, the message is kept
        return f"<{_type_name(type(value))}>"
