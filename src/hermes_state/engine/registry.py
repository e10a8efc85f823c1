"""Which engine serves which file in this process, and what a fork does to them.

POSIX locks do not survive a fork, and SQLite's record of the locks it holds
does: a child that used, or even only kept, the parent's connections would
believe in locks it does not have. So every engine closes its connections
before the process forks, at a quiet moment, and parent and child each open
their own again at the next use.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import threading
import weakref
from contextlib import nullcontext
from pathlib import Path

from hermes_state import errors
from hermes_state.engine import links
from hermes_state.engine.core import Engine, Options
from hermes_state.engine.identity import keep_for_ever

log = logging.getLogger("hermes_state")


class Lease:
    """One handle's right to an engine. Forgotten without a :func:`release`, it is given back all the same."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.entry: _Entry
        self.engine: Engine
        self.forgotten = weakref.finalize(self, release_soon, key)
        self.forgotten.atexit = False


class _Entry:
    """An engine and the handles' leases of it; ``lock`` is held while it opens or closes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: Engine | None = None
        # Weak, not a number: what an interrupt loses between two steps counts no more.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()


_lock = threading.Lock()
_entries: dict[str, _Entry] = {}
_before: list[tuple[Engine, bool]] = []
_held: list[_Entry] = []

EXIT_WAIT_S = 10.0
"""How long the end of the interpreter waits for threads that are inside a store."""
LOCK_WAIT_S = 10.0
"""How long a fork waits for another thread that opens or closes a store."""


def _key(path: Path) -> str:
    return os.path.normcase(os.path.realpath(path))


def acquire(path: Path, options: Options) -> Lease:
    """A lease of the engine of ``path``, opened if this is its first one. Pair with :func:`release`.

    Raises:
        sqlite3.Error: the file cannot be opened; nothing is left open.
        ValueError: another handle of this process has it open in another mode.
    """
    links.refuse_foreign(path)
    key = _key(path)
    lease = Lease(key)
    try:
        while not _lend(lease, path, options):
            pass
    except Exception:
        lease.forgotten.detach()  # there is nothing to give back
        raise
    return lease


def _lend(lease: Lease, path: Path, options: Options) -> bool:
    """Give the lease its engine, opened where it is not; False if that was closed while we waited for it."""
    key = lease.key
    with _lock:
        entry = _entries.setdefault(key, _Entry())
    # A thread that is inside does not wait: who holds the lock may be waiting for that to end.
    inside = entry.engine is not None and entry.engine.gate.depth
    with nullcontext() if inside else entry.lock:
        if _entries.get(key) is not entry:
            return False
        if entry.engine is None:
            try:
                entry.engine = Engine(Path(key), options)
            except BaseException:
                _entries.pop(key, None)
                raise
        else:
            options.check_against(entry.engine.options, path)
        lease.entry, lease.engine = entry, entry.engine
        entry.leases.add(lease)
        return True


def _used(entry: _Entry) -> bool:
    """Whether a handle has a lease; the length of the set also counts what an interrupt left in it, dead."""
    return any(True for _ in entry.leases)


def release(lease: Lease) -> None:
    """Give a lease back; the last one closes the engine, after those inside it have left.

    Interrupted, it is given back when it is forgotten; given back twice, it counts once.
    """
    lease.entry.leases.discard(lease)
    if lease.engine.gate.depth:
        # Called from inside an operation of this very engine, which close() would wait for.
        release_soon(lease.key)
    else:
        _close_unused(lease.key)
    lease.forgotten.detach()


def _close_unused(key: str) -> None:
    """Close the engine of ``key`` if no handle has a lease of it."""
    with _lock:
        entry = _entries.get(key)
    if entry is None:
        return
    with entry.lock:
        engine = entry.engine
        if engine is None or _used(entry) or _entries.get(key) is not entry:
            return
        try:
            if not engine.forked_inside:
                engine.close(unless=lambda: _used(entry))
        finally:
            # Interrupted before it began to close, it is left to the next handle or the exit handler.
            if engine.closed or engine.forked_inside:
                _entries.pop(key, None)


def is_open(path: Path) -> bool:
    """Whether a handle of this process is open on the file, by whatever name."""
    key = _key(path)
    return any(str(engine.path) == key for engine in open_engines())


def open_engines() -> list[Engine]:
    """The engines that this process has open now."""
    return [entry.engine for entry in list(_entries.values()) if entry.engine is not None]


def release_soon(key: str) -> None:
    """Close what nobody uses, for a garbage collector that may run anywhere, even under our locks."""
    try:
        # Not threading.Thread: its start() takes locks that the interrupted code may hold, and waits.
        _thread.start_new_thread(_close_unused, (key,))
    except RuntimeError:
        # No new thread at interpreter exit: _at_exit closes what is left.
        log.debug("%s is left to the exit handler", key)


def _at_exit() -> None:
    """Index what is pending and close in order when the interpreter ends with open stores."""
    for engine in open_engines():
        if engine.forked_inside or engine.gate.depth:
            continue
        try:
            engine.close(EXIT_WAIT_S)
        except errors.HermesStateError as error:
            log.warning("closing %s at exit: %s", engine.path, error)


def _before_fork() -> None:
    _lock.acquire()
    for entry in list(_entries.values()):
        if entry.lock.acquire(timeout=LOCK_WAIT_S):
            _held.append(entry)
            if entry.engine is not None:
                _before.append((entry.engine, _quiet(entry.engine)))
        elif entry.engine is not None:
            _before.append((entry.engine, False))


def _quiet(engine: Engine) -> bool:
    try:
        return engine.before_fork()
    except Exception:
        # The fork happens whatever is raised here; the child must not use what is left open.
        log.exception("%s could not be closed before a fork", engine.path)
        return False


def _after_fork(child: bool) -> None:
    for engine, quiet in _before:
        engine.after_fork(quiet=quiet, child=child)
        if child and not quiet:
            # Closing a connection rolls its transaction back, in the WAL's shared index: the parent's.
            keep_for_ever(engine)
    _before.clear()
    if child:
        # A lock that is not ours is held by a thread that is not here.
        for entry in list(_entries.values()):
            if entry not in _held:
                entry.lock = threading.Lock()
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
