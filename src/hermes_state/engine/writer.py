"""The one writer connection of an engine: a fair line in front of it, and group commit.

Threads stand in line (first come, first served). Whoever is at its head owns
the connection. An owner that stores messages takes all message groups that
stand in line into its own transaction, so that they share one COMMIT and one
fsync, and wakes their threads together; each gets its row ids, or its own
error, only after that COMMIT. A lone thread finds the line empty and pays one
uncontended lock.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from hermes_state import errors
from hermes_state.engine import transaction as tx
from hermes_state.engine.patience import Patience

T = TypeVar("T")
Group = Sequence[Any]
"""What one caller stores together, all or nothing: encoded message rows."""
Outcome = Any
"""What became of a group: a list of row ids, or an exception."""
Apply = Callable[[apsw.Connection, Sequence[Group]], list[Outcome]]
AtOnce = Callable[[Sequence[Group]], Sequence[Outcome] | None]

MAX_GROUP_ROWS = 1024
"""Rows that one shared transaction takes at most, so that nobody waits long for a follower's rows."""


class _Place:
    """A thread's place in the line."""

    __slots__ = ("conn", "done", "group", "outcome", "owner", "taken", "wake")

    def __init__(self, group: Group | None, conn: apsw.Connection | None = None) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()
        self.group = group
        self.conn = conn
        self.outcome: Outcome = None
        self.taken = False
        self.owner = False
        self.done = False


