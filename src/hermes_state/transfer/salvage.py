"""Reading what can be read of a damaged database into a new one.

The damaged file is attached to the new one, immutable, so that SQLite neither locks, recovers nor
writes it, and rows go over by ``INSERT ... SELECT`` of a range of rowids, so that every value keeps
its type and its bytes. A range that damage stops is halved, down to single rows. What is still
missing then is looked for on the pages themselves (``transfer.pages``).
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from hermes_state.transfer import backup, pages

RANGE_ROWS: Final = 500
"""Rows of one INSERT, where nothing is damaged."""
MAX_FAILURES: Final = 20_000
"""Ranges that may fail in one table; damage beyond that is given up, and told."""
SAMPLE: Final = 20

MAGIC: Final = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_PAGE_SIZES = (4096, 1024, 2048, 8192, 16384, 32768, 512, 65536)

Progress = Callable[[int, int], object] | None

KEEP_OUT = "hermes_state."
"""Keys of ``state_meta`` that are about the damaged file's own indexes, and stay behind."""

_COLUMNS = "SELECT name FROM pragma_table_info(?1, ?2) ORDER BY cid"


@dataclass(slots=True)
class Table:
    """What became of one table: rows read through its b-tree, ranges of rowids (first, last) that could not
    be, and rows found on pages by themselves."""

    name: str
    read: int = 0
    found: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    gave_up: bool = False
    error: str | None = None

    def report(self) -> dict[str, Any]:
        """The same as a dict; ``lost_rowids`` counts rowids, of which some may never have had a row."""
        return {
            "read": self.read,
            "found_on_pages": self.found,
            "lost_rowids": max(0, sum(last - first + 1 for first, last in self.lost) - self.found),
            "lost_ranges": self.lost[:SAMPLE],
            "complete": not self.lost and not self.gave_up and self.error is None,
            "error": self.error,
        }


@contextmanager
def readable(path: Path, beside: Path) -> Iterator[Path]:
    """A path under which the damaged file can be read without being touched.

    That is the file itself, or, where a WAL or a journal belongs to it or its header is
    damaged, a working copy beside ``beside``, removed at the end.

    Raises:
        errors.StoreFullError: the working copy does not fit on the disk.
    """
    busy = [name for name in backup.sidecars(path) if not name.name.endswith("-shm") and _size(name)]
    header = _head(path)
    if not busy and header.startswith(MAGIC):
        yield path
        return
    backup.room_for(beside, _size(path) + sum(_size(name) for name in busy))
    with backup.unfinished(beside) as copy:
        shutil.copyfile(path, copy)
        copy.chmod(backup.FILE_MODE)
        for name in busy:
            shutil.copyfile(name, f"{copy}{str(name)[len(str(path)) :]}")
        if not header.startswith(MAGIC):
            _write_header(copy, header)
        elif busy:
            _settle(copy)
        yield copy


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES + 12)


def _settle(copy: Path) -> None:
    """Bring the working copy's WAL or journal into it."""
    conn = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        conn.execute("PRAGMA journal_mode=DELETE")
    except apsw.Error:
        # What cannot be brought in stays out; the tables say what that costs.
        return
    finally:
        conn.close()


