"""JSON text as the store writes it: the dispatcher of the ``json_text`` kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._json_text_py import MAX_DEPTH
from ._mode import NO_EXTENSIONS, fall_back

__all__ = ["MAX_DEPTH", "dumps", "escape_surrogates"]

if TYPE_CHECKING or NO_EXTENSIONS:
    from ._json_text_py import dumps, escape_surrogates
else:
    try:
        from ._json_text_c import dumps, escape_surrogates
    except ImportError as error:
        fall_back("json_text", error)
        from ._json_text_py import dumps, escape_surrogates
