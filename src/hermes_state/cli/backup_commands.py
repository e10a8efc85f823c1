"""``hermes-state backup``, ``restore`` and ``salvage``: whole files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hermes_state import restore, salvage
from hermes_state.api.health import table_faults
from hermes_state.cli import options, output, stores
from hermes_state.cli.failures import PROBLEM, Refused
from hermes_state.cli.text import clean, plural, size_text
from hermes_state.transfer import backup as copying

Record = dict[str, Any]
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("backup", short_help="Copy the store into one file while it is used.")
@click.argument("target", type=_NEW_FILE)
@options.db
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@options.as_json
def backup_command(target: Path, db: Path | None, force: bool, as_json: bool) -> None:
    """Copy the store, as it is at this moment, into the one file TARGET; programs that use it go on.

    The copy is checked and on the disk before it gets its name. The store itself is only read, also one of
    an older version, so a backup can be made before an upgrade.
    """
    path = stores.existing(db)
    if target.exists() and not force:
        raise Refused(f"{target} exists; --force replaces it")
    with stores.looking(path) as conn, output.progress("copying") as advance:
        conn.execute("BEGIN")
        found: Record = copying.copy(conn, target, table_faults, overwrite=force, progress=advance)
    report = {"path": str(target), "bytes": target.stat().st_size, **found}
    if as_json:
        output.print_json(report)
        return
    rows = f"{plural(found['sessions'], 'session')} and {plural(found['messages'], 'message')}"
    output.say(f"{clean(str(target))}: {rows}, {size_text(report['bytes'])}, checked")


@click.command("restore", short_help="Put a backup in the place of the store.")
@click.argument("backup", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.db
@options.yes
@options.as_json
def restore_command(backup: Path, db: Path | None, yes: bool, as_json: bool) -> None:
    """Put the file BACKUP in the place of the store. No program may have the store open.

    The store that was there is kept beside it, under a name that ends in .before-restore.
    """
    path = stores.location(db)
    if path.exists():
        options.confirm(f"Put {clean(str(backup))} in the place of {clean(str(path))}?", yes)
    try:
        with output.progress("copying") as advance:
            report = restore(backup, path, advance)
    except ValueError as error:
        raise Refused(clean(str(error))) from error
    if as_json:
        output.print_json(report)
        return
    rows = f"{plural(report['sessions'], 'session')} and {plural(report['messages'], 'message')}"
    output.say(f"{clean(report['path'])}: {rows}")
    if report["kept"]:
        output.say(f"what was there is kept as {clean(report['kept'])}")


@click.command("salvage", short_help="Read what is readable of a damaged store.")
@click.argument("into", type=_NEW_FILE)
@options.db
@options.as_json
def salvage_command(into: Path, db: Path | None, as_json: bool) -> None:
    """Read every readable row of a damaged store into the new file INTO. The damaged file stays as it is.

    Ends with 0 if all of it could be read, with 1 if something was lost.
    """
    path = stores.existing(db)
    with output.progress("reading") as advance:
        report = salvage(path, into, advance)
    if as_json:
        output.print_json(report)
    else:
        rows = f"{plural(report['sessions'], 'session')} and {plural(report['messages'], 'message')}"
        output.say(f"{clean(str(into))}: {rows}")
        for name, table in report["tables"].items():
            if not table["complete"]:
                lost = f"{table['lost_rowids']:,} row ids between those that were read are missing"
                output.say(f"{name}: {clean(str(table['error'] or lost))}")
        if report["invented_sessions"]:
            output.say(
                f"{plural(report['invented_sessions'], 'session')} made for messages that had lost theirs"
            )
    if not report["complete"]:
        sys.exit(PROBLEM)
