"""Appends of many tasks, stored by one thread.

A task puts its rows into a queue and awaits a future. One thread takes all
that wait, stores them in one transaction (``Engine.store_many``: each append
succeeds or fails alone), and tells each event loop once what became of its
appends. The thread works only while something waits.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from hermes_state import errors
from hermes_state.engine.core import Engine
from hermes_state.engine.writer import MAX_GROUP_ROWS

log = logging.getLogger("hermes_state")

Rows = Sequence[Any]
Loop = asyncio.AbstractEventLoop


class _Append:
    """One append: its rows, or the function that makes them, and the future that its task awaits."""

    __slots__ = ("future", "loop", "make", "operation", "rows", "size", "taken", "withdrawn")

    def __init__(self, rows: Rows | None, make: Callable[[], Rows] | None, size: int, operation: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[int]] = self.loop.create_future()
        self.rows = rows
        self.make = make
        self.size = size
        self.operation = operation
        self.taken = False
        self.withdrawn = False


class AppendQueue:
    """The queue of one ``AsyncSessionDB``.

    Args:
        engine: where the rows go.
        executor: has one thread; it stores.
    """

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self._engine = engine
        self._executor = executor
        self._mutex = threading.Lock()
        self._queue: deque[_Append] = deque()
        self._storing = False
        self.transactions = 0

    async def store(
        self, rows: Rows | None, make: Callable[[], Rows] | None, size: int, operation: str
    ) -> list[int]:
        """Store ``rows`` (or what ``make()`` gives, in the storing thread); their ids after the COMMIT.

        Cancelled while the append waits in the queue, nothing is stored. Cancelled later,
        it is stored whole or, where it fails, not at all.
        """
        # No await comes before this: the order of the calls is the order of the rows.
        append = _Append(rows, make, size, operation)
        with self._mutex:
            self._queue.append(append)
            start = not self._storing
            self._storing = True
        if start:
            self._start()
        try:
            return await append.future
        except asyncio.CancelledError:
            self._withdraw(append)
            raise

    def _start(self) -> None:
        try:
            self._executor.submit(self._store_all)
        except RuntimeError as error:
            # Closed, or the interpreter ends: nothing that waits will be stored.
            with self._mutex:
                left, self._queue = list(self._queue), deque()
                self._storing = False
            closed = errors.closed(self._engine.path, "append_message")
            closed.__cause__ = error
            self._tell([(append, closed) for append in left])

    def _withdraw(self, append: _Append) -> None:
        """Take a cancelled append out of the queue if nobody has taken it yet."""
        with self._mutex:
            if not append.taken:
                append.withdrawn = True

    # -- the storing thread --

    def _store_all(self) -> None:
        """Store until nothing waits."""
        while appends := self._take():
            self._tell(self._store(appends))

    def _take(self) -> list[_Append]:
        """What waits, in order, up to the rows of one transaction; empty ends the thread's work."""
        taken: list[_Append] = []
        rows = 0
        with self._mutex:
            while self._queue:
                append = self._queue[0]
                if taken and rows + append.size > MAX_GROUP_ROWS:
                    break
                self._queue.popleft()
                if not append.withdrawn:
                    append.taken = True
                    rows += append.size
                    taken.append(append)
            if not taken:
                self._storing = False
        return taken

    def _store(self, appends: list[_Append]) -> list[tuple[_Append, Any]]:
        """What became of each append: ids, or an exception."""
        outcomes: list[tuple[_Append, Any]] = []
        ready: list[tuple[_Append, Rows]] = []
        for append in appends:
            try:
                rows = append.rows if append.make is None else append.make()
            except BaseException as error:  # noqa: BLE001 - its task raises it; the thread goes on
                outcomes.append((append, error))
                continue
            ready.append((append, rows or ()))
        try:
            stored = self._engine.store_many([rows for _, rows in ready], "append_message") if ready else []
        except BaseException as error:  # noqa: BLE001 - every task raises it, each its own
            stored = [copy.copy(error) for _ in ready]
        self.transactions += 1
        outcomes += [(append, outcome) for (append, _), outcome in zip(ready, stored, strict=True)]
        return outcomes

    @staticmethod
    def _tell(outcomes: list[tuple[_Append, Any]]) -> None:
        """Settle the futures, with one call into each event loop."""
        by_loop: dict[Loop, list[tuple[_Append, Any]]] = {}
        for append, outcome in outcomes:
            by_loop.setdefault(append.loop, []).append((append, outcome))
        for loop, mine in by_loop.items():
            _call(loop, _settle, mine)


def _call(loop: Loop, function: Callable[[Any], None], argument: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, argument)
    except RuntimeError:
        # The loop was closed with tasks in it: there is nobody left to tell.
        log.debug("an event loop was closed before its appends were told of")


def _settle(outcomes: list[tuple[_Append, Any]]) -> None:
    for append, outcome in outcomes:
        if append.future.done():
            continue  # cancelled: the rows are stored whole, or not at all
        if isinstance(outcome, StopIteration):
            # A future takes any other exception.
            append.future.set_exception(RuntimeError(f"a message raised {outcome!r}"))
        elif isinstance(outcome, BaseException):
            append.future.set_exception(outcome)
        else:
            append.future.set_result(outcome)
