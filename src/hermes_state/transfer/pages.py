"""Rows read straight from the pages of a damaged file, without the b-tree above them.

Every page that looks like a table leaf is read, whoever points at it, so rows come back though the
pages that led to them are gone. Pages of the freelist are left out: what stands there was deleted.
Source of the format: https://www.sqlite.org/fileformat2.html, sections 1.5, 1.6 and 2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

LEAF: Final = 0x0D
MAX_COLUMNS: Final = 64
Record = list[Any]
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class Damaged(ValueError):
    """Bytes that are no page, cell or record."""


class Pages:
    """The pages of a database file.

    Raises:
        Damaged: the file has no header that tells its page size.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        header = self._bytes(0, 100)
        if len(header) < 100:
            raise Damaged("no header")
        stored = int.from_bytes(header[16:18], "big")
        self.page_size = 65536 if stored == 1 else stored
        if self.page_size < 512 or self.page_size & (self.page_size - 1):
            raise Damaged("no page size")
        self.usable = self.page_size - header[20]
        if self.usable < 480:
            raise Damaged("no usable bytes")
        self.number = size // self.page_size
        self._first_trunk = int.from_bytes(header[32:36], "big")

    def _bytes(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)

    def page(self, number: int) -> bytes:
        """The bytes of a page; numbers begin at 1."""
        if not 1 <= number <= self.number:
            raise Damaged(f"no page {number}")
        return self._bytes((number - 1) * self.page_size, self.page_size)

    def free(self) -> set[int]:
        """The pages of the freelist, as far as it can be followed."""
        found: set[int] = set()
        trunk = self._first_trunk
        while 1 <= trunk <= self.number and trunk not in found:
            found.add(trunk)
            page = self.page(trunk)
            following, leaves = struct.unpack(">II", page[:8])
            leaves = min(leaves, self.usable // 4 - 2)
            found.update(struct.unpack(f">{leaves}I", page[8 : 8 + 4 * leaves]))
            trunk = following
        return found

    def rows(self) -> Iterator[tuple[int, Record]]:
        """(rowid, values) of every record on every leaf page that is in use; text comes as text, mended."""
        free = self.free()
        for number in range(1, self.number + 1):
            if number in free:
                continue
            page = self.page(number)
            start = 100 if number == 1 else 0
            if page[start] != LEAF:
                continue
            for cell in self._cells(page, start):
                try:
                    rowid, payload = self._payload(page, cell)
                    yield rowid, _record(payload)
                except (Damaged, IndexError, struct.error):
                    # One cell is lost; the page's others stand by themselves.
                    continue

    def _cells(self, page: bytes, start: int) -> list[int]:
        number = int.from_bytes(page[start + 3 : start + 5], "big")
        if start + 8 + 2 * number > self.usable:
            return []
        offsets = struct.unpack_from(f">{number}H", page, start + 8)
        return [offset for offset in offsets if start + 8 + 2 * number <= offset < self.usable]

    def _payload(self, page: bytes, offset: int) -> tuple[int, bytes]:
        """The rowid and whole payload of the cell at ``offset``, its overflow pages included."""
        length, offset = _varint(page, offset)
        rowid, offset = _varint(page, offset)
        if rowid >= 1 << 63:
            rowid -= 1 << 64
        if not 2 <= length <= self.number * self.page_size:
            raise Damaged("length")
        local = self._local(length)
        if offset + local > self.usable:
            raise Damaged("cell end")
        parts = [page[offset : offset + local]]
        if local < length:
            parts += self._overflow(
                int.from_bytes(page[offset + local : offset + local + 4], "big"), length - local
            )
        return rowid, b"".join(parts)

    def _local(self, length: int) -> int:
        """How many bytes of a payload stand in the cell itself."""
        if length <= self.usable - 35:
            return length
        least = (self.usable - 12) * 32 // 255 - 23
        fitting = least + (length - least) % (self.usable - 4)
        return fitting if fitting <= self.usable - 35 else least

    def _overflow(self, number: int, left: int) -> list[bytes]:
        parts = []
        while left > 0:
            page = self.page(number)
            part = page[4 : min(self.usable, 4 + left)]
            parts.append(part)
            left -= len(part)
            number = int.from_bytes(page[:4], "big")
        return parts


def open_pages(file: BinaryIO, path: Path) -> Pages:
    """The pages of the open file ``path``."""
    return Pages(file, path.stat().st_size)


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[offset + index]
        if index == 8:
            return value << 8 | byte, offset + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + index + 1
    raise Damaged("varint")


def _record(payload: bytes) -> Record:
    """The values of a record; Damaged where header and body do not fit together."""
    end, offset = _varint(payload, 0)
    if not 2 <= end <= len(payload):
        raise Damaged("record header")
    kinds = []
    while offset < end:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
        if len(kinds) > MAX_COLUMNS:
            raise Damaged("columns")
    if offset != end:
        raise Damaged("record header end")
    values = []
    for kind in kinds:
        value, offset = _value(payload, offset, kind)
        values.append(value)
    if offset != len(payload):
        raise Damaged("record end")
    return values


def _value(payload: bytes, offset: int, kind: int) -> tuple[Any, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), offset
    if kind in (10, 11):
        raise Damaged("serial type")
    size = _INTEGERS.get(kind) or (8 if kind == 7 else (kind - 12) // 2)
    data = payload[offset : offset + size]
    if len(data) != size:
        raise Damaged("value")
    if kind in _INTEGERS:
        return int.from_bytes(data, "big", signed=True), offset + size
    if kind == 7:
        return struct.unpack(">d", data)[0], offset + size
    return (data.decode("utf-8", "replace") if kind % 2 else data), offset + size
