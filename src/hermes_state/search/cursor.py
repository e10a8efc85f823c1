"""A place in the hits of a search, as a text that the caller keeps between two pages.

The next page begins behind the last hit shown, by its key in the order and its id. What was stored or
deleted meanwhile moves nothing: by time no hit comes twice and none is passed over. bm25 ranks change
with every row that is stored; the hit's own present rank is looked up again, and the one in the
cursor serves where that hit is gone.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass
from typing import Final

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The last hit of a page.

    ``order``: "rank", "newest", "oldest", or "scan" for a scan's own order, by id.
    ``key``: the hit's rank or timestamp. ``seen``: hits shown so far, which finds the place where
    the next page is made in another order (an index was lost or mended in between).
    """

    order: str
    key: float | str | None
    id: int
    seen: int


def write(place: Place, search: object) -> str:
    """The place as text; ``search`` is what makes two searches the same one."""
    fields = [_VERSION, _mark(search), place.order, place.key, place.id, place.seen]
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def read(text: str, search: object) -> Place:
    """The place that ``write`` wrote. TypeError for no text, ValueError for a text of anything else."""
    if not isinstance(text, str):
        raise TypeError(f"cursor must be a str, not {type(text).__name__}")
    try:
        fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        version, mark, order, key, row_id, seen = fields
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise ValueError("cursor is not one that search_page gave") from error
    numbers = isinstance(row_id, int) and isinstance(seen, int) and -(2**63) <= row_id < 2**63
    if version != _VERSION or not numbers or not isinstance(key, int | float | str | None):
        raise ValueError("cursor is not one that search_page gave")
    if mark != _mark(search):
        raise ValueError("cursor belongs to another search: query, match, filters and sort must be the same")
    return Place(str(order), key, row_id, max(0, seen))


def _mark(search: object) -> int:
    return zlib.crc32(repr(search).encode("utf-8", "backslashreplace"))
