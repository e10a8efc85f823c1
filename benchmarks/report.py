"""Tables, JSON and stored bounds of a run."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .runner import Goal, Measure, Result

ROOT = Path(__file__).resolve().parent.parent
BOUNDS = Path(__file__).resolve().parent / "bounds.json"
SLACK = 1 / 3
"""A ratio may be worse than its bound by this share."""
GOAL_SHARE = 1 / 4
"""A stored bound is no stricter than this share of the goal."""
HEADINGS = ("row", "ours", "compared with", "ratio", "goal", "reached")


def number(value: float | None) -> str:
    """Three significant digits, without an exponent for ordinary sizes."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def goal_text(result: Result) -> str:
    """The goal in signs."""
    goal = result.measure.goal
    if goal is None:
        return ""
    parts = [
        f"≤ {goal.most:g}" if goal.most is not None else "",
        f"≥ {goal.least:g}" if goal.least is not None else "",
        f"ours ≤ {goal.own:g} {result.measure.unit}" if goal.own is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def cells(result: Result) -> tuple[str, ...]:
    """One line of the table, under HEADINGS."""
    unit = result.measure.unit
    size = f" [{result.size}]" if result.size else ""
    other = f"{number(result.other)} {unit} ({result.against})" if result.other is not None else "-"
    reached = {True: "yes", False: "NO", None: ""}[result.reached]
    return (
        f"{result.row}: {result.measure.name}{size}", f"{number(result.ours)} {unit}", other,
        number(result.ratio), goal_text(result), reached,
    )  # fmt: skip


def text_line(result: Result) -> str:
    """One line for a terminal."""
    name, ours, other, ratio, goal, reached = cells(result)
    return f"{name:<72.72} {ours:>12} {other:>26} {ratio:>8}  {goal:<22} {reached}"


def text_heading() -> str:
    """The line above those of `text_line`."""
    name, ours, other, ratio, goal, reached = HEADINGS
    return f"{name:<72} {ours:>12} {other:>26} {ratio:>8}  {goal:<22} {reached}"


def markdown(results: Sequence[Result], facts: dict[str, Any]) -> str:
    """All results as Markdown tables, one a table of the goals."""
    lines = [
        "# Benchmark report",
        "",
        "What the rows are, and how to run them: [benchmarks](benchmarks.md).",
        "",
    ]
    lines += [f"{name}: {value}  " for name, value in facts.items() if name != "results"]
    for table in dict.fromkeys(result.table for result in results):
        lines += [
            "",
            f"## {table.capitalize()}",
            "",
            f"| {' | '.join(HEADINGS)} |",
            "|---|--:|--:|--:|---|---|",
        ]
        lines += [f"| {' | '.join(cells(result))} |" for result in results if result.table == table]
    return "\n".join(lines) + "\n"


def facts(form: str, pairs: int, other: str, workspace: Path) -> dict[str, Any]:
    """When, on what, and with which versions the run was made."""
    import apsw

    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "form": form,
        "pairs": pairs,
        "compared with": other,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "apsw": apsw.apsw_version(),
        "sqlite (apsw)": apsw.sqlite_lib_version(),
        "sqlite (stdlib)": sqlite3.sqlite_version,
        "hermes-state": _version(),
        "compiled": _compiled(),
        "commit": _commit(),
        "file system": file_system(workspace),
    }


def _version() -> str | None:
    try:
        return version("hermes-state")
    except PackageNotFoundError:
        return None


def _compiled() -> bool:
    from hermes_state import fastpath_info

    return bool(fastpath_info()["compiled"])


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def file_system(path: Path) -> str | None:
    """The type of the file system that holds ``path`` (Linux; None elsewhere)."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    where = str(path.resolve())
    found = [line.split()[1:3] for line in mounts]
    holding = [
        (len(point), kind)
        for point, kind in found
        if point == "/" or where == point or where.startswith(f"{point}/")
    ]
    return max(holding)[1] if holding else None


def as_json(results: Iterable[Result], about: dict[str, Any]) -> str:
    """The whole run as JSON."""
    rows = [
        {
            "row": result.row, "table": result.table, "measure": result.measure.name, "size": result.size,
            "unit": result.measure.unit, "ours": result.ours, "other": result.other,
            "against": result.against, "ratio": result.ratio, "ratios": result.ratios,
            "best": result.best, "percentiles": result.percentiles, "goal": goal_text(result),
            "goal parts": asdict(result.measure.goal) if result.measure.goal else None,
            "reached": result.reached,
        }
        for result in results
    ]  # fmt: skip
    return json.dumps({**about, "results": rows}, indent=1, ensure_ascii=False) + "\n"


def from_json(path: Path) -> tuple[list[Result], dict[str, Any]]:
    """The results and the facts of a run that `as_json` wrote. KeyError or ValueError if it is none."""
    about = json.loads(path.read_text(encoding="utf-8"))
    results = [
        Result(
            row=found["row"], table=found["table"], size=found["size"], against=found["against"],
            measure=Measure(
                found["measure"], found["unit"], Goal(**found["goal parts"]) if found["goal parts"] else None,
                latencies=found["percentiles"] is not None,
            ),
            ours=found["ours"], other=found["other"], ratios=tuple(found["ratios"]),
            best=tuple(found["best"]) if found["best"] else None, percentiles=found["percentiles"],
        )
        for found in about.pop("results")
    ]  # fmt: skip
    return results, about


# -- bounds --


def read_bounds(path: Path = BOUNDS) -> dict[str, float]:
    """The stored ratios by `Result.key`; none where there is no file."""
    if not path.exists():
        return {}
    loaded: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def write_bounds(results: Iterable[Result], path: Path = BOUNDS) -> None:
    """Store a ratio for each bounded measure; bounds of rows that did not run stay.

    It is the worse of the run's two ratios (median of the pairs, best runs), and no stricter than GOAL_SHARE
    of the goal: a ratio that is far better than its goal differs much between processors.
    """
    bounds = read_bounds(path)
    for result in results:
        if not result.measure.bound or not result.two_ratios:
            continue
        worse, goal = result.two_ratios[-1], result.measure.goal
        if result.measure.more_is_better:
            bound = min(worse, goal.least / GOAL_SHARE if goal and goal.least else worse)
        else:
            bound = max(worse, goal.most * GOAL_SHARE if goal and goal.most else worse)
        bounds[result.key] = float(f"{bound:.3g}")
    path.write_text(json.dumps(bounds, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def behind(result: Result, bounds: dict[str, float]) -> bool:
    """Whether both ratios (`Result.two_ratios`) are worse than the stored bound by more than SLACK."""
    bound = bounds.get(result.key)
    if bound is None or not result.two_ratios or not result.measure.bound:
        return False
    ratio = result.two_ratios[0]
    if result.measure.more_is_better:
        return ratio < bound / (1 + SLACK)
    return ratio > bound * (1 + SLACK)
