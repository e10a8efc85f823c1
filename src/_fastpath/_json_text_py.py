"""Pure twin of the ``json_text`` kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from typing import Any, Final

from ._text_py import fallback

MAX_DEPTH: Final = 200
"""Deepest nesting of lists and objects that is written: every reader's parser takes it."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_INFINITY: Final = float("inf")

Write = Callable[[str], None]


def dumps(value: Any) -> str:
    """Return ``value`` as JSON text (RFC 8259).

    For what ``json.dumps`` takes, the text is that of
    ``json.dumps(value, ensure_ascii=False)``, with these differences: NaN and
    the infinities are ``null``; a surrogate pair is the code point it stands
    for and a lone surrogate its ``\\udXXX`` escape, so that the text can
    always be UTF-8; a dict subclass whose ``items()`` fails is written by the
    items it holds. Values that JSON has no form for (bytes, sets, dates,
    decimals, other objects) are the string ``str(value)``, or ``"<TypeName>"``
    where that raises; so are keys. An integer with more digits than the
    interpreter prints (``sys.get_int_max_str_digits``) is the string of its
    hexadecimal form.

    Raises ValueError where lists and dicts are nested deeper than MAX_DEPTH,
    which a value that contains itself always is.
    """
    parts: list[str] = []
    _write(value, parts.append, 0)
    return "".join(parts)


def escape_surrogates(text: str) -> str:
    """Return JSON text with surrogate pairs joined and lone surrogates as ``\\udXXX`` escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return _SURROGATE.sub(_escape, joined)
    return text


def _escape(found: re.Match[str]) -> str:
    # No lambda: CPython 3.12 and 3.13 crash where there is no memory to make one.
    return f"\\u{ord(found[0]):04x}"


def integer_text(value: int) -> str:
    """Return the digits of ``value``, or its hexadecimal form where they are too many to print."""
    try:
        return int.__repr__(value)
    except ValueError:
        return hex(value)


def _quoted(value: str) -> str:
    return escape_surrogates(encode_basestring(str.__str__(value)))


def _write(value: Any, write: Write, depth: int) -> None:
    kind = type(value)
    if issubclass(kind, str):
        write(_quoted(value))
    elif value is None:
        write("null")
    elif kind is bool:
        write("true" if value else "false")
    elif issubclass(kind, int):
        digits = integer_text(value)
        write(f'"{digits}"' if "x" in digits else digits)
    elif issubclass(kind, float):
        write(float.__repr__(value) if -_INFINITY < float.__pos__(value) < _INFINITY else "null")
    elif issubclass(kind, dict):
        _write_object(_items(value), write, depth + 1)
    elif issubclass(kind, list):
        _write_array(list.copy(value), write, depth + 1)
    elif issubclass(kind, tuple):
        _write_array(tuple.__iter__(value), write, depth + 1)
    else:
        write(_quoted(fallback(value)))


def _write_array(items: Iterable[Any], write: Write, depth: int) -> None:
    _check(depth)
    separator = "["
    for item in items:
        write(separator)
        separator = ", "
        _write(item, write, depth)
    write("[]" if separator == "[" else "]")


def _write_object(items: list[tuple[Any, Any]], write: Write, depth: int) -> None:
    _check(depth)
    separator = "{"
    for key, item in items:
        write(separator)
        separator = ", "
        write(_key(key))
        write(": ")
        _write(item, write, depth)
    write("{}" if separator == "{" else "}")


def _items(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """A snapshot of the items: the text of a foreign value may change the dict that holds it."""
    if type(value) is dict:
        return list(value.items())
    try:
        return [(key, item) for key, item in value.items()]  # noqa: C416 - each must be a pair
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - an items() of any kind that fails is passed over
        return list(dict.items(value))


def _key(key: Any) -> str:
    """A JSON string for a key, by ``json.dumps``'s rules where it has one."""
    kind = type(key)
    if issubclass(kind, str):
        return _quoted(key)
    if key is None:
        return '"null"'
    if kind is bool:
        return '"true"' if key else '"false"'
    if issubclass(kind, int):
        return f'"{integer_text(key)}"'
    if issubclass(kind, float):
        return f'"{_float_key(float.__pos__(key))}"'
    return _quoted(fallback(key))


def _float_key(key: float) -> str:
    if key != key:
        return "NaN"
    if key in (_INFINITY, -_INFINITY):
        return "Infinity" if key > 0 else "-Infinity"
    return float.__repr__(key)


def _check(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"cannot be written as JSON: deeper than {MAX_DEPTH} levels, or contains itself")
