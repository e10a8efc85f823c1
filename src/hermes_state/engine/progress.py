"""Telling how far the re-indexing of an upgrade has come: a line in the log, and callbacks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("hermes_state")

LOG_EVERY_S = 3.0
"""Seconds between two lines of the log."""
Listener = Callable[[int, int], object]


class UpgradeProgress:
    """Who is told of an upgrade's progress, and when it was last logged.

    Progress is counted in message ids, which two point reads give: (the id up to which all is
    indexed, the newest message's id). Both grow; they are equal at the end.

    Args:
        path: the database file, for the log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._telling = threading.RLock()
        self._told = -1
        self._listeners: list[Listener] = []
        self._logged = time.monotonic()

    def add(self, listener: Listener) -> None:
        """Call ``listener(done, total)`` after each step from now on."""
        with self._mutex:
            self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        """Undo one ``add``; does nothing for a listener that is not there any more."""
        with self._mutex:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def tell(self, done: int, total: int) -> None:
        """Log, if it is time or the end, and call the listeners; call it without the write lock.

        Several threads make steps: they tell one at a time, and what comes late is not told.
        """
        with self._telling:
            if done <= self._told:
                return
            self._told = done
            if done >= total or time.monotonic() - self._logged >= LOG_EVERY_S:
                self._logged = time.monotonic()
                log.info("upgrade of %s: indexed up to message %d of %d", self._path, done, total)
            with self._mutex:
                listeners = list(self._listeners)
            for listener in listeners:
                self._call(listener, done, total)

    def _call(self, listener: Listener, done: int, total: int) -> None:
        try:
            listener(done, total)
        except Exception:
            # It runs between two steps of somebody else's work, which must not fail for it.
            log.exception("on_upgrade_progress failed and is not called again")
            self.remove(listener)
