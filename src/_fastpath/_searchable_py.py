"""Pure twin of the searchable kernel."""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeGuard

from .scripts import has_unspaced

MAX_INDEXED_CHARS: Final = 1_000_000
"""Characters of a row that are indexed; what stands behind them is stored but not searched."""

_MARKER = "\x00json:"
_ESCAPE = re.compile(
    r"(?<!\\)\\+u(?:([dD][89abAB][0-9a-fA-F]{2})\\+u([dD][c-fC-F][0-9a-fA-F]{2})|([0-9a-fA-F]{4}))"
)
_URI_HEAD = 200
_SURROGATE = re.compile("[\ud800-\udfff]")


def text(content: object, tool_name: object, tool_calls: object) -> str:
    """The searchable text of a row, from its stored columns (None, str, bytes, int or float).

    For plain text it is what v11's triggers write, to the byte: the three columns, each empty where NULL,
    with a space between. A structured content gives its text parts, one a line; a NUL becomes
    a space; ``\\uXXXX`` escapes in tool calls become their characters, also inside the arguments,
    which are JSON in JSON. The result is cut at MAX_INDEXED_CHARS, and gets two more spaces
    where a letter of an unspaced script stands in its last two characters, so that every such
    letter begins a trigram. TypeError for any other column type.
    """
    body, name, calls = _column(content), _column(tool_name), _column(tool_calls)
    if body.startswith(_MARKER):
        body = _structured(body)
    if "\\u" in calls:
        calls = _ESCAPE.sub(_unescaped, calls)
    joined = f"{body} {name} {calls}"[:MAX_INDEXED_CHARS]
    if "\x00" in joined:
        joined = joined.replace("\x00", " ")
    if not joined.isascii() and _SURROGATE.search(joined):
        joined = joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined + "  " if has_unspaced(joined[-2:]) else joined


def is_plain(content: object, tool_name: object, tool_calls: object) -> bool:
    """True when v11's expression over these stored columns already is ``text`` of them."""
    size = 2
    for column in (content, tool_name, tool_calls):
        if column is None:
            continue
        if not _is_str(column) or str.__contains__(column, "\x00"):
            return False
        size += str.__len__(column)
    calls = _column(tool_calls)
    if size > MAX_INDEXED_CHARS or "\\u" in calls:
        return False
    return not (has_unspaced(calls[-2:]) if calls else has_unspaced(_column(tool_name)[-1:]))


def parts(value: Any) -> list[str]:
    """The texts in a decoded structured content, in order.

    A string is its own text. A dict gives its ``text`` (a string, or the ``value`` in it), and
    what its ``content`` holds, down to any depth; a list gives what its items give. Keys,
    images, audio, files, URLs and base64 ``data:`` URIs give nothing. A list or dict that is met
    again, in itself or elsewhere, gives nothing more. Subclasses are read by what they hold,
    whatever their methods say.
    """
    out: list[str] = []
    met: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if issubclass(kind, str):
            item = str.__str__(item)
            if item and not (item.startswith("data:") and ";base64," in item[:_URI_HEAD]):
                out.append(item)
        elif issubclass(kind, (list, dict)) and id(item) not in met:
            met.add(id(item))
            if issubclass(kind, list):
                waiting.extend(list.__reversed__(item))
                continue
            waiting.append(dict.get(item, "content"))
            own: Any = dict.get(item, "text")
            waiting.append(dict.get(own, "value") if issubclass(type(own), dict) else own)
    return out


def _is_str(value: object) -> TypeGuard[str]:
    """Whether ``value`` is text; an object that only claims to be a str is not."""
    return issubclass(type(value), str)


def _column(value: Any) -> str:
    """A stored column as text: NULL is empty, a BLOB is read as UTF-8."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__getitem__(value, slice(None))
    if value is None:
        return ""
    if issubclass(kind, bytes):
        return bytes.decode(value, "utf-8", "replace")
    if issubclass(kind, int):
        return int.__repr__(value)
    if issubclass(kind, float):
        return float.__repr__(value)
    raise TypeError(f"a stored column is None, str, bytes, int or float, not {kind.__name__}")


def _structured(body: str) -> str:
    """The text parts behind the marker, or the stored text where it is not JSON."""
    try:
        return "\n".join(parts(json.loads(body[len(_MARKER) :])))
    except (ValueError, RecursionError):
        return body


def _unescaped(found: re.Match[str]) -> str:
    """The character of an escape; controls, quotes, backslashes and lone surrogates stay escaped."""
    high, low, single = found.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
    code = int(single, 16)
    if code < 0x20 or code in (0x22, 0x5C, 0x7F) or 0xD800 <= code <= 0xDFFF:
        return found.group()
    return chr(code)
