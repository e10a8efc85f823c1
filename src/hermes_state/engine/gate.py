"""Who is inside an engine, so that closing and forking wait for a quiet moment.

Every operation enters the gate and leaves it. Closing it waits until nobody
is inside and keeps newcomers out. A thread may enter again while it is inside.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class Gate:
    """Counts the threads inside; ``shut`` keeps new ones out and waits for the rest."""

    def __init__(self) -> None:
        # Entered by itself, not by the Condition: that one's __enter__ is Python, and an interrupt
        # between taking the lock and returning from it would leave the lock with nobody.
        self._mutex = threading.Lock()
        self._cond = threading.Condition(self._mutex)
        self._inside = 0
        self._shut = 0
        """The identity of the thread that has shut it; 0 where it is open."""
        self._local = threading.local()

    @property
    def depth(self) -> int:
        """How many times the calling thread is inside."""
        return getattr(self._local, "depth", 0)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be inside while the block runs; waits while the gate is shut."""
        local, depth = self.place()
        try:
            self.arrive(local, depth)
            yield
        finally:
            try:
                self.leave(local, depth)
            except BaseException:  # interrupted: whoever waits for us would wait for ever
                self.leave(local, depth)
                raise

    def place(self) -> tuple[threading.local, int]:
        """Where the calling thread stands; what ``arrive`` and ``leave`` are told."""
        return self._local, self.depth

    def arrive(self, local: threading.local, depth: int) -> None:
        """Be inside from now on; waits while the gate is shut. Whatever it raises, ``leave`` must follow."""
        if depth:
            local.depth = depth + 1
            return
        with self._mutex:
            while self._shut:
                self._cond.wait()
            # Nothing can interrupt between these two.
            local.depth = 1
            self._inside += 1

    def leave(self, local: threading.local, depth: int) -> None:
        """Go back to ``depth``; does nothing the second time."""
        if local is not self._local:
            return  # forked inside: the child's gate never counted this
        if depth:
            local.depth = depth
            return
        with self._mutex:
            if getattr(local, "depth", 0):
                local.depth = 0
                self._inside -= 1
            if self._shut and self._inside == 0:
                self._cond.notify_all()

    def shut(self, seconds: float) -> bool:
        """Keep newcomers out and wait for those inside; False if they did not leave in ``seconds``.

        The gate is shut either way, but not after an exception. The calling thread must not be inside.
        """
        deadline = time.monotonic() + seconds
        with self._mutex:
            while self._shut:
                self._cond.wait()
            self._shut = threading.get_ident()
            try:
                while self._inside:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._cond.wait(left)
            except BaseException:  # interrupted
                self._shut = 0
                self._cond.notify_all()
                raise
        return True

    def open(self) -> None:
        """Let threads in again; does nothing where the calling thread has not shut the gate."""
        with self._mutex:
            if self._shut == threading.get_ident():
                self._shut = 0
                self._cond.notify_all()

    def reborn(self) -> None:
        """In a forked child: only the calling thread is left, and it is outside."""
        self._mutex = threading.Lock()
        self._cond = threading.Condition(self._mutex)
        self._inside = 0
        self._shut = 0
        self._local = threading.local()


def in_turn(steps: Sequence[Callable[[], object]]) -> BaseException | None:
    """Do all the steps, whatever one raises, and those that are interrupted twice; the first exception."""
    first: BaseException | None = None
    for step in steps:
        for _ in range(2):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the caller raises it
                first = first or error
            except BaseException as error:  # noqa: BLE001 - an interrupt, too, waits for the rest
                first = first or error
                continue
            break
    return first
