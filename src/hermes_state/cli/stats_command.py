"""``hermes-state stats``: what is in the store, and what takes its space."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from hermes_state import SessionDB
from hermes_state.cli import options, output, stores
from hermes_state.cli.text import clean, cost_text, count_text, size_text, when_text
from hermes_state.search import health as index_health
from hermes_state.search import tables
from hermes_state.store import figures

Record = dict[str, Any]
MODELS = 20
"""Rows of a table by source or model that are printed."""
COUNTED = {
    "session_count": "sessions",
    "total_messages": "messages",
    "total_input": "tokens in",
    "total_output": "tokens out",
}
FTS_TABLES = (tables.FTS, tables.TRIGRAM, tables.WORDS)
_SHADOW = {f"{table}_{end}": table for table in FTS_TABLES for end in index_health.SHADOWS}


@click.command("stats", short_help="Print what is in the store and what takes its space.")
@options.db
@click.option("--sizes/--no-sizes", default=True, help="Measure each table and index, which reads the file.")
@options.as_json
def command(db: Path | None, sizes: bool, as_json: bool) -> None:
    """Print sessions, messages, tokens and cost, by source and by model, and the size of everything."""
    with stores.opened(db) as store:
        found = collect(store, sizes=sizes)
    if as_json:
        output.print_json(found)
    else:
        _print(found)


def collect(store: SessionDB, *, sizes: bool) -> Record:
    """All figures; those of each table and index in a snapshot of its own."""
    return {
        "store": store.store_info(),
        "totals": store._read(figures.totals, "stats"),
        "by_source": store.token_usage_by_source(),
        "by_model": store.token_usage_by_model(),
        "top_sessions": store.top_sessions_by_tokens(5),
        "file": {**_files(store.db_path), **store._read(figures.pages, "stats")},
        "objects": _objects(store) if sizes else None,
    }


def _files(path: Path) -> Record:
    """Bytes of the store's file and of its WAL."""
    wal = Path(f"{path}-wal")
    return {"bytes": path.stat().st_size, "wal_bytes": wal.stat().st_size if wal.exists() else 0}


def _objects(store: SessionDB) -> list[Record] | None:
    """Every table and index with its size, largest first; None where this SQLite cannot tell."""
    if not store._read(figures.has_sizes, "stats"):
        return None
    found = store._read(figures.objects, "stats")
    pages = store._read(figures.pages, "stats")
    total = pages["page_count"] - pages["free_pages"]
    done = 0
    with output.progress("measuring") as advance:
        for thing in found:
            thing.update(store._read(partial(figures.size, name=thing["name"]), "stats"))
            thing["part_of"] = _SHADOW.get(thing["tbl_name"], thing["tbl_name"])
            done += thing["pages"]
            advance(done, max(done, total))
        advance(done, done)
    return sorted(found, key=lambda thing: -thing["bytes"])


def _print(found: Record) -> None:
    _print_totals(found)
    _print_usage("By source", "source", found["by_source"])
    _print_usage("By model", "model", found["by_model"])
    _print_sizes(found)


def _print_usage(title: str, name: str, rows: list[Record]) -> None:
    """Sessions, tokens and cost by source or model; messages where they are counted."""
    if not rows:
        return
    counts = [column for column in COUNTED if column in rows[0]]
    heads = [f">{COUNTED[column]}" for column in counts]
    shown = output.table(f"~{name}", *heads, ">cost (US$)", title=title)
    # What costs nothing comes by its tokens, then by its sessions.
    rows = sorted(rows, key=_weight, reverse=True)
    for row in rows[:MODELS]:
        numbers = [count_text(row[column]) for column in counts]
        output.add_row(shown, clean(str(row[name]), 60), *numbers, cost_text(row["total_cost"]))
    output.show(output.console(), "", shown)
    if len(rows) > MODELS:
        output.say(f"... and {len(rows) - MODELS:,} more (--json has them all)")


def _weight(row: Record) -> tuple[float, ...]:
    keys = ("total_cost", "total_input", "total_output", "session_count")
    return tuple(row[key] if isinstance(row[key], int | float) else 0.0 for key in keys)


def _print_totals(found: Record) -> None:
    info, totals, file = found["store"], found["totals"], found["file"]
    free = file["free_pages"] * file["page_size"]
    shown = output.table("", "~")
    shown.show_header = False
    tokens = (
        f"{count_text(totals['input_tokens'])} in, {count_text(totals['output_tokens'])} out, "
        f"{count_text(totals['reasoning_tokens'])} reasoning, "
        f"cache {count_text(totals['cache_read_tokens'])} read "
        f"and {count_text(totals['cache_write_tokens'])} written"
    )
    for name, value in (
        ("store", clean(info["path"])),
        ("modes", f"{info['journal_mode']}, trigram {info['trigram']}"),
        (
            "sessions",
            f"{count_text(totals['sessions'])}, of them {count_text(totals['open_sessions'])} open "
            f"and {count_text(totals['child_sessions'])} with a parent",
        ),
        ("messages", count_text(totals["messages"])),
        (
            "calls",
            f"{count_text(totals['tool_calls'])} of tools, {count_text(totals['api_calls'])} of models",
        ),
        ("tokens", tokens),
        (
            "cost (US$)",
            f"{cost_text(totals['estimated_cost_usd'])} estimated, "
            f"{cost_text(totals['actual_cost_usd'])} actual",
        ),
        ("started", f"{when_text(totals['first_started_at'])} to {when_text(totals['last_started_at'])}"),
        (
            "file",
            f"{size_text(file['bytes'])}, {size_text(free)} of it free; WAL {size_text(file['wal_bytes'])}",
        ),
    ):
        output.add_row(shown, name, value)
    output.show(output.console(), shown)


def _print_sizes(found: Record) -> None:
    """Sizes by table and index; a full-text index with all of its tables is one line."""
    if found["objects"] is None:
        return
    sizes: dict[tuple[str, str], int] = {}
    for thing in found["objects"]:
        index = thing["type"] == "index" and thing["part_of"] not in FTS_TABLES
        name = thing["name"] if index else thing["part_of"]
        kind = "full-text index" if name in FTS_TABLES else thing["type"]
        sizes[name, kind] = sizes.get((name, kind), 0) + thing["bytes"]
    whole = sum(sizes.values()) or 1
    shown = output.table("~name", "kind", ">size", ">share", title="By table and index")
    for (name, kind), size in sorted(sizes.items(), key=lambda item: -item[1]):
        output.add_row(shown, clean(name), kind, size_text(size), f"{100 * size / whole:.1f} %")
    output.show(output.console(), "", shown)
