"""Which twin the dispatchers pick, decided once at import from the environment."""

from __future__ import annotations

import os
from typing import Final


def _set(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


NO_EXTENSIONS: Final = _set("HERMES_STATE_NO_EXTENSIONS")
REQUIRE_EXTENSIONS: Final = _set("HERMES_STATE_REQUIRE_EXTENSIONS")

if NO_EXTENSIONS and REQUIRE_EXTENSIONS:
    raise ImportError("HERMES_STATE_NO_EXTENSIONS and HERMES_STATE_REQUIRE_EXTENSIONS exclude each other")

reasons: dict[str, str] = {}
"""Kernel name -> why its pure twin is in use; a compiled kernel is not listed."""


def fall_back(kernel: str, error: ImportError) -> None:
    """Note that ``kernel`` runs pure because of ``error``, or raise where that is not allowed."""
    if REQUIRE_EXTENSIONS:
        raise ImportError(
            f"HERMES_STATE_REQUIRE_EXTENSIONS is set and the compiled kernel {kernel!r}"
            f" cannot be imported: {error}"
        ) from error
    reasons[kernel] = f"not compiled or not importable: {error}"
