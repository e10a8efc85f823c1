"""Lines of a file -> sessions and messages to store. Each line tells by itself what it is.

* ``{"hermes_state_export": {...}}``, ``{"session": {...}}``, ``{"message": {...}}``, ``{"end": {...}}``:
  our own export (transfer.exporter);
* ``{"id": ..., "messages": [...]}``: a session with its messages, as ``export_session`` gives it, or with
  some of these keys;
* ``{"messages": [...]}``: OpenAI's chat format (transfer.openai);
* ``{"role": ..., ...}``: a message of a transcript, one file a session, whose name is the session's id.
  A line of role ``session_meta`` tells about the session.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from hermes_state._fastpath import encode, json_text, text

from . import openai
from .exporter import FORMAT
from .jsonl import BadLine, Line
from .report import ImportReport, Problem

REAL: Final = ("started_at", "ended_at", "estimated_cost_usd", "actual_cost_usd")
WHOLE: Final = (
    "message_count", "tool_call_count", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "reasoning_tokens", "api_call_count",
)  # fmt: skip
JSON: Final = ("model_config",)
_TIME = encode.COLUMNS.index("timestamp")
_CALLS = encode.COLUMNS.index("tool_calls")
_ENCODED = (
    "content", "tool_name", "tool_calls", "tool_call_id", "token_count", "finish_reason", "reasoning",
    "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items",
)  # fmt: skip
"""The arguments of ``encode.encode_message`` after session and role, before the timestamp."""
_KEYS = frozenset({"id", *encode.COLUMNS})
_MOST_ID = 2**53
"""Ids from here on are not kept: other JSON readers round them, and ids must not run out."""
_SAME_NAMES = {"parent": "parent_session_id", "platform": "source"}
TRANSCRIPT_ENDS: Final = (".jsonl", ".ndjson", ".json")


@dataclass(slots=True)
class SessionFound:
    """A session begins.

    Attributes:
        values: columns to their values, ready to bind; ``id`` left out.
        exact: it comes from our own export: nothing of it is cleaned.
    """

    line: Line
    session_id: str
    values: dict[str, Any]
    exact: bool = False


@dataclass(slots=True)
class MessageFound:
    """A message of a session.

    Attributes:
        row: as ``encode.encode_message`` makes it; its timestamp may be None.
        id: the id to keep, or None.
        timed: the file gives the time.
        extra: values of further columns.
    """

    line: Line
    session_id: str
    row: tuple[Any, ...]
    id: int | None
    timed: bool
    extra: dict[str, Any] = field(default_factory=dict)


Found = SessionFound | MessageFound


class Parser:
    """Turns lines into what is to be stored.

    Args:
        report: counts lines and keys here.
        problem: told of each line, or part of one, that is not taken.
        session_columns, message_columns: what the store has columns for.
        transcript_id: the session of transcript lines; None for the name of their file.
        source: the source of sessions that do not tell theirs.
    """

    def __init__(
        self,
        report: ImportReport,
        problem: Callable[[Problem], None],
        session_columns: frozenset[str],
        message_columns: frozenset[str],
        *,
        transcript_id: str | None = None,
        source: str | None = None,
    ) -> None:
        self._report = report
        self._problem = problem
        self._session_columns = session_columns
        self._message_columns = message_columns
        self._transcript_id = transcript_id
        self._source = source
        self._file: str | None = None
        self._transcript_begun = False
        self._meta: dict[str, Any] = {}
        self._in_export = [0, 0]

    def parse(self, line: Line) -> Iterator[Found]:
        """What the line holds; whatever is wrong with it is reported, never raised."""
        if line.file != self._file:
            self._file, self._transcript_begun, self._meta, self._in_export = line.file, False, {}, [0, 0]
        try:
            given = line.value()
            if not isinstance(given, dict):
                raise BadLine("not a JSON object")
            kind, found = self._kind(line, given)
            self._report.count_line(kind)
            yield from found
        except BadLine as error:
            self._report.count_line("bad")
            self._wrong(line, str(error))

    def _kind(self, line: Line, given: dict[str, Any]) -> tuple[str, Iterator[Found]]:
        if isinstance(given.get("messages"), list):
            named = isinstance(given.get("id"), str) and given["id"]
            return ("session" if named else "chat"), self._whole(line, given)
        if isinstance(given.get("role"), str):
            return "transcript", self._transcript(line, given)
        if isinstance(given.get("session"), dict):
            return "export", self._session_record(line, given["session"])
        if isinstance(given.get("message"), dict):
            return "export", self._message_record(line, given["message"], given.get("stored"))
        if isinstance(given.get("hermes_state_export"), dict):
            return "export", self._header_record(line, given["hermes_state_export"])
        if isinstance(given.get("end"), dict):
            return "export", self._end_record(line, given["end"])
        raise BadLine("neither a message, a session with messages, nor a line of an export")

    def _wrong(self, line: Line, reason: str) -> None:
        self._problem(Problem(line.file, line.number, reason))

    # -- our own export --

    def _header_record(self, line: Line, given: dict[str, Any]) -> Iterator[Found]:
        if given.get("format") != FORMAT:
            self._wrong(
                line, f"form {given.get('format')!r} of the export is not {FORMAT}: read as far as known"
            )
        return iter(())

    def _session_record(self, line: Line, given: dict[str, Any]) -> Iterator[Found]:
        session_id = _name(given.get("id"), "id")
        self._in_export[0] += 1
        yield SessionFound(line, session_id, self._session(line, given), exact=True)

    def _message_record(self, line: Line, given: dict[str, Any], stored: Any) -> Iterator[Found]:
        session_id = _name(given.get("session_id"), "session_id")
        self._in_export[1] += 1
        yield self._message(line, session_id, given, stored if isinstance(stored, dict) else {})

    def _end_record(self, line: Line, given: dict[str, Any]) -> Iterator[Found]:
        written = [given.get("sessions"), given.get("messages")]
        if written != self._in_export:
            self._wrong(
                line,
                f"{written[0]!r} sessions and {written[1]!r} messages were exported,"
                f" {self._in_export[0]} and {self._in_export[1]} were read",
            )
        return iter(())

    # -- a session with its messages in one line --

    def _whole(self, line: Line, given: dict[str, Any]) -> Iterator[Found]:
        messages = given["messages"]
        about = {key: value for key, value in given.items() if key != "messages"}
        named = isinstance(given.get("id"), str) and given["id"]
        session_id = text.clean(given["id"]) if named else openai.session_id(messages)
        values = self._session(line, about)
        if "started_at" not in values:
            first = next((m.get("timestamp") for m in messages if isinstance(m, dict)), None)
            values["started_at"] = _time_or_none(first)
        values.setdefault("source", self._source or "import")
        yield SessionFound(line, session_id, values)
        for index, message in enumerate(messages):
            try:
                if not isinstance(message, dict):
                    raise BadLine("not an object")
                yield self._message(line, session_id, openai.message(message), {}, zone=UTC)
            except BadLine as error:
                self._wrong(line, f"messages[{index}]: {error}")

    # -- transcripts --

    def _transcript(self, line: Line, given: dict[str, Any]) -> Iterator[Found]:
        session_id = self._transcript_id or transcript_id(line.file)
        if not session_id:
            raise BadLine("a message without a session: the stream has no file name to take its id from")
        if given["role"] == "session_meta":
            self._meta = {key: given[key] for key in ("model", "platform", "source") if given.get(key)}
            return
        message = self._message(line, session_id, openai.message(given), {})
        if not self._transcript_begun:
            self._transcript_begun = True
            values = self._session(line, self._meta)
            values.setdefault("source", self._source or "unknown")
            yield SessionFound(line, session_id, {**values, "started_at": message.row[_TIME]})
        yield message

    # -- values --

    def _session(self, line: Line, given: dict[str, Any]) -> dict[str, Any]:
        """The columns that the store has, ready to bind; a value of the wrong kind is left out."""
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = key if key in self._session_columns else _SAME_NAMES.get(key, key)
            if name not in self._session_columns:
                self._report.unknown(f"session.{key}"[:200])
            elif name != "id":
                try:
                    values.setdefault(name, session_value(name, value))
                except BadLine as error:
                    self._wrong(line, f"{key!r:.80}: {error}")
        return values

    def _message(
        self,
        line: Line,
        session_id: str,
        given: dict[str, Any],
        stored: dict[str, Any],
        zone: Any = None,
    ) -> MessageFound:
        timestamp = None if "timestamp" in stored else given.get("timestamp")
        values = [None if name in stored else given.get(name) for name in _ENCODED]
        try:
            if isinstance(timestamp, str):
                timestamp = _epoch(timestamp, zone)
            arguments = [session_id, given["role"], *values, timestamp]
            row = encode.encode_message(*arguments)
        except KeyError as error:
            raise BadLine(f"{error} is missing") from error
        except (TypeError, ValueError) as error:
            raise BadLine(str(error)) from error
        if stored:
            row = _as_stored(row, stored)
        extra = {}
        for key in given.keys() - _KEYS:
            if key in self._message_columns:
                extra[key] = _scalar(given[key])
            else:
                self._report.unknown(f"message.{key}"[:200])
        kept = given.get("id")
        is_id = type(kept) is int and 0 < kept < _MOST_ID
        return MessageFound(line, session_id, row, kept if is_id else None, row[_TIME] is not None, extra)


def transcript_id(file: str) -> str:
    """The session that a transcript's file name stands for; empty for a stream without a name."""
    name = "" if file == "<stream>" else os.path.basename(file)
    name = name.removesuffix(".gz")
    end = next((end for end in TRANSCRIPT_ENDS if name.endswith(end)), "")
    name = name.removesuffix(end)
    return text.clean(name)


