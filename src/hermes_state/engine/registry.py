"""Which engine serves which file in this process, and what a fork does to them.

POSIX locks do not survive a fork, and SQLite's record of the locks it holds
does: a child that used, or even only kept, the parent's connections would
believe in locks it does not have. So every engine closes its connections
before the process forks, at a quiet moment, and parent and child each open
their own again at the next use.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from pathlib import Path

from hermes_state import errors
from hermes_state.engine.core import Engine, Options

log = logging.getLogger("hermes_state")


class _Entry:
    """An engine and how many handles use it; ``lock`` is held while it opens or closes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: Engine | None = None
        self.handles = 0


_lock = threading.Lock()
_entries: dict[str, _Entry] = {}
_before: list[tuple[Engine, bool]] = []
_held: list[_Entry] = []
_abandoned: list[Engine] = []


def _key(path: Path) -> str:
    return os.path.normcase(os.path.realpath(path))


def acquire(path: Path, options: Options) -> Engine:
    """The engine of ``path``, opened if this is its first handle. Pair with :func:`release`.

    Raises:
        sqlite3.Error: the file cannot be opened; nothing is left open.
        ValueError: another handle of this process has it open in another mode.
    """
    key = _key(path)
    while True:
        with _lock:
            entry = _entries.setdefault(key, _Entry())
        with entry.lock:
            if _entries.get(key) is not entry:
                continue  # closed and forgotten while we waited
            if entry.engine is None:
                try:
                    entry.engine = Engine(Path(key), options)
                except BaseException:
                    with _lock:
                        del _entries[key]
                    raise
            else:
                options.check_against(entry.engine.options, path)
            entry.handles += 1
            return entry.engine


def release(engine: Engine) -> None:
    """Give one handle back; the last one closes the engine, after those inside it have left."""
    if engine.gate.depth:
        # Called from inside an operation of this very engine, which close() would wait for.
        release_soon(engine)
        return
    key = str(engine.path)
    with _lock:
        entry = _entries.get(key)
    if entry is None:
        return
    with entry.lock:
        if entry.engine is not engine:
            return
        entry.handles -= 1
        if entry.handles > 0:
            return
        try:
            if engine.forked_inside:
                _abandoned.append(engine)
            else:
                engine.close()
        finally:
            with _lock:
                _entries.pop(key, None)


def open_engines() -> list[Engine]:
    """The engines that this process has open now."""
    with _lock:
        return [entry.engine for entry in _entries.values() if entry.engine is not None]


def release_soon(engine: Engine) -> None:
    """Like :func:`release`, for a garbage collector that may run anywhere, even under our locks."""
    try:
        threading.Thread(target=release, args=(engine,), name="hermes_state-release", daemon=True).start()
    except RuntimeError:
        # No new thread at interpreter exit: _at_exit closes what is left.
        log.debug("%s is left to the exit handler", engine.path)


def _at_exit() -> None:
    """Index what is pending and close in order when the interpreter ends with open stores."""
    for engine in open_engines():
        if engine.forked_inside:
            continue
        try:
            engine.close()
        except errors.HermesStateError as error:
            log.warning("closing %s at exit: %s", engine.path, error)


def _before_fork() -> None:
    _lock.acquire()
    for entry in _entries.values():
        if entry.lock.acquire(timeout=10.0):
            _held.append(entry)
            if entry.engine is not None:
                _before.append((entry.engine, entry.engine.before_fork()))
        elif entry.engine is not None:
            _before.append((entry.engine, False))


def _after_fork(child: bool) -> None:
    for engine, quiet in _before:
        engine.after_fork(quiet=quiet, child=child)
    _before.clear()
    for entry in _held:
        entry.lock.release()
    _held.clear()
    _lock.release()


def _after_fork_in_parent() -> None:
    _after_fork(child=False)


def _after_fork_in_child() -> None:
    _after_fork(child=True)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
