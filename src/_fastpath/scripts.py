"""Scripts of a text: letters of scripts that are written without spaces, and where they touch others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _mode

if TYPE_CHECKING or _mode.NO_EXTENSIONS:
    from ._scripts_py import count_cjk, has_mixed, has_unspaced, runs, split_mixed
else:
    try:
        from ._scripts_c import count_cjk, has_mixed, has_unspaced, runs, split_mixed
    except ImportError as error:
        _mode.fall_back("scripts", error)
        from ._scripts_py import count_cjk, has_mixed, has_unspaced, runs, split_mixed

__all__ = ["count_cjk", "has_mixed", "has_unspaced", "runs", "split_mixed"]
