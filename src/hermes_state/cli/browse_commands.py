"""``hermes-state list``, ``show`` and ``lineage``: looking at sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hermes_state import SessionDB
from hermes_state.cli import conversation, options, output, stores
from hermes_state.cli.family import Family
from hermes_state.cli.text import clean, count_text, when_text

LAST_ID = 2**63 - 1
WIDE = 120
"""Columns of a terminal from which on the list has room for the model."""
Record = dict[str, Any]


@click.command("list", short_help="List sessions, the latest first.")
@options.db
@options.source
@options.exclude_source
@options.limit(20)
@options.offset
@click.option(
    "--by", type=click.Choice(["activity", "start"]), default="activity", show_default=True,
    help="Which comes first: the latest activity, or the latest start.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Also sub-agents, and every link of a compressed session.")
@options.as_json
def list_command(
    db: Path | None, source: str | None, exclude_sources: tuple[str, ...], limit: int, offset: int, by: str,
    every: bool, as_json: bool,
) -> None:  # fmt: skip
    """List sessions, the latest first. A compressed conversation is one entry, under its latest part."""
    with stores.opened(db) as store:
        found = store.list_sessions_rich(
            source, exclude_sources, limit, offset, include_children=every,
            order_by_last_active=by == "activity",
        )  # fmt: skip
    if as_json:
        output.print_json(found)
        return
    if found:
        _print_list(output.console(), found)
    else:
        output.note("no sessions")


def _print_list(screen: Console, found: list[Record]) -> None:
    wide = screen.width >= WIDE
    shown = output.table("id", "last active", ">messages", "source", *(["model"] if wide else []), "~title")
    for row in found:
        output.add_row(
            shown,
            clean(str(row["id"])),
            when_text(row["last_active"]),
            count_text(row["message_count"]),
            clean(str(row["source"]), 30 if wide else 12),
            *([clean(str(row["model"] or "-"), 40)] if wide else []),
            clean(str(row["title"] or row["preview"] or "-"), 100),
        )
    output.show(screen, shown)


@click.command("show")
@options.session
@options.db
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@click.option("--around", type=int, metavar="ID", help="Only the message ID and its neighbours.")
@click.option(
    "--window", type=click.IntRange(min=0), default=5, show_default=True,
    help="With --around: how many messages on each side.",
)  # fmt: skip
@click.option(
    "--ancestors", is_flag=True, help="Begin with the sessions that this one continues, root first."
)
@click.option("--full", is_flag=True, help="Cut nothing: whole tool results and calls, and the reasoning.")
@options.as_json
def show_command(
    session: str, db: Path | None, last: int | None, around: int | None, window: int, ancestors: bool,
    full: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print a conversation. SESSION is an id, the beginning of one, or a title.

    Long texts are cut on the screen, never in JSON.
    """
    if (last is not None) + (around is not None) + ancestors > 1:
        raise click.UsageError("--last, --around and --ancestors exclude one another")
    with stores.opened(db) as store:
        key = stores.session_id(store, session)
        row = store.get_session(key)
        if row is None:
            raise click.ClickException(f"session {clean(key)} has just been deleted")
        messages = _messages(store, key, last, around, window, ancestors)
        if as_json:
            output.print_json_stream({"session": row}, "messages", messages)
            return
        screen = conversation.Screen(output.console(), full=full)
        screen.head(row)
        for message in messages:
            screen.message(message)


def _messages(
    store: SessionDB, key: str, last: int | None, around: int | None, window: int, ancestors: bool
) -> Iterator[Record]:
    """The messages to show, a page at a time where it is the whole session."""
    if last is not None:
        return iter(store.get_messages(key, limit=last, before_id=LAST_ID))
    if around is not None:
        found = store.get_messages_around(key, around, window)["window"]
        if not found:
            raise click.ClickException(f"message {around} is not in session {clean(key)}")
        return iter(found)
    chain = [row["id"] for row in store.get_lineage(key)][::-1] if ancestors else [key]
    return (message for link in chain for message in store.iter_messages(link))


@click.command("lineage", short_help="Print the tree that a session belongs to.")
@options.session
@options.db
@options.as_json
def lineage_command(session: str, db: Path | None, as_json: bool) -> None:
    """Print the tree of a session: what it continues, its continuations, branches and sub-agents."""
    with stores.opened(db) as store:
        family = Family.of(store, stores.session_id(store, session))
    if as_json:
        output.print_json(family.as_dict())
    else:
        output.show(output.console(), family.tree())
