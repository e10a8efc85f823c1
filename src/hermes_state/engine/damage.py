"""What an engine knows about full-text tables that it cannot use, damaged ones and such as its SQLite lacks.

Such damage must not stop reading and appending: rows stay above the index
watermark, searches scan, and the worker leaves the index alone until a repair,
or for a while, after which one step tries again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import apsw

from hermes_state import errors

log = logging.getLogger("hermes_state")

RETRY_AFTER_S = 60.0
"""How long the index is left alone after damage was met."""


class IndexDamage:
    """Whether the full-text tables of one file can be used; says so once when they cannot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._until = 0.0
        self._said = False

    @property
    def known(self) -> bool:
        """True while the index is left alone."""
        return self._until > 0.0 and time.monotonic() < self._until

    def met(self, error: BaseException) -> bool:
        """Note that using the index raised ``error``; False, and nothing noted, where it is no damage."""
        if not is_damage(error):
            return False
        self._until = time.monotonic() + RETRY_AFTER_S
        if not self._said:
            self._said = True
            log.warning(
                "%s: a full-text index is damaged (%s); messages are safe, searches scan the newest ones;"
                " repair() builds the index anew",
                self._path, error,
            )  # fmt: skip
        return True

    def mended(self) -> None:
        """Use the index again at once."""
        self._until, self._said = 0.0, False


class FullText:
    """What the SQLite of this process lacks for full-text search; says so once a file and process."""

    _said: ClassVar[set[Path]] = set()

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lacks: str | None = None
        """"FTS5" or "the trigram tokenizer"; None where SQLite has both."""

    def note(self, unable: Collection[str]) -> None:
        """Note the full-text tables that cannot be made or used."""
        self.lacks = None
        if unable:
            self.lacks = "FTS5" if "messages_fts" in unable else "the trigram tokenizer"
        if self.lacks is not None and self._path not in self._said:
            self._said.add(self._path)
            log.warning(
                "%s: SQLite %s was built without %s; messages are safe, searches that need it scan the newest"
                " ones; the index is completed once a SQLite that has it opens the file",
                self._path, apsw.sqlite_lib_version(), self.lacks,
            )  # fmt: skip


def is_damage(error: BaseException) -> bool:
    """Damage that may lie in an index alone."""
    if isinstance(error, apsw.CorruptError):
        return True
    if isinstance(error, errors.StoreCorruptError):
        return not isinstance(error, errors.NotADatabaseError)
    # What FTS5 says of a table whose structure record or configuration cannot be read.
    return isinstance(error, apsw.SQLError) and "vtable constructor failed" in str(error)
