"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hermes_state.cli import stores

F = TypeVar("F", bound=Callable[..., Any])


def or_before(ctx: click.Context, param: click.Parameter, given: Path | None) -> Path | None:
    """The store named here, else the one that was named before the command."""
    before: Path | None = ctx.find_root().params.get("db")
    return before if given is None else given


db = click.option(
    "--db",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    callback=or_before,
    help="The store. Default: state.db in the Hermes home ($HERMES_HOME, else ~/.hermes).",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
yes = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
session = click.argument("session", shell_complete=stores.complete_session)
source = click.option("--source", metavar="NAME", help="Only sessions of this source (cli, telegram, ...).")
exclude_source = click.option(
    "--exclude-source", "exclude_sources", multiple=True, metavar="NAME", help="No sessions of this source."
)


def limit(default: int) -> Callable[[F], F]:
    """``--limit``; -1 for all."""
    return click.option(
        "--limit", "-n", type=click.IntRange(min=-1), default=default, show_default=True,
        help="How many at most; -1 for all.",
    )  # fmt: skip


offset = click.option("--offset", type=click.IntRange(min=0), default=0, help="How many to pass over first.")


def confirm(question: str, yes: bool) -> None:
    """Ask on standard error, unless ``yes``; anything but a yes ends the command with 1."""
    if not yes:
        click.confirm(question, abort=True, err=True)
