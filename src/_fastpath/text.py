"""Text that SQLite can hold: the dispatcher of the ``text`` kernel.

``clean(value)`` mends what cannot be UTF-8; ``fallback(value)`` is the one
rule by which a value of any foreign type becomes text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._mode import NO_EXTENSIONS, fall_back

__all__ = ["clean", "fallback"]

if TYPE_CHECKING or NO_EXTENSIONS:
    from ._text_py import clean, fallback
else:
    try:
        from ._text_c import clean, fallback
    except ImportError as error:
        fall_back("text", error)
        from ._text_py import clean, fallback
