"""The demo's run: store, load, verify, append, search, follow a conversation, count."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hermes_state import SessionDB, fastpath_info
from hermes_state.cli import loading, queries
from hermes_state.cli.records import Problem, Reader, Record
from hermes_state.cli.report import Report, Search

SAMPLE: Final = Path(__file__).parent / "sample" / "conversations.jsonl"
HITS: Final = 2
"""Hits of a search that the report shows."""
MOST_PROBLEMS: Final = 100
"""Refused lines that the report names; the rest is counted."""
MODEL: Final = "demo/live"
TITLE: Final = "A live session of the demo"

DEPLOY: Final = {"name": "deploy", "arguments": '{"区域": "广西"}'}
LIVE_MESSAGES: Final[tuple[dict[str, Any], ...]] = (
    {"role": "user", "content": "Deploy the fix for #123 in src/main.py, and keep the cost under 50% of $5."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": DEPLOY}],
        "finish_reason": "tool_calls",
        "reasoning": "The region is named in the settings.",
    },
    {"role": "tool", "content": "deployed to 1 region", "tool_name": "deploy", "tool_call_id": "call_1"},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "Deployed. It costs 42% of $5."}],
        "finish_reason": "stop",
    },
)


@dataclass(frozen=True)
class Settings:
    """What the user chose.

    Attributes:
        input: the file to load; None is the sample.
        path: the store's file, which does not exist yet.
        kept: whether it stays after the run.
    """

    input: Path | None
    path: Path
    kept: bool
    indexing: str
    trigram: str


def run(
    settings: Settings,
    on_problem: Callable[[Problem], None],
    on_progress: Callable[[str, int], None],
) -> Report:
    """Do all of it; the report.

    ``on_problem`` hears of every line that is not stored, ``on_progress`` of the
    stage that the run is in, with the bytes of the file that were read.

    Raises:
        sqlite3.Error, OSError: the store or the file failed.
    """
    report = Report()
    reader = Reader(settings.input or SAMPLE)
    picker = queries.Picker()

    def refused(problem: Problem) -> None:
        if len(report.problems) < MOST_PROBLEMS:
            report.problems.append({"line": problem.line, "reason": problem.reason})
        on_problem(problem)

    def stored(record: Record) -> None:
        picker.see(record)
        on_progress("storing", reader.position)

    db = _open(settings)
    try:
        loaded = loading.load(db, reader, refused, stored)
        size = reader.path.stat().st_size
        on_progress("completing the index", size)
        started = time.perf_counter()
    finally:
        db.close()
    closing = time.perf_counter() - started
    _describe(report, settings, reader, loaded, closing)
    on_progress("comparing and searching", size)
    with _open(settings) as db:
        _verify(report, db, reader, loaded)
        live = _live(report, db)
        asked = list(queries.SAMPLE) if settings.input is None else picker.queries()
        report.searches = [_search(db, query) for query in (*asked, *queries.LIVE)]
        _lineage(report, db, loaded.continued if settings.input is None else None, live)
        report.tokens = db.token_usage_by_model()
        counts = {"sessions": db.session_count(), "messages": db.message_count()}
    _totals(report, settings, counts)
    return report


def _open(settings: Settings) -> SessionDB:
    return SessionDB(settings.path, indexing=settings.indexing, trigram=settings.trigram)


def _describe(
    report: Report, settings: Settings, reader: Reader, loaded: loading.Loaded, closing: float
) -> None:
    """What the store is and what went in."""
    report.store = {
        "path": str(settings.path),
        "kept": settings.kept,
        "indexing": settings.indexing,
        "trigram": settings.trigram,
    }
    report.input = {
        "file": reader.path.name if settings.input is None else str(settings.input),
        "sample": settings.input is None,
        "bytes": reader.path.stat().st_size,
        "unpacked_bytes": reader.unpacked,
        "lines": reader.lines,
    }
    names = ("sessions", "messages", "tool_calls", "refused", "titles_changed", "seconds", "store_seconds")
    report.loaded = {name: getattr(loaded, name) for name in names}
    report.loaded["close_seconds"] = closing


def _verify(report: Report, db: SessionDB, reader: Reader, loaded: loading.Loaded) -> None:
    found = loading.verify(db, reader, loaded)
    names = ("sessions", "equal", "mended", "different", "differences", "seconds", "exact")
    report.verified = {name: getattr(found, name) for name in names}


def _live(report: Report, db: SessionDB) -> list[str]:
    """A session as an agent would make it, compressed and gone on with; the ids of its two parts."""
    first = f"demo_{secrets.token_hex(6)}"
    db.create_session(first, "cli", model=MODEL)
    db.set_or_number_title(first, TITLE)
    seconds = []
    for message in LIVE_MESSAGES:
        started = time.perf_counter()
        db.append_message(first, **message)
        seconds.append(time.perf_counter() - started)
    db.update_token_counts(first, 1840, 212, reasoning_tokens=24, estimated_cost_usd=0.0087, api_call_count=2)
    got = db.get_messages(first)
    db.end_session(first, "compression")
    second = f"{first}_2"
    db.create_session(second, "cli", model=MODEL, parent_session_id=first)
    db.set_session_title(second, db.get_next_title_in_lineage(TITLE))
    db.append_message(second, "user", "Thanks. Which region was it?")
    db.update_token_counts(second, 310, 0, estimated_cost_usd=0.0009, api_call_count=1)
    report.live = {
        "session": first,
        "messages": len(LIVE_MESSAGES) + 1,
        "append_seconds": seconds,
        "read_back": {key: value for key, value in got[1].items() if value is not None},
        "equal": not any(
            loading.different_columns(given, row) for given, row in zip(LIVE_MESSAGES, got, strict=True)
        ),
    }
    return [first, second]


def _search(db: SessionDB, query: queries.Query) -> Search:
    started = time.perf_counter()
    hits = db.search_messages(query.text, limit=HITS)
    seconds = time.perf_counter() - started
    for hit in hits:
        hit["title"] = db.get_session_title(hit["session_id"])
    return Search(
        query=query.text,
        why=query.why,
        plan=db.explain_search(query.text),
        seconds=seconds,
        hits=hits,
        ok=bool(hits) or not query.must_hit,
    )


def _lineage(report: Report, db: SessionDB, continued: str | None, live: list[str]) -> None:
    """A conversation that was compressed: its links, and the one entry that lists show for it."""
    root = db.get_lineage(continued or live[0])[-1]["id"]
    tip = db.get_compression_tip(root) or root
    chain = [row["id"] for row in reversed(db.get_lineage(tip))]
    # The sample is short, and a live conversation is the newest of all: the first page has it.
    listed = [row for row in db.list_sessions_rich(limit=50) if row.get("_lineage_root_id") == root]
    report.lineage = {
        "chain": [
            {
                key: (db.get_session(session_id) or {}).get(key)
                for key in ("id", "title", "message_count", "end_reason")
            }
            for session_id in chain
        ],
        "tip": tip,
        "resume": db.resolve_resume_session_id(root),
        "listed": [
            {key: row.get(key) for key in ("id", "title", "message_count", "preview", "_lineage_root_id")}
            for row in listed
        ],
        "replayed_messages": len(db.get_messages_as_conversation(tip, include_ancestors=True)),
    }


def _totals(report: Report, settings: Settings, counts: dict[str, int]) -> None:
    """Counts, sizes and rates, after the store is closed and its file complete."""
    loaded = report.loaded
    searches = sorted(search.seconds for search in report.searches)
    info = fastpath_info()
    report.totals = {
        **counts,
        "file_bytes": settings.path.stat().st_size,
        "messages_per_second": _rate(loaded["messages"], loaded["store_seconds"]),
        "searchable_seconds": loaded["seconds"] + loaded["close_seconds"],
        "input_bytes_per_second": _rate(
            report.input["unpacked_bytes"], loaded["seconds"] + loaded["close_seconds"]
        ),
        "append_seconds_median": sorted(report.live["append_seconds"])[len(LIVE_MESSAGES) // 2],
        "search_seconds_median": searches[len(searches) // 2],
        "search_seconds_worst": searches[-1],
        "kernels": dict(info["kernels"]),
        "kernels_why": dict(info["why"]),
    }


def _rate(number: int, seconds: float) -> float | None:
    return number / seconds if seconds > 0 else None
