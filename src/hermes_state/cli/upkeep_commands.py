"""``hermes-state optimize``, ``prune``, ``vacuum`` and ``upgrade``: work on the whole store."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import click

from hermes_state import SCHEMA_VERSION, SessionDB
from hermes_state.cli import options, output, stores
from hermes_state.cli.failures import Refused
from hermes_state.cli.text import clean, count_text, plural, size_text, time_text, when_text
from hermes_state.store import figures, health, retention

Record = dict[str, Any]
SPARE_BYTES = 16_000_000


@click.command("optimize", short_help="Merge the full-text indexes in short steps.")
@options.db
@click.option(
    "--trigram", type=click.Choice(["all", "unspaced"]),
    help="First change which messages the trigram index takes: all, or those with a script without spaces.",
)  # fmt: skip
@click.option("--rebuild", is_flag=True, help="First make every full-text index anew.")
@options.as_json
def optimize_command(db: Path | None, trigram: str | None, rebuild: bool, as_json: bool) -> None:
    """Merge the segments of the full-text indexes, in short steps beside programs that use the store.

    With --trigram unspaced the file needs less space once vacuum has run; every search finds the same.
    """
    started = time.monotonic()
    with stores.opened(db) as store:
        if trigram is not None:
            with output.progress(f"trigram index: {trigram}") as advance:
                store.set_trigram_mode(trigram, advance)
        if rebuild:
            with output.progress("rebuilding") as advance:
                store.rebuild_index(advance)
        with output.progress("merging") as advance:
            steps = store.optimize(advance)
        info = store.store_info()
        pages = store._read(figures.pages, "optimize")
    free = pages["free_pages"] * pages["page_size"]
    seconds = time.monotonic() - started
    if as_json:
        output.print_json(
            {"trigram": info["trigram"], "steps": steps, "free_bytes": free, "seconds": seconds}
        )
        return
    output.say(
        f"merged in {plural(steps, 'step')}, {time_text(seconds)}; trigram index: {info['trigram']}; "
        f"{size_text(free)} of the file are free"
    )


def _ages(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, float | None]:
    """Source -> the age in days at which its sessions go, None for never, from NAME=DAYS and NAME=never."""
    ages: dict[str, float | None] = {}
    for text in given:
        source, _, days = text.rpartition("=")
        try:
            age = None if days == "never" else float(days)
        except ValueError:
            age = -1.0
        if not source or (age is not None and not age >= 0):
            raise click.BadParameter(f"{text!r} is not NAME=DAYS or NAME=never", ctx, param)
        ages[source] = age
    return ages


@click.command("prune")
@options.db
@click.option(
    "--older-than", "days", type=click.FloatRange(min=0), default=90, show_default=True, metavar="DAYS",
    help="Only sessions without activity for so many days.",
)  # fmt: skip
@options.source
@click.option(
    "--source-age", "ages", multiple=True, callback=_ages, metavar="NAME=DAYS",
    help="Another age for a source, as cron=7; NAME=never keeps them. May be repeated.",
)  # fmt: skip
@click.option(
    "--sessions-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    help="Also delete the sessions' transcripts in this folder.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@options.yes
@options.as_json
def prune_command(
    db: Path | None, days: float, source: str | None, ages: dict[str, float | None],
    sessions_dir: Path | None, dry_run: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Delete ended sessions that are old. Tells first which would go, and asks.

    A session that a kept one continues stays. Works in short transactions beside programs that use the
    store. The file keeps its size until vacuum. With --json it asks nothing, and deletes only with --yes.
    """
    with stores.opened(db) as store:
        report = store.prune_report(days, source, per_source=ages or None)
        report |= {"dry_run": dry_run or (as_json and not yes), "deleted": 0}
        if not as_json:
            _print_candidates(store, report)
        if report["sessions"] and not report["dry_run"]:
            question = f"Delete {plural(report['sessions'], 'session')}? This cannot be undone"
            options.confirm(question, yes)
            with output.progress("deleting") as advance:
                report["deleted"] = store.prune_sessions(
                    days, source, sessions_dir, per_source=ages or None, progress=advance
                )
    if as_json:
        output.print_json(report)
    elif report["deleted"]:
        output.say(
            f"{plural(report['deleted'], 'session')} deleted; hermes-state vacuum gives the space back"
        )


