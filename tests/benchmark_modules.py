"""The modules of benchmarks/, which is no installed package, and results to show them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def _package(name: str, folder: Path) -> ModuleType:
    """The package in ``folder`` under ``name``, found without a change of sys.path."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_package("benchmarks", ROOT / "benchmarks")
reference: Any = importlib.import_module("benchmarks.reference")
runner: Any = importlib.import_module("benchmarks.runner")
report: Any = importlib.import_module("benchmarks.report")
charts: Any = importlib.import_module("benchmarks.charts")
svg: Any = importlib.import_module("benchmarks.svg")
command: Any = importlib.import_module("benchmarks.__main__")
rows_read: Any = importlib.import_module("benchmarks.rows_read")
rows_stalls: Any = importlib.import_module("benchmarks.rows_stalls")
bench_corpus: Any = importlib.import_module("benchmarks.corpus")

REFERENCE = runner.Side("other", "benchmarks.reference")
OURS = runner.Side("ours", "hermes_state")


def result(ratios: tuple[float, ...], *, unit: str = "s", ours: float = 1.0, **goal: float) -> Any:
    measure = runner.Measure("total", unit, runner.Goal(**goal) if goal else None)
    other = ours / ratios[0] if ratios else None
    return runner.Result("a row", "write", "S", "reference", measure, ours, other, ratios)
