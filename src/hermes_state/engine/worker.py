"""The background worker of an engine: index steps, checkpoints and merges, while nobody waits.

It stands in the writer's line like everybody else, so appenders and it take
turns. An index step holds the write lock for about ``HOLD_S``: the number of
rows is fitted to the time that the last step took. Checkpoints are PASSIVE,
on a connection of the worker's own, never inside a commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import apsw

from hermes_state import errors

log = logging.getLogger("hermes_state")

HOLD_S = 0.020
"""How long one index step should hold the write lock, seconds."""
QUIET_S = 0.015
"""No write for this long, and the worker begins, where writes come closer together than that."""
QUIET_MOST_S = 0.25
"""Else it begins after three times their usual distance, and after this long at the latest."""
STREAM_SHARE = 0.1
"""While writes keep coming, index steps take at most this share of the time."""
STREAM_WAIT_S = 0.2
"""How long a stream of writes is left alone before its first index step."""
BACKLOG_ROWS = 8192
"""Rows waiting for the index at which the worker takes every turn it gets in the line."""
HELP_ROWS = 4 * BACKLOG_ROWS
"""Rows waiting for the index at which those who write index as well (back-pressure)."""
CHECKPOINT_EVERY_WRITES = 50
CHECKPOINT_AFTER_S = 0.5
"""A write is in the main file after about this long at the latest (programs poll its time)."""
CHECKPOINT_LEAST_S = 0.1
"""A WAL that is too long is looked at again no sooner than this: a reader may pin it."""
IDLE_S = 5.0
"""No write for so long, and the worker merges what indexing left in pieces."""
MERGE_REST_S = 0.05
"""Between two steps of merging, for writers of other processes."""
MIN_ROWS, MAX_ROWS = 8, 512
_RETRY_AFTER_S = 1.0
_AFTER_BUSY_S = 0.2


class StepSize:
    """Rows of the next step, fitted to the time that a step should hold the write lock.

    Args:
        hold: that time, seconds.
    """

    def __init__(self, hold: float = HOLD_S) -> None:
        self.rows = 32
        self._hold = hold

    def learn(self, rows: int, seconds: float) -> None:
        """Take in that ``rows`` rows took ``seconds``."""
        if rows <= 0 or seconds <= 0:
            return
        fitting = int(rows * self._hold / seconds)
        self.rows = max(
            MIN_ROWS, min(MAX_ROWS, (self.rows + fitting) // 2 if fitting > self.rows else fitting)
        )


class Worker:
    """A daemon thread, started by the first write, that ends with ``stop``.

    Args:
        index_step: indexes up to so many rows in one transaction; (rows treated, seconds of
            lock held).
        checkpoint: one PASSIVE checkpoint.
        wal_grown: whether the WAL is longer than it should be, so that a checkpoint is due.
        merge_step: one short step of merging the index's segments; True if another is worthwhile now,
            False if it must be later, None if none is until something new was written.
    """

    def __init__(
        self,
        index_step: Callable[[int], tuple[int, float]],
        checkpoint: Callable[[], None],
        wal_grown: Callable[[], bool],
        merge_step: Callable[[], bool | None],
    ) -> None:
        self._index_step = index_step
        self._checkpoint = checkpoint
        self._wal_grown = wal_grown
        self._merge_step = merge_step
        self._unmerged = False
        self._last_checkpoint = 0.0
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._backlog = 0
        self._writes = 0
        self._next_turn = 0.0
        self._last_write = 0.0
        self._distance = 0.0
        self._first_unchecked: float | None = None
        self.steps = StepSize()

    def written(self, rows: int) -> None:
        """Note that a transaction with ``rows`` unindexed messages was committed; wakes the thread."""
        now = time.monotonic()
        if rows and not self._backlog:
            self._next_turn = max(self._next_turn, now + STREAM_WAIT_S)
        self._backlog += rows
        self._writes += 1
        self._unmerged = True
        # Writes that come slowly but steadily (a thread that waits for the GIL each time) are a stream too.
        self._distance += 0.2 * (min(now - self._last_write, QUIET_MOST_S) - self._distance)
        self._last_write = now
        if self._first_unchecked is None:
            self._first_unchecked = now
        # First of all, so that a thread that starts now finds that it has work.
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start()

    @property
    def overloaded(self) -> bool:
        """So many rows wait for the index that those who write should help."""
        return self._backlog >= HELP_ROWS

    def helped(self, rows: int) -> None:
        """Note that somebody else indexed ``rows`` rows."""
        self._backlog = max(0, self._backlog - rows)

    def _start(self) -> None:
        with self._mutex:
            if self._thread is not None or self._stop.is_set():
                return
            thread = threading.Thread(target=self._run, name="hermes_state-worker", daemon=True)
            self._thread = thread
        try:
            thread.start()
        except RuntimeError:
            # No thread can be started at interpreter exit: close() does the worker's work then.
            self._thread = None

    def stop(self) -> None:
        """End the thread after the step it is in; a later ``written`` does not start another.

        Interrupted, it must be called again, as ``in_turn`` does, before what the thread uses is closed.
        """
        with self._mutex:
            self._stop.set()
            thread = self._thread
        self._wake.set()
        # One that is not running yet ends by itself.
        if thread is not None and thread.ident not in (None, threading.get_ident()):
            thread.join()
        self._thread = None

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            self._wake.wait(IDLE_S)
            if self._stop.is_set():
                return
            try:
                if self._wake.is_set():
                    self._work()
                else:
                    self._merge()
                said = ""
            except errors.StoreBusyError:
                # Another process has the lock: its turn, then ours.
                self._stop.wait(_AFTER_BUSY_S)
                self._wake.set()
            except (apsw.Error, errors.HermesStateError) as error:
                # Nothing is lost: the rows stay above the watermark, for the next step, search or open.
                level = logging.DEBUG if str(error) == said else logging.WARNING
                said = str(error)
                log.log(level, "background work failed, trying again in %.0f s: %s", _RETRY_AFTER_S, said)
                self._stop.wait(_RETRY_AFTER_S)
                self._wake.set()

    def _work(self) -> None:
        """Index and checkpoint until there is nothing to do."""
        while not self._stop.is_set():
            quiet = min(QUIET_MOST_S, max(QUIET_S, 3 * self._distance))
            quiet_in = self._last_write + quiet - time.monotonic()
            turn_in = min(quiet_in, self._next_turn - time.monotonic())
            if turn_in > 0 and self._backlog < BACKLOG_ROWS:
                self._checkpoint_if_due()
                self._stop.wait(turn_in)
                continue
            self._wake.clear()
            more = self._step()
            self._checkpoint_if_due()
            if more:
                self._wake.set()
            elif not self._wake.is_set():
                self._checkpoint_when_old()
                if not self._wake.is_set():
                    return

    def _merge(self) -> None:
        """Merge segments of the index, step by step, until somebody writes or nothing is left."""
        while self._unmerged and not self._wake.is_set():
            more = self._merge_step()
            if more is None and not self._wake.is_set():
                self._unmerged = False
            if not more:
                break
            self._writes += 1
            if self._first_unchecked is None:
                self._first_unchecked = time.monotonic()
            self._checkpoint_if_due()
            self._wake.wait(MERGE_REST_S)
        self._checkpoint_when_old()

    def _step(self) -> bool:
        """One index step; True if there may be more."""
        asked = self.steps.rows
        treated, held = self._index_step(asked)
        self._next_turn = time.monotonic() + held * (1 / STREAM_SHARE - 1)
        self.steps.learn(treated, held)
        self._backlog = 0 if treated < asked else max(0, self._backlog - treated)
        return treated > 0

    def _checkpoint_if_due(self) -> None:
        now = time.monotonic()
        if (
            self._writes >= CHECKPOINT_EVERY_WRITES
            or (self._first_unchecked is not None and now - self._first_unchecked > CHECKPOINT_AFTER_S)
            or (now - self._last_checkpoint > CHECKPOINT_LEAST_S and self._wal_grown())
        ):
            self._checkpoint_now()

    def _checkpoint_when_old(self) -> None:
        """Wait for the age at which a few writes deserve a checkpoint, unless new work comes."""
        if self._first_unchecked is None:
            return
        self._wake.wait(max(0.0, self._first_unchecked + CHECKPOINT_AFTER_S - time.monotonic()))
        if not self._wake.is_set() and not self._stop.is_set():
            self._checkpoint_now()

    def _checkpoint_now(self) -> None:
        self._writes = 0
        self._first_unchecked = None
        self._checkpoint()
        self._last_checkpoint = time.monotonic()
