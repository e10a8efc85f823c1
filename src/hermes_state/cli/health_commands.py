"""``hermes-state check`` and ``repair``: whether the store is sound, and making it so."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.text import Text

from hermes_state import check_file
from hermes_state.api.checking import CheckReport
from hermes_state.api.repairing import RepairReport
from hermes_state.cli import options, output, stores
from hermes_state.cli.failures import PROBLEM
from hermes_state.cli.text import clean, count_text, plural

_SAYS = {
    "ok": "sound",
    "drift": "rows, indexes or counters differ; nothing is lost",
    "schema": "something of the schema is missing",
    "index": "an index is damaged; no row is lost",
    "table": "a table is damaged",
    "empty": "the file is empty (0 bytes)",
    "zeroed": "the file holds only zeros",
    "not a database": "the file is no SQLite database",
    "unreadable": "the header or the schema is damaged",
}
_DO = {
    "drift": "hermes-state repair",
    "index": "hermes-state repair",
    "table": "stop what uses the store; hermes-state salvage NEW-FILE reads what is readable",
    "unreadable": "stop what uses the store; hermes-state salvage NEW-FILE reads what is readable",
    "empty": "hermes-state restore BACKUP; a program that opens it makes a new store of it",
    "zeroed": "hermes-state restore BACKUP",
    "not a database": "hermes-state restore BACKUP, or --db PATH for the right file",
}


@click.command("check", short_help="Look for damage and drift.")
@options.db
@click.option("--quick", is_flag=True, help="Do not compare the full-text indexes word by word.")
@options.as_json
def check_command(db: Path | None, quick: bool, as_json: bool) -> None:
    """Look for damage, drift between rows and indexes, wrong counters and orphans.

    Changes nothing, and works beside programs that use the store, on older versions, and on files that do
    not open. Ends with 0 if all is well, with 1 if not.
    """
    path = stores.existing(db)
    with output.progress("checking") as advance:
        report = check_file(path, advance, deep=not quick)
    advice = _advice(path, report)
    if as_json:
        output.print_json({**report, "advice": advice})
    else:
        _print(report)
        _print_advice(advice)
    if not report["ok"]:
        sys.exit(PROBLEM)


def _advice(path: Path, report: CheckReport) -> list[str]:
    if report["verdict"] == "schema":
        older = stores.stamp(path).older
        return ["hermes-state upgrade" if older else "hermes-state repair"]
    advice = [_DO[report["verdict"]]] if report["verdict"] in _DO else []
    if _orphans(report):
        advice.append("hermes-state repair --remove-orphans deletes what belongs to no session")
    return advice


def _orphans(report: CheckReport) -> bool:
    return any(problem["kind"].startswith("orphan") for problem in report["problems"])


def _print(report: CheckReport) -> None:
    verdict = report["verdict"]
    style = "bold green" if report["ok"] else "bold red"
    output.say(f"{clean(report['path'])}: {_SAYS.get(verdict, verdict)}", style)
    if report["sessions"] or report["messages"]:
        rows = f"{plural(report['sessions'], 'session')}, {plural(report['messages'], 'message')}"
        pending = f", {count_text(report['pending'])} not indexed yet" if report["pending"] else ""
        gone = plural(report["forgetting"], "deleted message")
        output.say(rows + pending + (f", {gone} still in the indexes" if report["forgetting"] else ""))
    if not report["problems"]:
        return
    examples = any(problem["sample"] for problem in report["problems"])
    shown = output.table("problem", "where", ">count", "=what", *(["=for example"] if examples else []))
    for problem in report["problems"]:
        sample = clean(", ".join(map(str, problem["sample"])), 100)
        output.add_row(
            shown,
            problem["kind"].replace("_", " "),
            clean(problem["where"], 40),
            count_text(problem["count"]),
            clean(problem["detail"], 200),
            *([sample] if examples else []),
        )
    output.show(output.console(), shown)


def _print_advice(advice: list[str]) -> None:
    for line in advice:
        output.show(output.console(), Text("What to do: ", style="bold").append(line, style="not bold"))


@click.command("repair", short_help="Mend what check finds.")
@options.db
@click.option("--remove-orphans", is_flag=True, help="Also delete messages whose session does not exist.")
@options.yes
@options.as_json
def repair_command(db: Path | None, remove_orphans: bool, yes: bool, as_json: bool) -> None:
    """Mend what check finds: indexes, counters, missing objects. No row is lost by it.

    Works in short transactions beside programs that use the store. Ends with 0 if all is well afterwards,
    with 1 if something is left to do.
    """
    if remove_orphans:
        options.confirm("Delete the messages whose session does not exist?", yes)
    with stores.opened(db) as store, output.progress("repairing") as advance:
        report = store.repair(remove_orphans=remove_orphans, progress=advance)
    advice = _left(stores.location(db), report)
    if as_json:
        output.print_json({**report, "advice": advice})
    else:
        _print(report["before"])
        if not report["before"]["ok"]:
            _print_mended(report)
            _print(report["after"])
        _print_advice(advice)
    if not report["after"]["ok"]:
        sys.exit(PROBLEM)


def _left(path: Path, report: RepairReport) -> list[str]:
    advice = [] if report["after"]["ok"] else _advice(path, report["after"])
    only_orphans = all(problem["kind"].startswith("orphan") for problem in report["after"]["problems"])
    if only_orphans:
        # Another plain repair would leave them again.
        advice = [line for line in advice if line != "hermes-state repair"]
    if report["vacuum_advised"]:
        advice.append("hermes-state vacuum frees the pages of what was damaged")
    return advice


def _print_mended(report: RepairReport) -> None:
    parts = [f"{name} made anew" for name in report["rebuilt"]]
    for key, thing, what in (
        ("rows", "message", "indexed anew"),
        ("counters", "session", "counted anew"),
        ("orphans", "orphan message", "deleted"),
        ("parents", "parent", "taken away that did not exist"),
    ):
        number = int(report[key])  # type: ignore[literal-required]
        if number:
            parts.append(f"{plural(number, thing)} {what}")
    output.say("mended: " + (clean("; ".join(parts), 1000) or "nothing"))
