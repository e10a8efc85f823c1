"""The ``hermes-state`` command. Needs the extra ``cli``; the store itself does not."""

from __future__ import annotations

import io
import sys

MISSING = "the hermes-state command needs click and rich: pip install 'hermes-state[cli]'"


def main() -> None:
    """Run the command line; exits with 2 where the extra is not installed."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(MISSING, file=sys.stderr)
        raise SystemExit(2) from None
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, not an exception.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from hermes_state.cli.commands import root

    root(prog_name="hermes-state")
