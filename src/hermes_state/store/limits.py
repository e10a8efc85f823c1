"""A time limit on reading: SQLite asks, every so many of its steps, whether to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import apsw

from hermes_state import errors

T = TypeVar("T")

STEPS: Final = 2_000
"""Steps of SQLite's virtual machine from one question to the next; under a millisecond of most work.

Statements of fewer steps than this are never stopped, those in which FTS5 opens a table among them.
"""


class TimeLimit:
    """So many seconds from now on.

    Raises:
        TypeError, ValueError: ``seconds`` is no number above 0.
    """

    def __init__(self, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"time_limit must be a number of seconds, not {type(seconds).__name__}")
        if not seconds > 0:
            raise ValueError(f"time_limit must be more than 0 seconds, not {seconds!r}")
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """True when the time has passed."""
        return time.monotonic() > self._deadline

    @property
    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self._deadline - time.monotonic())

    def check(self, operation: str) -> None:
        """Raise ``StoreInterruptedError`` when the time has passed."""
        if self.over:
            raise self.error(operation)

    def error(self, operation: str) -> errors.HermesStateError:
        """What a call that was stopped raises."""
        words = f"interrupted by its time limit of {self.seconds:g} s"
        return errors.make(errors.StoreInterruptedError, words, operation=operation)

    def run(self, conn: apsw.Connection, fn: Callable[[apsw.Connection], T], operation: str) -> T:
        """``fn(conn)``, stopped when the time has passed; the connection is as before afterwards."""
        conn.set_progress_handler(lambda: self.over, STEPS, id=self)
        try:
            return fn(conn)
        except apsw.InterruptError as error:
            if not self.over:
                raise
            raise self.error(operation) from error
        finally:
            conn.set_progress_handler(None, id=self)
