"""The command line's tree. A group of commands is a module; this is the list of them."""

from __future__ import annotations

from pathlib import Path

import click

import hermes_state
from hermes_state.cli import (
    backup_commands,
    browse_commands,
    demo_command,
    doctor_command,
    health_commands,
    search_command,
    stats_command,
    transfer_commands,
    upkeep_commands,
)
from hermes_state.cli.failures import Group


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(hermes_state.__version__, prog_name="hermes-state")
@click.option(
    "--db", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
    help="The store, also after the command.",
)  # fmt: skip
def root(db: Path | None) -> None:
    """The session store of Hermes Agent: sessions, their messages, and a search over all of them.

    The store is state.db in the Hermes home ($HERMES_HOME, else ~/.hermes), or what --db names. Commands end
    with 0 if all went well, 1 if something is wrong or was refused, 2 if the command line is wrong, and 130
    if they were interrupted.
    """


COMMANDS: tuple[click.Command, ...] = (
    browse_commands.list_command,
    browse_commands.show_command,
    search_command.command,
    browse_commands.lineage_command,
    stats_command.command,
    transfer_commands.export_command,
    transfer_commands.import_command,
    backup_commands.backup_command,
    backup_commands.restore_command,
    backup_commands.salvage_command,
    health_commands.check_command,
    health_commands.repair_command,
    doctor_command.command,
    upkeep_commands.optimize_command,
    upkeep_commands.prune_command,
    upkeep_commands.vacuum_command,
    upkeep_commands.upgrade_command,
    demo_command.command,
)

for _command in COMMANDS:
    root.add_command(_command)
