"""Two functions timed in turn, for the benchmarks of the kernels: what counts is the ratio."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

PAIRS = 7


class Case(NamedTuple):
    """One comparison: ``ours`` against ``other``, each called with every item of ``inputs``."""

    name: str
    ours: Callable[[Any], Any]
    other: Callable[[Any], Any]
    inputs: Sequence[Any]
    goal: float


def seconds(function: Callable[[Any], Any], inputs: Sequence[Any]) -> float:
    """Return the CPU time that ``function`` takes for all of ``inputs``: kernels wait for nothing."""
    start = time.thread_time()
    for item in inputs:
        function(item)
    return time.thread_time() - start


def ratio(case: Case) -> float:
    """Return the median over PAIRS pairs of our time divided by the other's."""
    ratios = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(PAIRS):
            ours = seconds(case.ours, case.inputs)
            ratios.append(ours / seconds(case.other, case.inputs))
    finally:
        gc.enable()
    return statistics.median(ratios)


def report(cases: Sequence[Case]) -> int:
    """Print each case's ratio and goal; return the number of cases that miss theirs."""
    missed = 0
    for case in cases:
        found = ratio(case)
        verdict = "ok" if found <= case.goal else "MISSED"
        missed += found > case.goal
        each = seconds(case.ours, case.inputs) / len(case.inputs) * 1e6
        print(f"{case.name:44} {found:6.3f}  goal {case.goal:5.2f}  {verdict:6}  {each:8.2f} us each")
    return missed
