"""What the commands print: text for people, JSON for programs, bars where somebody watches."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 10_000
"""Columns where no terminal says how many it has: a program that reads lines wants them whole."""

Advance = Callable[[int, int], None]
"""Called with what is done and what there is in all (0 where that is not known)."""


def console() -> Console:
    """Standard output. Nothing in a text is taken for markup; no colours but on a terminal."""
    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_WIDTH
    return made


def show(target: Console, *things: Any) -> None:
    """Print ``things``; where that is no terminal, without the spaces that fill lines up."""
    if target.is_terminal:
        for thing in things:
            target.print(thing)
        return
    with target.capture() as captured:
        for thing in things:
            target.print(thing)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def say(text: str, style: str = "") -> None:
    """One line on standard output."""
    show(console(), Text(text, style=style))


def note(text: str) -> None:
    """One line on standard error, for people beside the output."""
    click.echo(text, err=True)


def table(*columns: str, title: str = "") -> Table:
    """A plain table.

    A column whose name begins with ``>`` is set to the right; one with ``~`` is cut where there is no room,
    one with ``=`` goes on in the next line.
    """
    made = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="bold")
    if title:
        made.title, made.title_justify, made.title_style = title, "left", "bold cyan"
    for name in columns:
        made.add_column(
            Text(name.lstrip(">~="), no_wrap=True, overflow="ellipsis"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=not name.startswith(("~", "=")),
            overflow="fold" if name.startswith("=") else "ellipsis",
        )
    return made


def add_row(to: Table, *cells: str | Text, style: str = "") -> None:
    """Add a row; a cell that does not fit ends in an ellipsis, or goes on where its column does."""
    texts = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
    for text, column in zip(texts, to.columns, strict=True):
        if column.overflow != "fold":
            text.no_wrap, text.overflow = True, "ellipsis"
    to.add_row(*texts, style=style or None)


# -- JSON --


def print_json(value: Any) -> None:
    """``value`` as indented JSON."""
    click.echo(_dumps(value, indent=2))


def print_json_stream(head: dict[str, Any], key: str, items: Iterable[Any]) -> None:
    """One JSON object: the keys of ``head``, then ``key`` with a list whose items are not held together."""
    click.echo(_dumps(head, indent=2).removesuffix("\n}") + f",\n  {json.dumps(key)}: [", nl=False)
    between = "\n"
    for item in items:
        click.echo(f"{between}    {_dumps(item)}", nl=False)
        between = ",\n"
    click.echo("\n  ]\n}")


def _dumps(value: Any, indent: int | None = None) -> str:
    # Where the output has no form for a character, its JSON escape is one.
    plain = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") != "utf8"
    return json.dumps(value, ensure_ascii=plain, indent=indent, default=str)


def data_stream() -> IO[str]:
    """Standard output for data: UTF-8 whatever the terminal has."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


# -- progress --


@contextmanager
def progress(what: str, *, printing: bool = False) -> Iterator[Advance]:
    """A bar on standard error while the block runs, where a person looks at it.

    It pulses until it is told how much there is in all. With ``printing`` the block writes to standard
    output: where that is a terminal too, there is no bar.
    """
    if not sys.stderr.isatty() or (printing and sys.stdout.isatty()):
        yield lambda done, total: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    # Standard output stays as it is: rich would send what is written there to the bar's own console.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