def _print_candidates(store: SessionDB, report: Record) -> None:
    number, messages = report["sessions"], report["messages"]
    if not number:
        output.say("no session is old enough")
        return
    output.say(f"{plural(number, 'session')} with {plural(messages, 'message')} would go:")
    shown = output.table("id", "started", ">messages", "source", "~title")
    for session_id in report["sample"]:
        row = store.get_session(session_id)
        if row is not None:
            output.add_row(
                shown,
                clean(session_id),
                when_text(row["started_at"]),
                count_text(row["message_count"]),
                clean(str(row["source"]), 20),
                clean(str(row["title"] or "-"), 80),
            )
    output.show(output.console(), shown)
    if number > len(report["sample"]):
        output.say(f"... and {number - len(report['sample']):,} more")


@click.command("vacuum")
@options.db
@click.option(
    "--incremental", is_flag=True,
    help="Give free pages back in short steps; a file that was not made for it is written anew this once.",
)  # fmt: skip
@options.yes
@options.as_json
def vacuum_command(db: Path | None, incremental: bool, yes: bool, as_json: bool) -> None:
    """Write the file anew without its free pages.

    The one command for which other programs' writes wait until it is done, so it asks. It needs free disk
    space of twice the size of the file.
    """
    path = stores.existing(db)
    with stores.opened(db) as store:
        pages = store._read(figures.pages, "vacuum")
        before = pages["page_size"] * pages["page_count"]
        if not (incremental and store._read(retention.frees_in_steps, "vacuum", single=True)):
            _refuse_without_room(path, before)
            free = size_text(pages["free_pages"] * pages["page_size"])
            options.confirm(
                f"Write {size_text(before)} anew to free {free}? Others' writes wait meanwhile", yes
            )
        started = time.monotonic()
        with output.progress("freeing pages" if incremental else "writing the file anew") as advance:
            store.vacuum(incremental=incremental, progress=advance)
        seconds = time.monotonic() - started
        pages = store._read(figures.pages, "vacuum")
    after = pages["page_size"] * pages["page_count"]
    if as_json:
        output.print_json({"bytes_before": before, "bytes_after": after, "seconds": seconds})
        return
    output.say(f"{size_text(before)} became {size_text(after)} in {time_text(seconds)}")


def _refuse_without_room(path: Path, size: int) -> None:
    """A VACUUM writes the new file to the temporary folder and then through the WAL beside the old one."""
    free = shutil.disk_usage(path.parent).free
    if free < 2 * size + SPARE_BYTES:
        raise Refused(
            f"{size_text(2 * size + SPARE_BYTES)} are needed beside {path}, and {size_text(free)} are free"
        )


@click.command("upgrade", short_help="Bring an older store to this version.")
@options.db
@click.option("--dry-run", is_flag=True, help="Only tell the version.")
@options.as_json
def upgrade_command(db: Path | None, dry_run: bool, as_json: bool) -> None:
    """Bring a store of an older version to the present one, and wait until its indexes are complete.

    The tables change in one short transaction; the messages are then indexed in short steps. Stopped at any
    moment, it goes on at the next open. Make a backup first.
    """
    path = stores.existing(db)
    found = stores.stamp(path)
    if not found.sessions:
        raise Refused(f"{path} is a database, but no session store")
    report: Record = {"path": str(path), "from": found.version, "to": found.version, "dry_run": dry_run}
    if not dry_run:
        # The worker, and other programs, index as well: what is told is how far all have come.
        with output.progress("indexing") as advance, SessionDB(path, on_upgrade_progress=advance) as store:
            store._repairs().index_pending()
            total = store._read(health.message_total, "upgrade")
            advance(total, total)
        report["to"] = stores.stamp(path).version
    if as_json:
        output.print_json(report)
    elif dry_run:
        done = "nothing to do" if found.complete and not found.upgrading else f"would become {SCHEMA_VERSION}"
        output.say(f"{clean(str(path))}: version {found.version}, {done}")
    elif found.version == report["to"]:
        output.say(f"{clean(str(path))}: version {found.version}, complete")
    else:
        output.say(f"{clean(str(path))}: from version {found.version} to {report['to']}, complete")
    if not dry_run and report["to"] < SCHEMA_VERSION:
        raise Refused(f"the indexing has not ended: {path} still says version {report['to']}; run it again")
