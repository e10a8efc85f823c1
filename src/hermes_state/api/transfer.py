"""SessionDB by subject: reading everything as a stream, export, import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hermes_state._fastpath import decode
from hermes_state.api.base import Handle
from hermes_state.api.import_run import ImportRun, Progress
from hermes_state.schema.ddl import SCHEMA_VERSION
from hermes_state.store import export, paging, sessions
from hermes_state.store import messages as message_rows
from hermes_state.store.message_writes import bound_id
from hermes_state.transfer import exporter, jsonl, markdown
from hermes_state.transfer.report import ExportReport, ImportReport, Problem

Record = dict[str, Any]

BATCH = 500
"""Messages of a page."""
SESSIONS_PAGE = 200


class TransferCalls(Handle):
    """Calls that read or write whole stores; each holds no more than a page."""

    # -- streams --

    def iter_messages(self, session_id: str, *, batch: int = BATCH) -> Iterator[Record]:
        """The session's messages in order, as ``get_messages`` gives them, a page at a time.

        Memory is that of a page (``batch`` messages, about 4 MB at most, or one longer message).
        No snapshot is kept between pages: messages that are appended meanwhile come too.

        Raises:
            StoreClosedError: the handle was closed, also between two pages.
        """
        self._check_open("iter_messages")
        key = _key(session_id)
        pages = self._pages(key, paging.NO_ID, batch, "iter_messages") if key is not None else iter(())
        return (message for names, rows in pages for message in decode.rows_to_messages(names, rows))

    def iter_export(self, source: str | None = None) -> Iterator[Record]:
        """Every session (of one source, or all) as ``export_session`` gives it, in the order of their start.

        One session is held at a time, and each is one snapshot; between two there is none.
        Sessions that are made or deleted meanwhile may come or not.
        """
        self._check_open("iter_export")

        def read() -> Iterator[Record]:
            for key in self._session_keys(source, "iter_export"):
                session_id = key.decode("utf-8", "replace")
                found = self._read(partial(export.session, session_id=session_id), "iter_export")
                if found is not None:
                    yield found

        return read()

    def iter_export_records(
        self, source: str | None = None, session_id: str | None = None
    ) -> Iterator[Record]:
        """The records of our export (docs/import-export.md), a page of messages held at a time.

        Raises:
            LookupError: there is no session ``session_id``.
        """
        self._check_open("iter_export_records")
        keys = self._session_keys(source, "iter_export_records")
        if session_id is not None:
            keys = iter([self._known_key(session_id)])
        return self._records(keys, ExportReport())

    def _records(self, keys: Iterator[bytes], report: ExportReport) -> Iterator[Record]:
        yield exporter.header(SCHEMA_VERSION)
        for key in keys:
            row, through = self._read(partial(paging.session, key=key), "export")
            if row is None:
                continue
            yield exporter.session_record(row)
            report.sessions += 1
            for names, rows in self._pages(key, through, BATCH, "export"):
                for record in exporter.message_records(names, rows):
                    report.messages += 1
                    yield record
        yield exporter.end(report.sessions, report.messages)

    def _session_keys(self, source: str | None, operation: str) -> Iterator[bytes]:
        after: paging.SessionKey | None = None
        while page := self._read(
            partial(paging.session_keys, after=after, limit=SESSIONS_PAGE, source=source or None), operation
        ):
            yield from (key for _, key in page)
            after = page[-1]

    def _pages(
        self, key: bytes, through: int, batch: int, operation: str
    ) -> Iterator[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
        after = -(2**63)
        while True:
            names, rows = self._read(
                partial(paging.message_page, key=key, after=after, through=through, limit=batch), operation
            )
            if not rows:
                return
            yield names, rows
            after = rows[-1][names.index("id")]

    def _known_key(self, session_id: str) -> bytes:
        key = _key(session_id)
        if key is None or self._read(lambda conn: paging.session(conn, key)[0], "export") is None:
            raise LookupError(f"There is no session {session_id!r}")
        return key

    # -- export --

    def export_jsonl(
        self,
        target: jsonl.Target,
        source: str | None = None,
        session_id: str | None = None,
        progress: Progress | None = None,
        *,
        form: str = "records",
    ) -> ExportReport:
        """Write sessions and their messages as JSON Lines, in bounded memory.

        Args:
            target: a path (written whole or not at all, owner-only, gzip where it ends in ``.gz``)
                or a text stream.
            source, session_id: only that source, only that session.
            progress: called with messages written so far and messages in all.
            form: ``"records"`` (our export: exact, and no session is held whole) or ``"sessions"``
                (one session with its messages a line, as ``export_session`` gives it).

        Raises:
            LookupError: there is no session ``session_id``; nothing was written.
            ValueError: an unknown form.
            OSError: the target cannot be written.
        """
        self._check_open("export_jsonl")
        if form not in ("records", "sessions"):
            raise ValueError(f"form must be 'records' or 'sessions', not {form!r}")
        report = ExportReport()
        keys = self._session_keys(source, "export_jsonl")
        if session_id is not None:
            keys = iter([self._known_key(session_id)])
        records = self._records(keys, report) if form == "records" else self._whole(keys, report)
        total = self._total(source, session_id) if progress is not None else 0
        with jsonl.writing(target) as stream:
            told = 0
            for record in records:
                stream.write(jsonl.line_of(record))
                if progress is not None and report.messages - told >= BATCH:
                    told = report.messages
                    progress(told, max(told, total))
        if progress is not None:
            progress(report.messages, max(report.messages, total))
        return report

    def _whole(self, keys: Iterator[bytes], report: ExportReport) -> Iterator[Record]:
        for key in keys:
            session_id = key.decode("utf-8", "replace")
            found = self._read(partial(export.session, session_id=session_id), "export_jsonl")
            if found is not None:
                report.sessions += 1
                report.messages += len(found["messages"])
                yield found

    def _total(self, source: str | None, session_id: str | None) -> int:
        if session_id is not None:
            return self._read(lambda conn: message_rows.count(conn, session_id), "export_jsonl")
        return self._read(lambda conn: paging.message_count(conn, source or None), "export_jsonl")

    def export_markdown(self, session_id: str) -> Iterator[str]:
        """The conversation as Markdown, in pieces of one message at most.

        Raises:
            LookupError: there is no such session.
        """
        self._check_open("export_markdown")
        row = self._read(lambda conn: sessions.get(conn, session_id), "export_markdown")
        if row is None:
            raise LookupError(f"There is no session {session_id!r}")
        return markdown.conversation(row, self.iter_messages(session_id))

    def write_markdown(self, target: jsonl.Target, session_id: str) -> None:
        """Write ``export_markdown`` to a path (whole or not at all) or a text stream."""
        pieces = self.export_markdown(session_id)
        with jsonl.writing(target) as stream:
            for piece in pieces:
                stream.write(piece.encode("utf-8", "replace").decode("utf-8"))

    # -- import --

    def import_jsonl(
        self,
        source: jsonl.Source,
        progress: Progress | None = None,
        on_error: Callable[[Problem], None] | None = None,
        *,
        session_id: str | None = None,
        session_source: str | None = None,
    ) -> ImportReport:
        """Store what a JSON Lines file holds; a second run stores nothing twice.

        Takes our own export, sessions with their messages a line, OpenAI's chat format, and
        transcripts of one message a line; each line tells by itself what it is
        (docs/import-export.md). Lines that are wrong are reported and passed over.

        Args:
            source: a path (plain or gzip), a folder of ``*.jsonl`` files, or a stream.
            progress: called with bytes read and bytes in all (0 for a stream).
            on_error: called with each problem as it is met; what it raises ends the import.
            session_id: the session of transcript lines, where it is not the name of the file.
            session_source: the source of sessions whose lines do not tell it.

        Raises:
            OSError: the file cannot be read.
            StoreBusyError, StoreFullError: as for every write. What was stored before stays; the
                import can be run again.
        """
        self._check_open("import_jsonl")
        lines = jsonl.Reader(source)
        with ImportRun(self, lines, progress, on_error, session_id, session_source) as run:
            return run.read()


def _key(session_id: str) -> bytes | None:
    """The bytes of an id; None for what no session is called."""
    return bound_id(session_id).encode() if isinstance(session_id, str) else None
