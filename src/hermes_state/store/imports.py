"""Storing what an import found: sessions with all their columns, messages with their ids where free.

A session that is there keeps what it has; only what it lacks is filled in. A
message that is there is not stored again. The order of a session's messages
is that of the file: an id is kept only as long as it keeps that order.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import apsw

from hermes_state._fastpath import encode
from hermes_state.store import sessions, titles
from hermes_state.store.rows import Row, column, rows, scalar
from hermes_state.store.values import json_list
from hermes_state.transfer.importer import Found, MessageFound, SessionFound
from hermes_state.transfer.jsonl import Line
from hermes_state.transfer.report import ImportReport, Problem
from hermes_state.transfer.seen import Seen

CHUNK = 64
"""Messages between two looks at the clock."""
CHUNK_CHARS = 200_000
"""Characters of content and tool calls after which a chunk takes no further message."""
_SIZES = (32, 16, 8, 4, 2, 1)
_WIDTH = len(encode.COLUMNS)
_TIME = encode.COLUMNS.index("timestamp")
_CONTENT = encode.COLUMNS.index("content")
_CALLS = encode.COLUMNS.index("tool_calls")
_ROW_ERRORS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.BindingsError)


def _insert_sql(number: int) -> str:
    one = f"({','.join('?' * (_WIDTH + 1))})"
    return f"INSERT INTO messages(id,{','.join(encode.COLUMNS)}) VALUES {','.join([one] * number)}"  # noqa: S608


_INSERT = {size: _insert_sql(size) for size in _SIZES}
_TAKEN = "SELECT m.id, m.session_id FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value"
_NEXT_ID = (
    "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0),"
    " COALESCE((SELECT MAX(id) FROM messages), 0)) + 1"
)
_ADD = (
    "UPDATE sessions SET message_count = COALESCE(message_count, 0) + ?, "
    "tool_call_count = COALESCE(tool_call_count, 0) + ? WHERE id = ?"
)
_COLUMNS = "SELECT name FROM pragma_table_info(?)"
_HANG = (
    "UPDATE sessions SET parent_session_id = ?1 WHERE id = ?2 AND parent_session_id IS NULL"
    " AND EXISTS (SELECT 1 FROM sessions WHERE id = ?1)"
)
_FILLED_IN = ("model", "model_config", "system_prompt", "user_id")


class State:
    """What is known of one session while its messages come in.

    Attributes:
        present: the session was in the store when it was looked up.
        seen: its stored messages, to be matched; None where there were none.
        aligned: every message so far has the id that the file gives it.
        last_id: the id of the last message.
        stamp: the time of the last message, seconds since the epoch.
    """

    __slots__ = ("aligned", "last_id", "made", "present", "seen", "stamp")

    def __init__(self, present: bool, seen: Seen | None) -> None:
        self.present = present
        self.made = present
        self.seen = seen
        self.aligned = True
        self.last_id = 0
        self.stamp: float | None = None


Waiting = deque[tuple[Found, State]]


class Applier:
    """Stores what was found, piece by piece, in transactions that the caller opens.

    Args:
        report: counts here.
        problem: told of a message that SQLite refuses.
        hang_later: takes (session, parent) where the parent is not there yet.
        index: called in the transaction with the ids of new messages.
    """

    def __init__(
        self,
        report: ImportReport,
        problem: Callable[[Problem], None],
        hang_later: Callable[[str, str], None],
        index: Callable[[apsw.Connection, list[int]], None],
    ) -> None:
        self._report = report
        self._problem = problem
        self._hang_later = hang_later
        self._index = index

    def apply(self, conn: apsw.Connection, waiting: Waiting, deadline: float) -> int:
        """Store from the left of ``waiting`` until it is empty or the time is up; how many messages."""
        counts: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        while waiting:
            found, state = waiting[0]
            if isinstance(found, SessionFound):
                waiting.popleft()
                self._session(conn, found, state)
            else:
                stored = self._messages(conn, waiting)
                self._index(conn, [message_id for message_id, _ in stored])
                for _, row in stored:
                    counts[row[0]] += 1
                    calls[row[0]] += row[_WIDTH]
            if time.monotonic() >= deadline:
                break
        for session_id, number in counts.items():
            conn.execute(_ADD, (number, calls[session_id], session_id))
        return counts.total()

    # -- sessions --

    def _session(self, conn: apsw.Connection, found: SessionFound, state: State) -> None:
        """Make the session, or fill in what the one that is there lacks."""
        values = dict(found.values)
        parent = values.pop("parent_session_id", None)
        source = values.get("source")
        values["source"] = sessions.UNKNOWN_SOURCE if source is None else str(source)
        if values.get("started_at") is None:
            values["started_at"] = time.time()
        if parent is not None and not sessions.exists(conn, parent):
            self._hang_later(found.session_id, parent)
            parent = None
        state.stamp = values["started_at"]
        if not state.made and sessions.exists(conn, found.session_id):
            # Another process made it since we looked.
            state.present, state.seen = True, Seen(_stored(conn, found.session_id))
        state.made = True
        if state.present:
            known = {name: values[name] for name in _FILLED_IN if values.get(name) is not None}
            sessions.create(conn, found.session_id, values["source"], parent_session_id=parent, **known)
            self._report.sessions_present += 1
            return
        for name in ("message_count", "tool_call_count"):
            # Each stored message counts itself.
            values[name] = None if name in values and values[name] is None else 0
        values["title"] = self._title(conn, values.get("title"), exact=found.exact)
        try:
            _insert(conn, "sessions", {**values, "id": found.session_id, "parent_session_id": parent})
        except _ROW_ERRORS as error:
            self._refused(found.line, error)
        else:
            self._report.sessions += 1

    def _title(self, conn: apsw.Connection, given: Any, *, exact: bool) -> str | None:
        """The title as given where it is free, else with the next number of its family."""
        if given is None:
            return None
        title: str | None = str(given)
        if not exact:
            title = titles.sanitize(str(given)[: titles.MAX_LENGTH])
        if title is not None and scalar(conn, "SELECT 1 FROM sessions WHERE title = ?", (title,)):
            title = titles.next_in_lineage(conn, title) or None
        if title != given:
            self._report.titles_changed += 1
        return title

    def _refused(self, line: Line, error: apsw.Error) -> None:
        self._problem(Problem(line.file, line.number, f"the store refuses it: {error}"))

    # -- messages --

    def _messages(self, conn: apsw.Connection, waiting: Waiting) -> list[tuple[int, Row]]:
        """Store the messages at the left of ``waiting``, CHUNK at most; those that are new."""
        chunk: list[tuple[MessageFound, State]] = []
        chars = 0
        while waiting and len(chunk) < CHUNK and chars < CHUNK_CHARS:
            found, state = waiting[0]
            if not isinstance(found, MessageFound):
                break
            waiting.popleft()
            chunk.append((found, state))
            chars += len(found.row[_CONTENT] or "") + len(found.row[_CALLS] or "")
        given = [found.id for found, _ in chunk if found.id is not None]
        taken: dict[int, str] = dict(rows(conn, _TAKEN, (json_list(given),))[1]) if given else {}
        next_id = int(scalar(conn, _NEXT_ID))
        new: list[tuple[MessageFound, int, Row]] = []
        for found, state in chunk:
            self._make_unknown(conn, found, state)
            if state.seen is not None and state.seen.take(found.row, timed=found.timed):
                state.aligned &= found.id is not None and taken.get(found.id) == found.session_id
                state.last_id = found.id or state.last_id
                self._report.messages_present += 1
                continue
            message_id = found.id
            if message_id is None or message_id in taken or not state.aligned or message_id <= state.last_id:
                self._report.ids_changed += message_id is not None
                message_id, state.aligned = next_id, False
            next_id = max(next_id, message_id + 1)
            taken[message_id] = found.session_id
            state.last_id = message_id
            new.append((found, message_id, self._stamped(found.row, state)))
        return self._insert_messages(conn, new)

    def _make_unknown(self, conn: apsw.Connection, found: MessageFound, state: State) -> None:
        """A message whose session no line tells about makes a session of source ``unknown``."""
        if not state.made:
            values = {"source": None, "started_at": found.row[_TIME]}
            self._session(conn, SessionFound(found.line, found.session_id, values), state)

    @staticmethod
    def _stamped(row: Row, state: State) -> Row:
        """``row`` with a time: the one it has, else a microsecond after the message before it."""
        stamp = row[_TIME]
        if stamp is None:
            stamp = time.time() if state.stamp is None else state.stamp + 1e-6
            row = (*row[:_TIME], stamp, *row[_TIME + 1 :])
        if isinstance(stamp, float):
            state.stamp = stamp
        return row

    def _insert_messages(
        self, conn: apsw.Connection, new: list[tuple[MessageFound, int, Row]]
    ) -> list[tuple[int, Row]]:
        stored: list[tuple[int, Row]] = []
        start = 0
        for size in _SIZES:
            while len(new) - start >= size:
                stored += self._insert_part(conn, new[start : start + size])
                start += size
        self._report.messages += len(stored)
        return stored

    def _insert_part(
        self, conn: apsw.Connection, part: list[tuple[MessageFound, int, Row]]
    ) -> list[tuple[int, Row]]:
        """Insert as many as one of _SIZES in one statement; where one is refused, each alone."""
        try:
            values = [value for _, message_id, row in part for value in (message_id, *row[:_WIDTH])]
            conn.execute(_INSERT[len(part)], values)
        except _ROW_ERRORS as error:
            if len(part) == 1:
                self._refused(part[0][0].line, error)
                return []
            return [stored for one in part for stored in self._insert_part(conn, [one])]
        for found, message_id, _ in part:
            for name, value in found.extra.items():
                conn.execute(f"UPDATE messages SET {_quoted(name)} = ? WHERE id = ?", (value, message_id))  # noqa: S608
        return [(message_id, row) for _, message_id, row in part]


def hang(conn: apsw.Connection, pairs: Iterable[tuple[str, str]]) -> int:
    """Give sessions that have no parent theirs, as (session, parent); how many parents are unknown."""
    unknown = 0
    for session_id, parent in pairs:
        conn.execute(_HANG, (parent, session_id))
        unknown += conn.changes() == 0 and not sessions.exists(conn, parent)
    return unknown


def live_columns(conn: apsw.Connection, table: str) -> frozenset[str]:
    """The columns of a table that can be written to, those of other programs too."""
    return frozenset(column(conn, _COLUMNS, (table,)))


def _stored(conn: apsw.Connection, session_id: str) -> Iterable[Row]:
    sql = f"SELECT {','.join(encode.COLUMNS)} FROM messages WHERE session_id = ?"  # noqa: S608
    return rows(conn, sql, (session_id,))[1]


def _insert(conn: apsw.Connection, table: str, values: dict[str, Any]) -> None:
    """One row of the columns that ``values`` names; SQLite gives the others their defaults."""
    names = ",".join(map(_quoted, values))
    marks = ",".join("?" * len(values))
    conn.execute(f"INSERT INTO {table}({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