def session_value(name: str, value: Any) -> Any:
    """What is bound for a column of ``sessions``.

    Raises:
        BadLine: the column cannot hold such a value.
    """
    if value is None:
        return None
    if name in REAL:
        return _time_or_none(value, required=True) if name.endswith("_at") else _number(value)
    if name in WHOLE:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise BadLine("not a whole number of 64 bits")
        return value
    if name in JSON and isinstance(value, dict | list):
        try:
            return json_text.dumps(value)
        except ValueError as error:
            raise BadLine(str(error)) from error
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value if value is None else text.clean(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict | list):
        raise BadLine("a list or object, where text or a number belongs")
    return _number(value)


def _number(value: Any) -> Any:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    raise BadLine("not a finite number of 64 bits")


def _as_stored(row: tuple[Any, ...], stored: dict[str, Any]) -> tuple[Any, ...]:
    """``row`` with the columns of ``stored`` as they stood in the table that was exported."""
    values = list(row)
    for index, name in enumerate(encode.COLUMNS):
        if name in stored and name not in ("session_id", "role"):
            values[index] = _as_held(name, _scalar(stored[name]))
    values[-1] = encode.count_tool_calls(values[_CALLS])
    return tuple(values)


_NUMBERS: Final = {"token_count": int, "timestamp": float}
"""The columns of a message that hold numbers; the others hold text."""
_NUMERAL = re.compile(r"[ \t-\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t-\r]*", re.ASCII)