def _write_header(copy: Path, header: bytes) -> None:
    """Give the working copy a header again, of the page size under which its schema can be read.

    Source of the layout: https://www.sqlite.org/fileformat2.html, section 1.3.
    """
    size = _size(copy)
    leaves: dict[int, int] = {}
    for page_size in _PAGE_SIZES:
        if size < page_size or size % page_size:
            continue
        _put_bytes(copy, _header(page_size, size // page_size))
        if _schema_readable(copy):
            return
        leaves[page_size] = _leaves(copy, page_size)
    best = max(leaves, key=lambda page_size: leaves[page_size], default=0)
    _put_bytes(copy, _header(best, size // best) if best and leaves[best] else header[:_HEADER_BYTES])


def _header(page_size: int, number: int) -> bytes:
    made = bytearray(_HEADER_BYTES)
    made[:16] = MAGIC
    made[16:18] = (1 if page_size == 65536 else page_size).to_bytes(2, "big")
    made[18:24] = bytes((1, 1, 0, 64, 32, 32))
    made[28:32] = number.to_bytes(4, "big")
    made[44:48] = (4).to_bytes(4, "big")
    made[56:60] = (1).to_bytes(4, "big")
    return bytes(made)


def _put_bytes(copy: Path, header: bytes) -> None:
    with copy.open("r+b") as file:
        file.write(header)


def _leaves(copy: Path, page_size: int) -> int:
    """How many pages of that size look like a table leaf: its type, and cells that end with the page."""
    number = 0
    with copy.open("rb") as file:
        for offset in range(0, _size(copy), page_size):
            file.seek(offset)
            kind, cells, start, first = struct.unpack(">BxxHHxH", file.read(10))
            number += kind == pages.LEAF and 0 < 8 + 2 * cells <= start <= first < page_size and cells > 0
    return number


def _schema_readable(copy: Path) -> bool:
    conn = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return bool(
            conn.execute("SELECT count(*) FROM sqlite_master WHERE name = 'messages'").fetchall()[0][0]
        )
    except (apsw.Error, UnicodeDecodeError):
        return False
    finally:
        conn.close()


def attach(conn: apsw.Connection, damaged: Path) -> str | None:
    """Make ``damaged`` the schema ``damaged`` of ``conn``, immutable; SQLite's words where it cannot."""
    try:
        conn.execute("ATTACH ? AS damaged", (f"file:{quote(os.fspath(damaged.absolute()))}?immutable=1",))
        conn.execute("PRAGMA cell_size_check=ON")
        conn.execute("SELECT count(*) FROM damaged.sqlite_master").fetchone()
    except (apsw.Error, UnicodeDecodeError) as error:
        return _words(error)
    return None


def table(conn: apsw.Connection, name: str, where: str = "1") -> Table:
    """Copy the readable rows of ``damaged.<name>`` to ``main.<name>``; ``where`` is a constant of ours.

    Columns that only one of the two has are left out. A row that breaks a constraint of the new table (a
    duplicate key, a NULL that must not be) is left out as well. Must run outside a transaction: SQLite
    lets nothing be written any more in one that has met damage.
    """
    out = Table(name)
    try:
        columns = _shared_columns(conn, name)
        if not columns:
            out.error = f"no such table: {name}"
            return out
        low, high = _bounds(conn, name)
    except (apsw.Error, UnicodeDecodeError) as error:
        out.error = _words(error)
        return out
    listed = ", ".join(f'"{column}"' for column in columns)
    sql = (
        f'INSERT OR IGNORE INTO main."{name}"({listed}) SELECT {listed}'  # noqa: S608 - names of our schema
        f' FROM damaged."{name}" NOT INDEXED WHERE rowid BETWEEN ?1 AND ?2 AND {where} ORDER BY rowid'
    )
    page = (
        f'SELECT max(r), count(*) FROM (SELECT rowid AS r FROM damaged."{name}" NOT INDEXED'  # noqa: S608
        " WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid LIMIT ?3)"
    )
    _Ranges(conn, sql, page, out).read(low, high)
    return out


def from_pages(
    conn: apsw.Connection, damaged: Path, outs: dict[str, Table], default: dict[str, list[str]]
) -> None:
    """Add rows of ``sessions`` and ``messages`` that stand on leaf pages and are not there yet.

    ``default``: the columns of each table in order, where the damaged schema does not tell them.
    """
    shapes = [_Shape(conn, name, default[name]) for name in ("sessions", "messages") if name in outs]
    conn.execute("BEGIN")
    with damaged.open("rb") as file:
        try:
            records = pages.open_pages(file, damaged).rows()
            for rowid, values in records:
                for shape in shapes:
                    if shape.fits(rowid, values):
                        conn.execute(shape.sql, shape.bound(rowid, values))
                        outs[shape.name].found += conn.changes()
                        break
        except pages.Damaged as error:
            for out in outs.values():
                out.error = out.error or str(error)
    conn.execute("COMMIT")


class _Shape:
    """How a record of one table looks, and the INSERT that takes its columns."""

    def __init__(self, conn: apsw.Connection, name: str, default: list[str]) -> None:
        self.name = name
        try:
            columns = [str(row[0]) for row in conn.execute(_COLUMNS, (name, "damaged"))] or default
        except (apsw.Error, UnicodeDecodeError):
            columns = default
        self._columns = columns
        ours = [str(row[0]) for row in conn.execute(_COLUMNS, (name, "main"))]
        self._taken = [columns.index(column) if column in columns else -1 for column in ours]
        listed = ", ".join(f'"{column}"' for column in ours)
        values = ", ".join(f"?{number}" for number in range(1, len(ours) + 1))
        self.sql = f'INSERT OR IGNORE INTO main."{name}"({listed}) VALUES ({values})'  # noqa: S608 - our names

    def fits(self, rowid: int, values: list[Any]) -> bool:
        """Whether the values can be a row of the table."""
        if not _FEWEST[self.name] <= len(values) <= len(self._columns):
            return False
        row = dict(zip(self._columns, values, strict=False))
        if self.name == "sessions":
            return isinstance(row.get("id"), str) and _is_text(row, "source") and _is_time(row, "started_at")
        if row.get("id") is not None or rowid < 1:
            return False
        return _is_text(row, "session_id") and _is_text(row, "role") and _is_time(row, "timestamp")

    def bound(self, rowid: int, values: list[Any]) -> tuple[Any, ...]:
        """What is bound for the columns of the new table, in its order."""
        row = [values[at] if 0 <= at < len(values) else None for at in self._taken]
        if self.name == "messages":
            row[0] = rowid
        return tuple(row)


_FEWEST: Final = {"sessions": 8, "messages": 8}


def _is_text(row: dict[str, Any], column: str) -> bool:
    return isinstance(row.get(column), str)


def _is_time(row: dict[str, Any], column: str) -> bool:
    value = row.get(column)
    return isinstance(value, int | float) and abs(value) < 1e12


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _shared_columns(conn: apsw.Connection, name: str) -> list[str]:
    ours = [str(row[0]) for row in conn.execute(_COLUMNS, (name, "main"))]
    theirs = {row[0] for row in conn.execute(_COLUMNS, (name, "damaged"))}
    return [column for column in ours if column in theirs]


def _bounds(conn: apsw.Connection, name: str) -> tuple[int, int]:
    """The lowest and highest rowid, as far as they can be read; else what a rowid can be."""
    found = []
    for order, fallback in (("ASC", -(2**63)), ("DESC", 2**63 - 1)):
        sql = f'SELECT rowid FROM damaged."{name}" NOT INDEXED ORDER BY rowid {order} LIMIT 1'  # noqa: S608
        try:
            row = conn.execute(sql).fetchone()
        except apsw.CorruptError:
            found.append(_given(conn, name) if order == "DESC" else min(1, fallback + 2**63 + 1))
            continue
        if row is None:
            return 1, 0
        found.append(int(row[0]))
    return found[0], found[1]


def _given(conn: apsw.Connection, name: str) -> int:
    """The highest rowid that AUTOINCREMENT says it gave, or a bound that is high enough for a store."""
    try:
        row = conn.execute("SELECT seq FROM damaged.sqlite_sequence WHERE name = ?", (name,)).fetchone()
    except apsw.Error:
        row = None
    return int(row[0]) if row and isinstance(row[0], int) else 2**32


class _Ranges:
    """Copies ranges of rowids, halving those that damage stops."""

    def __init__(self, conn: apsw.Connection, sql: str, page: str, out: Table) -> None:
        self._conn = conn
        self._sql = sql
        self._page = page
        self._out = out
        self._failures = 0

    def read(self, low: int, high: int) -> None:
        """Copy what can be read between the two rowids, both included."""
        while low <= high and not self._out.gave_up:
            last = self._end_of_range(low, high)
            if last is None:
                return
            self._halve(low, last)
            low = last + 1

    def _end_of_range(self, low: int, high: int) -> int | None:
        """The rowid that ends the next RANGE_ROWS rows; None where no row is left."""
        try:
            found: list[Any] = self._conn.execute(self._page, (low, high, RANGE_ROWS)).fetchall()
        except apsw.CorruptError:
            return min(high, low + RANGE_ROWS - 1) if high - low < 2**40 else high
        last, number = found[0]
        if not number:
            return None
        return high if number < RANGE_ROWS else int(last)

    def _halve(self, low: int, high: int) -> None:
        waiting = [(low, high)]
        while waiting:
            first, last = waiting.pop()
            if self._out.gave_up:
                self._lose(first, last)
                continue
            try:
                self._conn.execute(self._sql, (first, last))
            except (apsw.CorruptError, apsw.IOError, apsw.TooBigError, apsw.NoMemError):
                self._failures += 1
                self._out.gave_up = self._failures >= MAX_FAILURES
                if first == last:
                    self._lose(first, last)
                else:
                    middle = (first + last) // 2
                    waiting += [(middle + 1, last), (first, middle)]
            else:
                self._out.read += self._conn.changes()

    def _lose(self, first: int, last: int) -> None:
        lost = self._out.lost
        if lost and lost[-1][1] + 1 == first:
            lost[-1] = (lost[-1][0], last)
        else:
            lost.append((first, last))
