"""``hermes-state doctor``: what is wrong with this set-up, and what to do about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from hermes_state.cli import diagnosis, diagnosis_file, options, output, stores
from hermes_state.cli.diagnosis import Finding
from hermes_state.cli.failures import PROBLEM
from hermes_state.cli.text import clean, plural

_STYLES = {"ok": "green", "note": "cyan", "warning": "bold yellow", "problem": "bold red"}


@click.command("doctor", short_help="Say what is wrong with this set-up.")
@options.db
@options.as_json
def command(db: Path | None, as_json: bool) -> None:
    """Look at the installation, the file and its surroundings, and say what is wrong and what to do.

    Reads only; check looks into the rows and indexes. Ends with 1 if something does not work, with 0 else,
    also where there are warnings.
    """
    path = stores.location(db)
    findings = examine(db, path)
    problems = [finding for finding in findings if finding.state == "problem"]
    if as_json:
        plain = [finding.as_dict() for finding in findings]
        output.print_json({"ok": not problems, "path": str(path), "findings": plain})
    else:
        _print(findings)
    if problems:
        sys.exit(PROBLEM)


def examine(db: Path | None, path: Path) -> list[Finding]:
    """Every finding about the installation and the store at ``path``."""
    findings = [*diagnosis.installation(), *diagnosis.home(db), *diagnosis_file.file(path)]
    readable = path.is_file() and os.access(path, os.R_OK)
    if readable and path.stat().st_size:
        inside = list(diagnosis.database(path))
        findings += inside
        sound = all(finding.state != "problem" for finding in inside)
        if sound and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            findings.append(diagnosis_file.lock(path))
    elif readable:
        findings.append(
            Finding("database", "warning", "the file is empty", "the next program makes a new store of it")
        )
    return findings


def _print(findings: list[Finding]) -> None:
    shown = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        state = Text(finding.state, style=_STYLES[finding.state])
        shown.add_row(state, Text(f"{finding.about}: {clean(finding.says, 1000)}"))
        if finding.do:
            shown.add_row("", Text(f"-> {clean(finding.do, 1000)}"))
    output.show(output.console(), shown)
    counts = [
        plural(sum(finding.state == state for finding in findings), state) for state in ("problem", "warning")
    ]
    output.say(", ".join(counts))
