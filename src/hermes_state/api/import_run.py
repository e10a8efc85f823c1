"""One run of an import: from lines to transactions of bounded length and size."""

from __future__ import annotations

import json
import tempfile
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apsw

from hermes_state.api.base import Handle
from hermes_state.search import forgetting, indexing, tables
from hermes_state.store import imports, paging, sessions
from hermes_state.transfer import jsonl
from hermes_state.transfer.importer import Found, Parser, SessionFound
from hermes_state.transfer.report import ImportReport, Problem
from hermes_state.transfer.seen import Seen

Progress = Callable[[int, int], None]

MOST_MESSAGES = 1000
MOST_BYTES = 4_000_000
"""What an import holds at most before it is stored; a single line may be longer."""
PAGE = 500
"""Stored messages that are read at a time to be compared."""
HOLD_S = 0.040
"""How long one transaction of an import should hold the write lock, seconds."""
REST_S = 0.002
"""Pause between two transactions, in which another process's writer gets the lock."""
STATES = 64
"""Sessions of which an import remembers where it is, for files that mix them."""


class ImportRun:
    """One run of ``import_jsonl``, used as a context manager."""

    def __init__(
        self,
        db: Handle,
        lines: jsonl.Reader,
        progress: Progress | None,
        on_error: Callable[[Problem], None] | None,
        session_id: str | None,
        session_source: str | None,
    ) -> None:
        self._db = db
        self._lines = lines
        self._progress = progress
        self._on_error = on_error
        self._report = ImportReport()
        columns = [
            db._read(partial(imports.live_columns, table=name), "import_jsonl")
            for name in ("sessions", "messages")
        ]
        self._parser = Parser(
            self._report, self._problem, *columns, transcript_id=session_id, source=session_source
        )
        self._applier = imports.Applier(self._report, self._problem, self._hang_later, self._index)
        self._states: OrderedDict[str, imports.State] = OrderedDict()
        self._waiting: imports.Waiting = deque()
        self._waiting_for: set[str] = set()
        self._bytes = 0
        # Children whose parent comes later: on the disk where there are many.
        self._hanging = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by __exit__
            max_size=1_000_000, mode="w+", encoding="ascii"
        )

    def __enter__(self) -> ImportRun:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._hanging.close()

    def _problem(self, problem: Problem) -> None:
        self._report.add(problem)
        if self._on_error is not None:
            self._on_error(problem)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._lines.done, self._lines.total)

    def _hang_later(self, session_id: str, parent: str) -> None:
        self._hanging.write(json.dumps([session_id, parent]) + "\n")

    def read(self) -> ImportReport:
        """Store every line; the report."""
        for line in self._lines:
            for found in self._parser.parse(line):
                self._take(found)
            self._bytes += len(line.text or b"")
            if self._bytes >= MOST_BYTES:
                self._flush()
        self._flush()
        self._hang()
        self._tell()
        return self._report

    def _take(self, found: Found) -> None:
        """Put what was found in the queue, with what is known of its session."""
        state = None if isinstance(found, SessionFound) else self._states.get(found.session_id)
        if state is None:
            if found.session_id in self._waiting_for:
                self._flush()
            state = self._look_up(found.session_id)
            self._states[found.session_id] = state
            if len(self._states) > STATES:
                self._states.popitem(last=False)
        self._states.move_to_end(found.session_id)
        self._waiting.append((found, state))
        self._waiting_for.add(found.session_id)
        if len(self._waiting) >= MOST_MESSAGES:
            self._flush()

    def _look_up(self, session_id: str) -> imports.State:
        """The session as it is stored: its messages are read outside any write transaction."""
        if not self._db._read(lambda conn: sessions.exists(conn, session_id), "import_jsonl"):
            return imports.State(False, None)
        return imports.State(True, Seen(self._stored_rows(session_id.encode())))

    def _stored_rows(self, key: bytes) -> Iterator[tuple[Any, ...]]:
        after = -(2**63)
        while rows := self._db._read(
            partial(paging.stored_messages, key=key, after=after, limit=PAGE), "import_jsonl"
        ):
            yield from (row[1:] for row in rows)
            after = rows[-1][0]

    def _flush(self) -> None:
        """Store what waits, in transactions of about HOLD_S."""
        while self._waiting:
            number = len(self._waiting)
            self._db._write(
                self._store, "import_jsonl", rows=number, seconds=self._db._engine.message_patience
            )
            if self._waiting:
                time.sleep(REST_S)
        self._waiting_for.clear()
        self._bytes = 0
        self._tell()

    def _store(self, conn: apsw.Connection) -> int:
        return self._applier.apply(conn, self._waiting, time.monotonic() + HOLD_S)

    def _index(self, conn: apsw.Connection, new: list[int]) -> None:
        """Rows at or below the watermark would be taken for indexed (docs/design.md): index them now."""
        forgetting.settle(conn, new)
        indexed_through = tables.watermark(conn)
        indexing.index_rows(conn, [i for i in new if i <= indexed_through])
        self._db._engine.index_inline(conn, [i for i in new if i > indexed_through])

    def _hang(self) -> None:
        """Give the sessions whose parent came after them their parent."""
        self._hanging.seek(0)
        while lines := self._hanging.readlines(50_000):
            pairs = [(child, parent) for child, parent in map(json.loads, lines)]
            self._report.parents_missing += self._db._write(
                partial(imports.hang, pairs=pairs), "import_jsonl"
            )
