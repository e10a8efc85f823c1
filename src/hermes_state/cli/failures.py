"""How a command ends: its exit codes, and one clear line in the place of a traceback."""

from __future__ import annotations

import sqlite3
from typing import Any, NoReturn

import apsw
import click

from hermes_state import errors
from hermes_state.cli.text import clean

OK = 0
PROBLEM = 1
"""Something is wrong, or the command refused; what it is stands on standard error."""
USAGE = 2
"""The command line itself is wrong (click's own code)."""
INTERRUPTED = 130
"""Ctrl-C: 128 and the number of SIGINT, as shells have it."""

LONGEST_LINE = 1000


class Refused(click.ClickException):
    """The command does nothing, or no more; its text says why and what to do."""

    exit_code = PROBLEM


class Interrupted(click.ClickException):
    """The user stopped the command."""

    exit_code = INTERRUPTED


class Group(click.Group):
    """A group of commands whose errors are one line on standard error."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what the store or the system refuses ends it with ``PROBLEM``."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has gone. click ends the command without a word.
            raise
        except KeyboardInterrupt:
            raise Interrupted("interrupted; what was committed before stays") from None
        except apsw.Error as error:
            _refuse(errors.translate(error))
        except (sqlite3.Error, OSError) as error:
            _refuse(error)


def _refuse(error: BaseException) -> NoReturn:
    raise Refused(clean(str(error), LONGEST_LINE) or type(error).__name__) from error
