"""The searchable text of a message: what the full-text indexes hold for its row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _mode

if TYPE_CHECKING or _mode.NO_EXTENSIONS:
    from ._searchable_py import MAX_INDEXED_CHARS, is_plain, parts, text
else:
    try:
        from ._searchable_c import MAX_INDEXED_CHARS, is_plain, parts, text
    except ImportError as error:
        _mode.fall_back("searchable", error)
        from ._searchable_py import MAX_INDEXED_CHARS, is_plain, parts, text

__all__ = ["MAX_INDEXED_CHARS", "is_plain", "parts", "text"]