def _as_held(name: str, value: Any) -> Any:
    """``value`` as the column gives it back, so that a second import knows it again.

    Source: column affinity, https://www.sqlite.org/datatype3.html, section 3.
    """
    if value is None:
        return None
    kind = _NUMBERS.get(name)
    if kind is None:
        return value if isinstance(value, str) else str(value)
    if isinstance(value, str):
        numeral = _NUMERAL.fullmatch(value)
        if numeral is None:
            return value
        value = int(numeral[1]) if numeral[1].lstrip("+-").isdigit() else float(numeral[1])
        if not -(2**63) <= value < 2**63:
            value = float(value)
    if kind is float:
        return float(value)
    return int(value) if abs(value) < 2**63 and value == math.floor(value) else value


def _name(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise BadLine(f"{key!r} is no text")
    return text.clean(value)


def _epoch(given: str, zone: Any) -> float:
    """Seconds since the epoch of an ISO 8601 time; without a zone it is of ``zone`` (None: local)."""
    try:
        when = datetime.fromisoformat(given)
        return (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise BadLine(f"timestamp is not a time: {given[:60]!a}") from error


def _time_or_none(value: Any, *, required: bool = False) -> float | None:
    """Seconds since the epoch of a number, or of an ISO 8601 time (UTC where it names no zone)."""
    try:
        seconds = _epoch(value, UTC) if isinstance(value, str) else _number(value)
    except BadLine:
        if required:
            raise
        return None
    return float(seconds)
