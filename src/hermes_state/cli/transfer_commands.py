"""``hermes-state export`` and ``import``: conversations out of a store and into one."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import click

from hermes_state import SessionDB
from hermes_state.cli import options, output, stores
from hermes_state.cli.failures import PROBLEM, Refused
from hermes_state.cli.text import clean, plural
from hermes_state.transfer import jsonl
from hermes_state.transfer.report import ImportReport, Problem

Record = dict[str, Any]
LONGEST_NAME = 150
"""Bytes of an id in a file's name; a longer one is cut, and its hash is added."""
BETWEEN = "\n---\n\n"
"""Stands between two conversations in one Markdown text."""


@click.command("export")
@click.argument("session", required=False, shell_complete=stores.complete_session)
@options.db
@click.option(
    "--output", "-o", "target", type=click.Path(path_type=Path), metavar="PATH",
    help="Write to this file (gzip if it ends in .gz), or for Markdown into this folder, a file a session."
    " Default: standard output.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["records", "sessions", "markdown"]), default="records",
    show_default=True,
    help="records: JSON Lines that import takes back exactly; sessions: a session with its messages a line.",
)  # fmt: skip
@options.source
@click.option("--force", is_flag=True, help="Replace files that are there.")
@options.as_json
def export_command(
    session: str | None, db: Path | None, target: Path | None, form: str, source: str | None, force: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Write one session, or all, as JSON Lines or Markdown.

    SESSION is an id, the beginning of one, or a title; without it everything is written. Memory stays
    small whatever the size. A file gets its name when it is whole. --json tells afterwards what was
    written, and needs --output.
    """
    if target is not None and str(target) == "-":
        target = None
    if as_json and target is None:
        raise click.UsageError("--json needs --output: standard output has the export itself")
    if session is not None and source is not None:
        raise click.UsageError("SESSION and --source exclude each other")
    if target is not None and target.is_file() and not force:
        raise Refused(f"{target} exists; --force replaces it")
    if target is not None and target.is_dir() and form != "markdown":
        raise click.UsageError(f"{target} is a folder; only Markdown goes into one")
    with stores.opened(db) as store:
        key = None if session is None else stores.session_id(store, session)
        written = _export(store, target, form, source, key, force)
    if target is not None:
        _tell_export({"path": str(target), **written}, as_json)


def _tell_export(written: Record, as_json: bool) -> None:
    if as_json:
        output.print_json(written)
        return
    sessions, messages = plural(written["sessions"], "session"), plural(written["messages"], "message")
    output.say(f"{sessions} with {messages} written to {clean(written['path'])}")


def _export(
    store: SessionDB, target: Path | None, form: str, source: str | None, key: str | None, force: bool
) -> Record:
    """Write what was asked for; how many sessions and messages."""
    with output.progress("exporting", printing=target is None) as advance:
        if form == "markdown":
            if target is not None and target.is_dir():
                return _markdown_files(store, target, source, key, force, advance)
            return _markdown(store, target, source, key, advance)
        where: Path | IO[str] = output.data_stream() if target is None else target
        report = store.export_jsonl(where, source, key, advance, form=form)
        if not isinstance(where, Path):
            where.flush()
    return {"sessions": report.sessions, "messages": report.messages}


def _ids(store: SessionDB, source: str | None, key: str | None) -> Iterator[str]:
    """The ids to write, by their start."""
    if key is not None:
        yield key
        return
    for name in store._session_keys(source, "export_markdown"):
        yield name.decode("utf-8", "replace")


def _markdown(
    store: SessionDB, target: Path | None, source: str | None, key: str | None, advance: output.Advance
) -> Record:
    """All conversations one after the other, in one text."""
    written = {"sessions": 0, "messages": 0}
    total = 1 if key is not None else store.session_count(source)

    def pieces() -> Iterator[str]:
        for session_id in _ids(store, source, key):
            try:
                conversation = store.export_markdown(session_id)
            except LookupError:
                continue  # deleted since the list was read
            if written["sessions"]:
                yield BETWEEN
            yield from conversation
            written["sessions"] += 1
            written["messages"] += store.message_count(session_id)
            advance(written["sessions"], total)

    if target is None:
        stream = output.data_stream()
        for piece in pieces():
            stream.write(_storable(piece))
        stream.flush()
        return written
    with jsonl.writing(target) as file:
        for piece in pieces():
            file.write(_storable(piece))
    return written


def _markdown_files(
    store: SessionDB, folder: Path, source: str | None, key: str | None, force: bool, advance: output.Advance
) -> Record:
    """A file a conversation, named by its id."""
    written: Record = {"sessions": 0, "messages": 0}
    total = 1 if key is not None else store.session_count(source)
    for session_id in _ids(store, source, key):
        path = folder / f"{file_name(session_id)}.md"
        if path.exists() and not force:
            raise Refused(
                f"{path} exists; --force replaces it ({plural(written['sessions'], 'session')} written)"
            )
        try:
            store.write_markdown(path, session_id)
        except LookupError:
            continue  # deleted since the list was read
        written["sessions"] += 1
        written["messages"] += store.message_count(session_id)
        advance(written["sessions"], total)
    return written


def file_name(session_id: str) -> str:
    """The id as a file's name: nothing in it is a folder, a drive or a hidden file."""
    name = quote(session_id, safe=" @+=,()[]{}!'").replace("~", "%7E")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{hashlib.sha256(session_id.encode()).hexdigest()[:16]}"


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


# -- import --


@click.command("import", short_help="Store the conversations of JSON Lines files.")
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...",
    type=click.Path(exists=True, readable=True, allow_dash=True, path_type=Path),
)  # fmt: skip
@options.db
@click.option("--session-id", metavar="ID", help="The session of a transcript, if not the file's name.")
@click.option("--session-source", metavar="NAME", help="The source of sessions that do not tell theirs.")
@options.as_json
def import_command(
    paths: tuple[Path, ...], db: Path | None, session_id: str | None, session_source: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Store the conversations of JSON Lines files; a second run stores nothing twice.

    Each PATH is a file (plain or gzip), a folder of *.jsonl and *.jsonl.gz, or - for standard input. Each
    line tells what it is: our export, a session with its messages, OpenAI's chat format, or a message of a
    transcript. A store that is not there is made. Lines that are wrong are told on standard error, by file
    and line, and passed over; the command then ends with 1.
    """
    place = stores.location(db)
    if place.exists() and place.stat().st_size:
        stores.refuse_unfit(place)
    reports = []
    with SessionDB(place) as store:
        for path in paths:
            report = _import(store, path, session_id, session_source)
            reports.append((str(path), report))
    if as_json:
        output.print_json([{"path": path, **report.as_dict()} for path, report in reports])
    else:
        for name, report in reports:
            _tell_import(name, report)
    if any(report.problem_count for _, report in reports):
        sys.exit(PROBLEM)


def _import(store: SessionDB, path: Path, session_id: str | None, session_source: str | None) -> ImportReport:
    source: Path | IO[bytes] = sys.stdin.buffer if str(path) == "-" else path

    def problem(found: Problem) -> None:
        output.note(f"{clean(found.file, 500)}:{found.line}: {clean(found.reason, 500)}")

    with output.progress(f"importing {clean(os.path.basename(path), 40)}") as advance:
        return store.import_jsonl(
            source, advance, problem, session_id=session_id, session_source=session_source
        )


def _tell_import(name: str, report: ImportReport) -> None:
    sessions, messages = plural(report.sessions, "session"), plural(report.messages, "message")
    text = f"{clean(name)}: {sessions} and {messages} stored"
    there = report.sessions_present + report.messages_present
    if there:
        text += (
            f", {plural(report.sessions_present, 'session')} and "
            f"{plural(report.messages_present, 'message')} were there"
        )
    for number, thing, what in (
        (report.ids_changed, "message", " under another id"),
        (report.titles_changed, "title", " changed"),
        (report.parents_missing, "parent", " missing"),
        (report.problem_count, "problem", ""),
    ):
        if number:
            text += f"; {plural(number, thing)}{what}"
    output.say(text)
