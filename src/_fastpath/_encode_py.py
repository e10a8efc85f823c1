"""Pure twin of the ``encode`` kernel."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from ._json_parse_py import loads
from ._json_text_py import dumps, escape_surrogates, integer_text
from ._text_py import _type_name, clean, fallback

MARKER: Final = "\x00json:"
"""What a stored content begins with when the rest is JSON (v11's format)."""

COLUMNS: Final = (
    "session_id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "timestamp",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
"""Order of the values in a row that ``encode_message`` makes; the number of tool calls follows them."""

MICROSECOND: Final = 1e-6

Row = tuple[Any, ...]
ContentEncoder = Callable[[Any], Any]
AddRows = Callable[[list[Row], str, list[Mapping[str, Any]], float | None, ContentEncoder | None], None]


def encode_content(value: Any) -> str | None:
    """Return the text that a message's ``content`` is stored as.

    None stays None. A ``str`` is cleaned; one that begins with MARKER is
    stored as MARKER and its JSON, so that it is read back as that string.
    Lists, tuples and dicts are MARKER and their JSON. Bools, ints and floats
    are their text. Bytes, bytearrays and memoryviews are decoded as UTF-8 with
    U+FFFD for what is not. Any other value is ``text.fallback(value)``.
    Raises ValueError for lists and dicts nested deeper than JSON text may be.
    """
    if value is None:
        return None
    kind = type(value)
    if issubclass(kind, (list, dict, tuple)):
        return MARKER + dumps(value)
    if not issubclass(kind, str):
        value = plain_text(value)
    value = str.__str__(value)
    return MARKER + dumps(value) if value.startswith(MARKER) else clean(value)


def decode_content(stored: Any) -> Any:
    """Return the content that ``stored`` stands for.

    The inverse of ``encode_content``. MARKER with broken JSON after it is the
    text as it stands. Bytes (a BLOB of another program's) are read as UTF-8
    with U+FFFD for what is not; numbers and None come back as they are.
    """
    kind = type(stored)
    if kind is not str:
        if issubclass(kind, bytes):
            stored = bytes.decode(stored, "utf-8", "replace")
        elif issubclass(kind, str):
            stored = str.__str__(stored)
        else:
            return stored
    if not stored.startswith(MARKER):
        return stored
    try:
        return loads(stored, len(MARKER))
    except (ValueError, RecursionError):
        return stored


def encode_json_column(value: Any) -> str | None:
    """Return the JSON text that ``value`` is stored as, or None for None and everything empty.

    A ``str`` that is the JSON of a list or an object is stored as it stands
    (lone surrogates as escapes; re-encoded where it holds the bare tokens NaN
    or Infinity); everything else is encoded once.
    """
    return _json_column(value)[0]


def count_tool_calls(value: Any) -> int:
    """Return how many calls ``value`` holds.

    A list or tuple, or a string that is the JSON of a list, counts its items;
    anything else counts one where it is true and none where it is not.
    """
    kind = type(value)
    if issubclass(kind, list):
        return list.__len__(value)
    if issubclass(kind, tuple):
        return tuple.__len__(value)
    if issubclass(kind, str):
        return _given_json(str.__str__(value))[1]
    return 1 if _is_true(value) else 0


def encode_message(
    session_id: str,
    role: str,
    content: Any,
    tool_name: Any,
    tool_calls: Any,
    tool_call_id: Any,
    token_count: Any,
    finish_reason: Any,
    reasoning: Any,
    reasoning_content: Any,
    reasoning_details: Any,
    codex_reasoning_items: Any,
    codex_message_items: Any,
    timestamp: Any,
    content_encoder: ContentEncoder | None = None,
) -> Row:
    """Return the values to bind for one message, in the order of COLUMNS, and its number of tool calls.

    ``content_encoder`` is called once in place of ``encode_content`` where it
    is given. Text columns take any value: None stays, lists and dicts become
    JSON, bytes are read as UTF-8, the rest is ``text.fallback``. ``timestamp``
    is in seconds since the epoch, or a datetime or ISO 8601 text (without a
    zone: local time), or None, which stays. Raises TypeError or ValueError that
    names the argument where ``session_id`` or ``role`` is not a ``str``,
    ``token_count`` is not a whole number of 64 bits, or ``timestamp`` is no
    finite time.
    """
    calls, number = _json_column(tool_calls)
    return (
        _name("session_id", session_id),
        _name("role", role),
        encode_content(content) if content_encoder is None else bindable(content_encoder(content)),
        text_column(tool_call_id),
        calls,
        text_column(tool_name),
        epoch(timestamp),
        whole_number(token_count),
        text_column(finish_reason),
        text_column(reasoning),
        text_column(reasoning_content),
        encode_json_column(reasoning_details),
        encode_json_column(codex_reasoning_items),
        encode_json_column(codex_message_items),
        number,
    )


def encode_messages(
    session_id: str,
    messages: Iterable[Mapping[str, Any]],
    first_timestamp: float | None,
    content_encoder: ContentEncoder | None = None,
) -> list[Row]:
    """Return one row, as ``encode_message`` makes it, for each of a batch of message dicts.

    The keys are the names of the columns; ``id``, ``session_id`` and unknown
    keys are passed over, a missing ``role`` is "unknown". The message at index
    i without a timestamp gets ``first_timestamp`` plus i microseconds, or None
    where ``first_timestamp`` is None. Raises TypeError that names the index
    where a message is not a mapping, before any is encoded, and puts the index
    before what ``encode_message`` raises.
    """
    return encode_batch(_add_rows, session_id, messages, first_timestamp, content_encoder)


def encode_batch(
    add_rows: AddRows,
    session_id: str,
    messages: Iterable[Mapping[str, Any]],
    first_timestamp: float | None,
    content_encoder: ContentEncoder | None,
) -> list[Row]:
    """Return the rows that ``add_rows`` makes one by one; what it raises gets the message's index."""
    given = _batch(messages)
    rows: list[Row] = []
    try:
        add_rows(rows, session_id, given, first_timestamp, content_encoder)
    except (TypeError, ValueError) as error:
        if type(error) in (TypeError, ValueError):
            raise type(error)(f"messages[{len(rows)}]: {error}") from error
        raise
    return rows


def _add_rows(
    rows: list[Row],
    session_id: str,
    messages: list[Mapping[str, Any]],
    first_timestamp: float | None,
    content_encoder: ContentEncoder | None,
) -> None:
    for index, message in enumerate(messages):
        rows.append(encode_one(session_id, message, index, first_timestamp, content_encoder))


def _batch(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    try:
        given = list(messages)
    except TypeError as error:
        raise TypeError(f"messages must be a list of mappings, not {_type_name(type(messages))}") from error
    for index, message in enumerate(given):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{index}] must be a mapping, not {_type_name(type(message))}")
    return given


def encode_one(
    session_id: str,
    message: Mapping[str, Any],
    index: int,
    first_timestamp: float | None,
    content_encoder: ContentEncoder | None,
) -> Row:
    """Return the row of the message at ``index`` of a batch."""
    get = message.get
    timestamp = get("timestamp")
    if timestamp is None and first_timestamp is not None:
        timestamp = first_timestamp + index * MICROSECOND
    return encode_message(
        session_id,
        get("role", "unknown"),
        get("content"),
        get("tool_name"),
        get("tool_calls"),
        get("tool_call_id"),
        get("token_count"),
        get("finish_reason"),
        get("reasoning"),
        get("reasoning_content"),
        get("reasoning_details"),
        get("codex_reasoning_items"),
        get("codex_message_items"),
        timestamp,
        content_encoder,
    )


def text_column(value: Any) -> str | None:
    """Return what a text column holds for ``value``."""
    if value is None:
        return None
    kind = type(value)
    if issubclass(kind, str):
        return clean(value)
    if issubclass(kind, (list, dict, tuple)):
        return dumps(value)
    return plain_text(value)


def plain_text(value: Any) -> str:
    """Return the text of a value that is no string and has no structure."""
    kind = type(value)
    if kind is bool:
        return "True" if value else "False"
    if issubclass(kind, int):
        return integer_text(value)
    if issubclass(kind, float):
        return float.__repr__(value)
    if issubclass(kind, (bytes, bytearray, memoryview)):
        return _bytes_text(value)
    return fallback(value)


def _bytes_text(value: bytes | bytearray | memoryview) -> str:
    try:
        return bytes(memoryview(value)).decode("utf-8", "replace")
    except ValueError:  # a memoryview that has been released
        return fallback(value)


def bindable(value: Any) -> Any:
    """Return what a caller's own content encoder made, with its text cleaned."""
    return clean(value) if issubclass(type(value), str) else value


def whole_number(value: Any) -> int | None:
    """Return ``token_count`` as an int of 64 bits, or None."""
    if value is None:
        return None
    kind = type(value)
    if issubclass(kind, float):
        number = float.__pos__(value)
        if not number.is_integer():
            raise ValueError("token_count must be a whole number")
        count = int(number)
    elif issubclass(kind, int):
        count = int.__index__(value)
    else:
        try:
            count = operator.index(value)
        except TypeError as error:
            raise TypeError(f"token_count must be an int, not {_type_name(kind)}") from error
    if not -(2**63) <= count < 2**63:
        raise ValueError("token_count does not fit in 64 bits")
    return count


def epoch(value: Any) -> float | None:
    """Return ``timestamp`` in seconds since the epoch, or None."""
    if value is None:
        return None
    kind = type(value)
    try:
        if issubclass(kind, float):
            seconds = float.__pos__(value)
        elif issubclass(kind, int) and kind is not bool:
            seconds = int.__float__(value)
        elif issubclass(kind, datetime):
            seconds = datetime.timestamp(value)
        elif issubclass(kind, str):
            seconds = datetime.fromisoformat(str.__str__(value)).timestamp()
        else:
            name = _type_name(kind)
            raise TypeError(f"timestamp must be a number, a datetime or ISO 8601 text, not {name}")
    except (ValueError, OverflowError, OSError) as error:
        is_text = issubclass(kind, str)
        given = ascii(str.__str__(value)[:60]) if is_text else f"{_type_name(kind)} out of range"
        raise ValueError(f"timestamp is not a time: {given}") from error
    if not math.isfinite(seconds):
        raise ValueError("timestamp must be finite")
    return seconds


def _name(argument: str, value: Any) -> str:
    if not issubclass(type(value), str):
        raise TypeError(f"{argument} must be str, not {_type_name(type(value))}")
    return clean(value)


def _is_true(value: Any) -> bool:
    try:
        return bool(value)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - what cannot say that it is empty is something
        return True


def _json_column(value: Any) -> tuple[str | None, int]:
    """The text of a JSON column, and the number of tool calls it would be."""
    kind = type(value)
    if issubclass(kind, str):
        return _given_json(str.__str__(value))
    if not _is_true(value):
        return None, 0
    # Counted first: the text of a foreign value in it may change a list.
    number = count_tool_calls(value) if issubclass(kind, (list, tuple)) else 1
    return dumps(value), number


class _BareToken(Exception):
    """NaN, Infinity or -Infinity, which Python's parser takes and JSON does not have."""


def _refuse(token: str) -> Any:
    raise _BareToken(token)


_strict_json = json.JSONDecoder(parse_constant=_refuse)


def _given_json(text: str) -> tuple[str | None, int]:
    """The same for a string, which may be JSON already."""
    if not text:
        return None, 0
    if text.lstrip(" \t\n\r")[:1] not in ("[", "{"):
        return dumps(text), 1
    try:
        parsed = _strict_json.decode(text)
    except _BareToken:
        return _reencoded(text)
    except (ValueError, RecursionError):
        return dumps(text), 1
    return escape_surrogates(text), len(parsed) if type(parsed) is list else 1


def _reencoded(text: str) -> tuple[str | None, int]:
    try:
        parsed = loads(text)
    except (ValueError, RecursionError):
        return dumps(text), 1
    return dumps(parsed), len(parsed) if type(parsed) is list else 1
