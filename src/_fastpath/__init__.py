"""Kernels of the hot path, each a dispatcher, a Cython module and a pure twin.

Import a kernel through its dispatcher (``from hermes_state._fastpath import
json_text``), never a twin.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hermes_state._fastpath import _mode

KERNELS = ("decode", "encode", "json_parse", "json_text", "query_text", "scripts", "searchable", "text")


def fastpath_info() -> dict[str, Any]:
    """Which twin each kernel uses, and why.

    Returns:
        ``{"compiled": bool, "kernels": {name: "compiled" | "pure"}, "why": {name: reason}}``;
        ``compiled`` is True when every kernel is, and ``why`` names the pure ones.
    """
    for name in KERNELS:
        import_module(f"hermes_state._fastpath.{name}")
    if _mode.NO_EXTENSIONS:
        why = dict.fromkeys(KERNELS, "HERMES_STATE_NO_EXTENSIONS is set")
    else:
        why = {name: _mode.reasons[name] for name in KERNELS if name in _mode.reasons}
    return {
        "compiled": not why,
        "kernels": {name: "pure" if name in why else "compiled" for name in KERNELS},
        "why": why,
    }
