"""Waiting for a lock: how long, and in what steps.

SQLite's own back-off is the same for everybody, so writers that met once meet
again (a convoy), and it knows no time limit over several statements. Here a
wait is bounded by time and each pause is random: below a millisecond first,
then some milliseconds, and v11's 20-150 ms once the lock is held for long.
"""

from __future__ import annotations

import random
import time

MESSAGE_PATIENCE_S = 60.0
"""Default patience for storing messages, seconds."""
OTHER_PATIENCE_S = 20.0
"""Default patience for every other write, seconds."""

BUSY_MS = 10_000
"""How long a statement outside BEGIN waits by SQLite's own busy handler, milliseconds."""

FIRST_PAUSE_S = 0.0004
EAGER_MIN_S, EAGER_MAX_S, EAGER_S = 0.002, 0.010, 5.0
"""Pauses of the first seconds. Among writers that come and go, one that sleeps long misses every gap:
measured with 8 processes, the worst append took 2 s with v11's pauses and 0.4 s with these."""
RETRY_MIN_S = 0.020
RETRY_MAX_S = 0.150
_GROWTH = 1.5


class Patience:
    """A time budget for one wait, made when the wait begins.

    Attributes:
        seconds: the whole budget.
    """

    __slots__ = ("_pause", "_started", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started = time.monotonic()
        self._pause = FIRST_PAUSE_S

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self.seconds - self.waited)

    def pause(self) -> bool:
        """Sleep one random step; False, without sleeping, when the time is used up."""
        left = self.left
        if left <= 0.0:
            return False
        if self._pause < EAGER_MIN_S:
            step = random.uniform(self._pause / 2, self._pause)  # noqa: S311 - jitter, not a secret
            self._pause *= _GROWTH
        elif self.seconds - left < EAGER_S:
            step = random.uniform(EAGER_MIN_S, EAGER_MAX_S)  # noqa: S311 - jitter, not a secret
        else:
            step = random.uniform(RETRY_MIN_S, RETRY_MAX_S)  # noqa: S311 - jitter, not a secret
        time.sleep(min(step, left))
        return True
