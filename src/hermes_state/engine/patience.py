"""Waiting for a lock: how long, and in what steps.

SQLite's own back-off is the same for everybody, so writers that met once meet
again (a convoy), and it knows no time limit over several statements. Here a
wait is bounded by time and each pause is random: below a millisecond first,
then some milliseconds, and v11's 20-150 ms once the lock is held for long.

A process that stood still (stopped, or its virtual machine was) has not waited
meanwhile: those who had the lock may have stood still as well, or be gone. So
what a pause took beyond what it was meant to take does not count, within limits.
"""

from __future__ import annotations

import random
import time
from typing import Protocol

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
STALL_S = 1.0
"""A pause that took so much longer than it was meant to was a standstill of the process."""
_PIECE_S = 0.5
"""A wait for a thread of this process is made of pieces of this length, to tell a standstill."""


class Lock(Protocol):
    """A ``threading.Lock`` or ``RLock``."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...


class Patience:
    """A time budget for one wait, made when the wait begins.

    Standstills of the process are not taken off it, up to its own length in all.

    Attributes:
        seconds: the whole budget.
    """

    __slots__ = ("_pause", "_stalled", "_started", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started = time.monotonic()
        self._stalled = 0.0
        self._pause = FIRST_PAUSE_S

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self.seconds + self._stalled - self.waited)

    def acquire(self, lock: Lock) -> bool:
        """Take a lock that a thread of this process has; False when the time is used up."""
        while True:
            piece, started = min(self.left, _PIECE_S), time.monotonic()
            if lock.acquire(timeout=piece):
                return True
            self._excuse(time.monotonic() - started - piece)
            if self.left <= 0.0:
                return False

    def _excuse(self, seconds: float) -> None:
        if seconds > STALL_S:
            self._stalled = min(self.seconds, self._stalled + seconds)

    def pause(self) -> bool:
        """Sleep one random step; False, without sleeping, when the time is used up."""
        left = self.left
        if left <= 0.0:
            return False
        if self._pause < EAGER_MIN_S:
            step = random.uniform(self._pause / 2, self._pause)  # noqa: S311 - jitter, not a secret
            self._pause *= _GROWTH
        elif self.waited < EAGER_S:
            step = random.uniform(EAGER_MIN_S, EAGER_MAX_S)  # noqa: S311 - jitter, not a secret
        else:
            step = random.uniform(RETRY_MIN_S, RETRY_MAX_S)  # noqa: S311 - jitter, not a secret
        self.sleep(min(step, left))
        return True

    def sleep(self, seconds: float) -> None:
        """Sleep so long, as a part of the wait."""
        started = time.monotonic()
        time.sleep(seconds)
        self._excuse(time.monotonic() - started - seconds)
