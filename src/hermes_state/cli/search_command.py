"""``hermes-state search``: the full-text search."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hermes_state.cli import options, output, stores
from hermes_state.cli.text import clean, marked, plural, when_text

Record = dict[str, Any]
_MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S"])


@click.command("search")
@click.argument("words", nargs=-1, required=True, metavar="QUERY...")
@options.db
@options.source
@options.exclude_source
@click.option("--role", "roles", multiple=True, metavar="NAME", help="Only messages of this role.")
@click.option(
    "--sort", type=click.Choice(["relevance", "newest", "oldest"]), default="relevance", show_default=True,
    help="Which hits come first.",
)  # fmt: skip
@options.limit(20)
@options.offset
@click.option("--per-session", type=click.IntRange(min=1), metavar="N", help="N hits of a session at most.")
@click.option("--exclude-session", metavar="ID", help="Leave this session out.")
@click.option("--since", type=_MOMENT, help="Only messages from this day or time on (local time).")
@click.option("--until", type=_MOMENT, help="Only messages before this day or time (local time).")
@click.option("--substring", is_flag=True, help="Match wherever the letters stand, inside words too.")
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Give up after so long.",
)  # fmt: skip
@click.option("--context/--no-context", default=True, help="Show the neighbours of each hit, or not.")
@click.option("--explain", is_flag=True, help="Also tell how the query is understood and answered.")
@options.as_json
def command(
    words: tuple[str, ...], db: Path | None, source: str | None, exclude_sources: tuple[str, ...],
    roles: tuple[str, ...], sort: str, limit: int, offset: int, per_session: int | None,
    exclude_session: str | None, since: datetime | None, until: datetime | None, substring: bool,
    time_limit: float | None, context: bool, explain: bool, as_json: bool,
) -> None:  # fmt: skip
    """Search all messages, in any script. Any text is a valid query.

    Words must all be there; "phrases" keep their order (quote them for the shell); AND, OR and NOT in
    capitals; deploy* is every word that begins so. A query that begins with - comes after --. Ends with 0
    also where nothing is found.
    """
    query = " ".join(words)
    match = "substring" if substring else "words"
    with stores.opened(db) as store:
        plan = store.explain_search(query, match) if explain else None
        hits = store.search_messages(
            query,
            source_filter=None if source is None else [source],
            exclude_sources=exclude_sources,
            role_filter=roles,
            limit=limit,
            offset=offset,
            sort=None if sort == "relevance" else sort,
            exclude_session_id=exclude_session,
            per_session=per_session,
            since=since,
            until=until,
            match=match,
            time_limit=time_limit,
        )
        titles = {key: store.get_session_title(key) for key in {hit["session_id"] for hit in hits}}
    if as_json:
        found = [{**hit, "title": titles[hit["session_id"]]} for hit in hits]
        output.print_json({"query": query, "plan": plan, "hits": found})
        return
    screen = output.console()
    if plan is not None:
        output.show(screen, Text(clean(plan, 2000), style="dim"), Text())
    for hit in hits:
        _show(screen, hit, titles[hit["session_id"]], context)
    output.note(_count(len(hits), limit, offset))


def _count(number: int, limit: int, offset: int) -> str:
    """How many hits were shown, and where the others are if there may be any."""
    if not number:
        return "no more hits" if offset else "nothing found"
    if number == limit:
        return f"{plural(number, 'hit')}; --offset {offset + number} shows what comes after"
    return plural(number, "hit")


def _show(screen: Console, hit: Record, title: str | None, context: bool) -> None:
    """A hit: where it stands, its snippet, and its neighbours in the conversation."""
    head = Text(clean(str(hit["session_id"])), style="bold")
    tool = f" {hit['tool_name']}" if hit["tool_name"] else ""
    about = f"{hit['role']}{tool}, {hit['source']}, {when_text(hit['timestamp'])}, #{hit['id']}"
    head.append(f"  {clean(about)}", style="dim")
    if title:
        # Last, and cut where there is no room: the same title stands over each hit of a session.
        head.append(f"  {clean(title, 80)}", style="")
    head.truncate(screen.width, overflow="ellipsis")
    output.show(screen, head, Padding(marked(hit["snippet"]), (0, 0, 0, 2)))
    if context:
        for line in hit["context"]:
            said = clean(str(line["content"] or "(a tool call)"), 120)
            output.show(
                screen, Padding(Text(f"{clean(str(line['role']), 20)}: {said}", style="dim"), (0, 0, 0, 6))
            )
    output.show(screen, Text())
