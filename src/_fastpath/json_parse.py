"""JSON text read back: the dispatcher of the ``json_parse`` kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._mode import NO_EXTENSIONS, fall_back

__all__ = ["loads"]

if TYPE_CHECKING or NO_EXTENSIONS:
    from ._json_parse_py import loads
else:
    try:
        from ._json_parse_c import loads
    except ImportError as error:
        fall_back("json_parse", error)
        from ._json_parse_py import loads
