"""The command line's tree. A group of commands is a module; this is the list of them."""

from __future__ import annotations

import click

import hermes_state
from hermes_state.cli import demo_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(hermes_state.__version__, prog_name="hermes-state")
def root() -> None:
    """The session store of Hermes Agent: sessions, their messages, and a search over all of them."""


COMMANDS: tuple[click.Command, ...] = (demo_command.command,)

for _command in COMMANDS:
    root.add_command(_command)
