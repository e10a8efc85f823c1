"""Connections for reading whose results come in one piece: the GIL is given up once, not once a row.

``ReadConnection.whole`` is what ``store.rows`` asks first. Where the module ``_fetch`` was not compiled,
or cannot be loaded into APSW's SQLite, it is None and APSW does everything, row by row.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import apsw

from hermes_state._fastpath import _mode
from hermes_state.engine import protection

log = logging.getLogger("hermes_state")

Whole = Callable[[str, tuple[Any, ...]], tuple[tuple[str, ...], list[tuple[Any, ...]]] | int | None]
"""(SQL, parameters) -> names of the columns and all rows; SQLite's code of an error; None for "ask APSW"."""

_lock = threading.Lock()
_tried = False
_module: Any = None


def _loaded() -> Any:
    """The compiled module with SQLite's functions in it, or None; tried once a process."""
    global _tried, _module
    with _lock:
        if not _tried and not _mode.NO_EXTENSIONS:
            try:
                module = import_module("hermes_state.engine._fetch")
                protection.load(module)
                _module = module
            except (ImportError, apsw.Error, AttributeError) as error:
                log.debug("rows are fetched one by one: %s", error)
        _tried = True
        return _module


class ReadConnection(apsw.Connection):
    """A connection that reads, for one thread at a time.

    Attributes:
        whole: all rows of a statement that APSW has run before on this connection; None where that
            is not to be had, and once the connection is closed.
    """

    whole: Whole | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        module = _loaded()
        if module is not None:
            self.whole = partial(module.rows, self.sqlite3_pointer())

    def close(self, force: bool = False) -> None:
        """Close it; ``force`` as APSW has it."""
        self.whole = None
        super().close(force)
