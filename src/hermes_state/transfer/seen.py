"""Which messages of a session are stored already: two 64-bit digests a message, however many there are."""

from __future__ import annotations

import hashlib
import operator
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from hermes_state._fastpath import encode

_WIDTH = len(encode.COLUMNS)
_TIME = encode.COLUMNS.index("timestamp")
_PARTS = 16  # sorted one at a time, so that sorting needs little beside them


def digest(row: tuple[Any, ...], *, timed: bool) -> int:
    """64 bits of BLAKE2b over the columns of a row (encode.COLUMNS without the session), time or not."""
    values = row[1:_WIDTH] if timed else (*row[1:_TIME], *row[_TIME + 1 : _WIDTH])
    text = repr([value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values])
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


class _Bag:
    """A multiset of 64-bit numbers in sorted arrays, 9 bytes a number."""

    def __init__(self) -> None:
        self._parts = [array("Q") for _ in range(_PARTS)]
        self._taken: list[bytearray] = []

    def add(self, number: int) -> None:
        self._parts[number % _PARTS].append(number)

    def settle(self) -> None:
        self._parts = [array("Q", sorted(part)) for part in self._parts]
        self._taken = [bytearray(len(part)) for part in self._parts]

    def take(self, number: int) -> bool:
        """Take one of the equal ones out; False where none is left."""
        part, taken = self._parts[number % _PARTS], self._taken[number % _PARTS]
        first, end = bisect_left(part, number), bisect_right(part, number)
        # Equal ones are taken from the left: find the first that is not.
        at = bisect_left(taken, 0, first, end, key=operator.neg)
        if at == end:
            return False
        taken[at] = 1
        return True


class Seen:
    """The stored messages of one session, each of which an equal message of a file is matched to once.

    Messages with a time of their own are compared with it, others without.
    """

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._timed, self._untimed = _Bag(), _Bag()
        for row in rows:
            self._timed.add(digest(row, timed=True))
            self._untimed.add(digest(row, timed=False))
        self._timed.settle()
        self._untimed.settle()

    def take(self, row: tuple[Any, ...], *, timed: bool) -> bool:
        """Whether an equal message is stored that no message was matched to before."""
        return (self._timed if timed else self._untimed).take(digest(row, timed=timed))
