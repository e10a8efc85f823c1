"""``hermes-state demo``: what the store does, on conversations that everybody can read."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hermes_state.cli import demo, options
from hermes_state.cli.records import Problem
from hermes_state.cli.report import Report
from hermes_state.cli.screen import Screen
from hermes_state.cli.text import clean

PIPED_WIDTH = 100
"""Columns of the report where no terminal says how many it has."""
MOST_TOLD = 100
"""Lines that were refused and are told on standard error."""


@click.command("demo", short_help="Show the store at work on sample conversations.")
@click.option(
    "--input",
    "source",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    help="Conversations as JSON Lines, plain or gzip, one session a line. Default: the package's sample.",
)
@click.option(
    "--db",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=options.or_before,
    help="Make the store here and keep it; the file must not exist yet. Default: a temporary folder.",
)
@click.option(
    "--indexing", type=click.Choice(["background", "inline"]), default="background", show_default=True,
    help="When messages are indexed for search.",
)  # fmt: skip
@click.option(
    "--trigram", type=click.Choice(["all", "unspaced"]), default="all", show_default=True,
    help="Which messages the trigram index takes.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(source: Path | None, db: Path | None, indexing: str, trigram: str, as_json: bool) -> None:
    """Store conversations, check that they come back equal, search them, and say what it took.

    Ends with 0 if everything passed, with 1 if a line of the input could not be stored or a check failed.
    """
    if db is not None and db.exists():
        raise click.UsageError(f"{db} exists. The demo writes messages of its own: give a path that is free.")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes_state_"))
        path = db or Path(folder) / "state.db"
        settings = demo.Settings(source, path, db is not None, indexing, trigram)
        name = str(source or demo.SAMPLE)
        told = 0

        def refused(problem: Problem) -> None:
            nonlocal told
            told += 1
            if told <= MOST_TOLD:
                click.echo(f"{name}:{problem.line}: {clean(problem.reason, 500)}", err=True)
            elif told == MOST_TOLD + 1:
                click.echo(f"{name}: ... and more lines like these", err=True)

        progress = stack.enter_context(_progress(source or demo.SAMPLE))
        try:
            report = demo.run(settings, refused, progress)
        except (sqlite3.Error, OSError) as error:
            raise click.ClickException(clean(str(error), 1000)) from error
    if as_json:
        click.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=2, default=str))
    else:
        _print(report)
    if report.failures:
        sys.exit(1)


def _print(report: Report) -> None:
    """The report on standard output; where that is no terminal, without colours and trailing spaces."""
    console = Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        Screen(console).show(report)
        return
    if "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    with console.capture() as captured:
        Screen(console).show(report)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextlib.contextmanager
def _progress(path: Path) -> Iterator[Callable[[str, int], None]]:
    """A bar on standard error that names the stage, where a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda stage, done: None
        return
    percent = TextColumn("{task.percentage:>3.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percent, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("storing", total=path.stat().st_size)
        yield lambda stage, done: bar.update(task, description=stage, completed=done)