class Writer:
    """A fair line of threads in front of one APSW connection.

    Args:
        conn: the connection, used by one thread at a time from here on.
        path: the database file, for messages.
        apply: stores several groups in the open transaction; one outcome each.
        at_once: stores several groups by one statement that is a transaction of its own, or
            answers None where it cannot; the ordinary way takes over after any error of its but
            a lock that is taken. It may use another connection: it, too, is called in line.
    """

    def __init__(
        self, conn: apsw.Connection, path: Path, apply: Apply, at_once: AtOnce | None = None
    ) -> None:
        self.conn = conn
        self._path = path
        self._apply = apply
        self._at_once = at_once
        self._mutex = threading.Lock()
        self._line: deque[_Place] = deque()
        self._owned = False
        self._process = os.getpid()
        self.commits = 0

    @property
    def waiting(self) -> int:
        """How many threads stand in line now."""
        return len(self._line)

    # -- the line --

    def _enter(self, place: _Place, patience: Patience, operation: str) -> bool:
        """Wait until the connection is ours (True), or an owner has done our group (False)."""
        try:
            with self._mutex:
                if not self._owned:
                    self._owned = place.owner = True
                    return True
                self._line.append(place)
            got = patience.acquire(place.wake)
        except BaseException:  # interrupted
            # It may have come right after we were woken: then there is nothing more to wait for.
            if not self._withdraw(place) and not (place.owner or place.done):
                place.wake.acquire()  # an owner has it in its transaction
            raise
        if not got:
            if self._withdraw(place):
                raise errors.busy(self._path, operation, patience.waited)
            place.wake.acquire()  # an owner has it in its transaction: the outcome is near
        return place.owner

    def _withdraw(self, place: _Place) -> bool:
        """Leave the line; False if an owner has taken the place already or made it the owner."""
        with self._mutex:
            if place.taken or place.owner:
                return False
            if place in self._line:
                self._line.remove(place)
            return True

    def _leave(self, place: _Place) -> None:
        """Give the connection to the next in line if ``place`` has it; does nothing the second time.

        An interrupt is raised after a call, so none comes between giving up ``place`` and
        waking the heir.
        """
        with self._mutex:
            if not place.owner:
                return
            place.owner = False
            if self._line:
                heir = self._line[0]
                del self._line[0]
                heir.owner = True
                heir.wake.release()
            else:
                self._owned = False

    def _give_back(self, place: _Place) -> None:
        """``_leave``, with no transaction left open by an owner that was interrupted twice."""
        if place.owner and os.getpid() == self._process:
            conn = place.conn or self.conn
            if conn.in_transaction:
                tx.rollback(conn)
        self._leave(place)

    def _followers(self, rows: int) -> list[_Place]:
        """Take the message groups out of the line, in order, up to MAX_GROUP_ROWS rows in all."""
        if not self._line:
            return []
        taken: list[_Place] = []
        with self._mutex:
            stay: deque[_Place] = deque()
            for place in self._line:
                if place.group is not None and rows + len(place.group) <= MAX_GROUP_ROWS:
                    rows += len(place.group)
                    place.taken = True
                    taken.append(place)
                else:
                    stay.append(place)
            self._line = stay
        return taken

    def _put_back(self, places: list[_Place]) -> None:
        """Return untreated followers to the head of the line, in their order."""
        with self._mutex:
            for place in reversed(places):
                place.taken = False
                self._line.appendleft(place)

    # -- what callers use --

    @contextmanager
    def exclusive(self, patience: Patience, operation: str) -> Iterator[apsw.Connection]:
        """The connection, outside any transaction, while the block runs."""
        place = _Place(None)
        try:
            self._enter(place, patience, operation)
            yield self.conn
        finally:
            try:
                self._give_back(place)
            except BaseException:  # interrupted: the line would stand still for ever
                self._give_back(place)
                raise

    def hold(
        self,
        fn: Callable[[apsw.Connection], T],
        patience: Patience,
        operation: str,
        conn: apsw.Connection | None = None,
    ) -> T:
        """``fn(conn)`` outside any transaction, while the line is ours; safe from interrupts.

        ``conn`` is the line's own connection, unless another is given, which nobody else uses then.
        """
        place = _Place(None, conn)
        try:
            self._enter(place, patience, operation)
            return fn(conn or self.conn)
        finally:
            try:
                self._give_back(place)
            except BaseException:  # interrupted: the line would stand still for ever
                self._give_back(place)
                raise

    def run(self, fn: Callable[[apsw.Connection], T], patience: Patience, operation: str) -> T:
        """``fn(conn)`` inside one write transaction of its own."""

        def whole(conn: apsw.Connection) -> T:
            result = tx.run(conn, fn, patience, self._path, operation)
            self.commits += 1
            return result

        return self.hold(whole, patience, operation)

    def store(self, group: Group, patience: Patience, operation: str) -> list[int]:
        """Store one group of message rows; returns their ids after COMMIT.

        Raises:
            errors.HermesStateError: what this group, and no other, met.
        """
        place = _Place(group)
        try:
            if self._enter(place, patience, operation):
                place.outcome = self._lead(group, patience, operation)
        finally:
            try:
                self._give_back(place)
            except BaseException:  # interrupted: the line would stand still for ever
                self._give_back(place)
                raise
        outcome = place.outcome
        if isinstance(outcome, BaseException):
            raise errors.translate(outcome, self._path, operation) from outcome.__cause__
        return outcome  # type: ignore[no-any-return]

    def store_many(self, groups: Sequence[Group], patience: Patience, operation: str) -> list[Outcome]:
        """Store groups that one thread brings for several callers, in one transaction; one outcome each.

        A group that fails does so alone: its outcome is a typed error. Raises only where the
        line or the write lock was not to be had; nothing was stored then.
        """
        with self.exclusive(patience, operation) as conn:
            tx.begin(conn, patience, self._path, operation)
            try:
                outcomes = self._apply(conn, groups)
                tx.commit(conn, patience, self._path, operation)
            except Exception as error:  # noqa: BLE001 - each group tells of it by its own outcome
                tx.rollback(conn)
                outcomes = [self._alone(group, patience, operation, error) for group in groups]
            except BaseException:
                tx.rollback(conn)
                raise
            else:
                self.commits += 1
        return [
            errors.translate(met, self._path, operation) if isinstance(met, BaseException) else met
            for met in outcomes
        ]

    def _lead(self, group: Group, patience: Patience, operation: str) -> Outcome:
        """Store ours and every group in line in one transaction; our outcome."""
        conn = self.conn
        followers: list[_Place] = []
        try:
            outcomes = self._store_at_once(group, followers, patience, operation)
            if outcomes is None:
                tx.begin(conn, patience, self._path, operation)
                self._join(followers, group)
                outcomes = self._apply(conn, _groups(group, followers))
                tx.commit(conn, patience, self._path, operation)
        except errors.StoreBusyError:
            # Our patience is used up; that of the others need not be.
            tx.rollback(conn)
            self._put_back(followers)
            raise
        except Exception as error:
            tx.rollback(conn)
            if not followers:
                raise
            # Somebody's row, or the size of all together, broke the shared transaction: each alone now.
            own = self._alone(group, patience, operation, error)
            for place in followers:
                self._settle(place, self._alone(place.group or (), patience, operation, error))
            return own
        except BaseException:
            # An interrupt is ours alone: the others' groups go back into the line, untreated.
            tx.rollback(conn)
            self._put_back(followers)
            raise
        self.commits += 1
        for place, outcome in zip(followers, outcomes[1:], strict=True):
            self._settle(place, outcome)
        return outcomes[0]

    def _join(self, followers: list[_Place], group: Group) -> None:
        """Add the groups that stand in line now to ``followers``."""
        # Interrupts come to the main thread: it does not answer for other threads' messages.
        if threading.get_ident() != threading.main_thread().ident:
            rows = len(group) + sum(len(place.group or ()) for place in followers)
            followers += self._followers(rows)

    def _store_at_once(
        self, group: Group, followers: list[_Place], patience: Patience, operation: str
    ) -> Sequence[Outcome] | None:
        """Store ours and the groups in line by one statement; None, with nothing stored, where that fails."""
        if self._at_once is None:
            return None
        while True:
            self._join(followers, group)
            try:
                return self._at_once(_groups(group, followers))
            except (apsw.BusyError, apsw.LockedError) as error:
                if not patience.pause():
                    raise errors.busy(self._path, operation, patience.waited) from error
            except (apsw.Error, errors.HermesStateError, TypeError, ValueError, OverflowError):
                return None  # whose fault it was, the ordinary way finds out

    def _alone(self, group: Group, patience: Patience, operation: str, cause: Exception) -> Outcome:
        """The outcome of ``group`` in a transaction of its own, after a shared one failed by ``cause``."""
        try:
            outcome = tx.run(
                self.conn, lambda conn: self._apply(conn, [group])[0], patience, self._path, operation
            )
        except Exception as error:  # noqa: BLE001 - the outcome belongs to another thread, which raises it
            if error is not cause and error.__cause__ is None:
                error.__cause__ = cause
            return error
        self.commits += 1
        return outcome

    @staticmethod
    def _settle(place: _Place, outcome: Outcome) -> None:
        place.outcome = outcome
        place.done = True
        place.wake.release()


def _groups(own: Group, followers: Sequence[_Place]) -> list[Group]:
    return [own, *(place.group for place in followers if place.group is not None)]
