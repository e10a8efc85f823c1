"""Deletions in short write transactions: how long one holds the lock, and what comes between two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import sleep
from typing import Any, Protocol, TypeVar

import apsw

from hermes_state.engine.core import Engine
from hermes_state.store import retention
from hermes_state.store.rows import scalar

Stop = Callable[[], object] | threading.Event | None
"""Asked between two steps whether to stop: a function that answers, or an event that is set."""
Progress = Callable[[int, int], object] | None

HOLD_S = 0.050
"""How long one step should hold the write lock, seconds, its COMMIT included."""
REST_S = 0.012
"""A rest between two steps: longer than a waiting writer's longest pause (``patience.EAGER_MAX_S``), so
that one that has waited less than five seconds surely comes by in it."""
FIRST_BYTES, LEAST_BYTES, MOST_BYTES = 120_000, 40_000, 400_000
"""Weight of the first step, and the bounds of those that are fitted to ``HOLD_S``."""
REST_EVERY_S = 0.090
"""So much holding may pass without a rest as long as no other connection has written."""


class Sized(Protocol):
    """What a step tells of itself."""

    @property
    def weight(self) -> int:
        """What it has treated, bytes."""


S = TypeVar("S", bound=Sized)
Bounds = dict[str, int]
"""Bounds of a step, as ``retention.delete_step`` takes them."""


def asked(stop: Stop) -> Callable[[], bool]:
    """``stop`` as a function.

    Raises:
        TypeError: neither callable nor an event.
    """
    if stop is None:
        return lambda: False
    given: Any = stop
    ask = getattr(given, "is_set", given)  # an Event of threading or multiprocessing
    if not callable(ask):
        raise TypeError(f"stop must be callable or an Event, not {type(stop).__name__}")
    return lambda: bool(ask())


class Steps:
    """One operation's write transactions, one after the other.

    The first is durable when it has ended, so an operation of one step costs one fsync. Those after it
    commit without one; ``seal`` makes them durable together. What a power loss before takes away
    was not reported as done, and each step leaves the file consistent.

    Threads of this process need no rest: they stand in one line with the steps. Another process tries
    for SQLite's lock from time to time, and a rest is what lets it have it.

    Args:
        engine: whose file it is.
        operation: its name, for errors.
    """

    def __init__(self, engine: Engine, operation: str) -> None:
        self._engine = engine
        self._operation = operation
        self._bytes = FIRST_BYTES
        self._taken = 0
        self._held = 0.0
        self._seen: tuple[apsw.Connection, int] | None = None

    @property
    def forget(self) -> retention.Forget:
        """Takes messages that a step deletes out of the indexes, now or later."""
        return self._engine.upkeep.forget

    def run(self, work: Callable[[apsw.Connection, Bounds], S]) -> S:
        """``work(conn, bounds)`` in one transaction, after a rest where one is due."""
        if self._taken:
            self._rest()
        others = False

        def whole(conn: apsw.Connection) -> S:
            nonlocal others
            # It changes when another connection, of any process, has committed. Each connection has a
            # number of its own, and the first step need not be on that of the others.
            before, self._seen = self._seen, (conn, int(scalar(conn, "PRAGMA data_version")))
            others = before is not None and before[0] is conn and before != self._seen
            later = retention.LATER if self._engine.upkeep.defers else {}
            return work(conn, {"max_bytes": self._bytes, **later})

        done, held = self._engine.upkeep.lazily(whole, self._operation, durable=not self._taken)
        self._taken += 1
        self._fit(done.weight, held)
        # Where somebody else writes, a rest comes after every step.
        self._held = REST_EVERY_S if others else self._held + held
        return done

    def _fit(self, weight: int, seconds: float) -> None:
        """Let the next step weigh what would have taken HOLD_S; one odd step changes little."""
        if weight >= LEAST_BYTES and seconds > 0:
            fitting = weight * HOLD_S / seconds
            self._bytes = int(max(LEAST_BYTES, min(MOST_BYTES, (2 * self._bytes + fitting) / 3)))

    def _rest(self) -> None:
        if self._held >= REST_EVERY_S:
            sleep(REST_S)
            self._held = 0.0

    def seal(self) -> None:
        """Make every step durable; does nothing after a single one."""
        if self._taken > 1:
            self._engine.write(retention.mark_deletion, self._operation)
