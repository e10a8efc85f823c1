"""Charts of a run: ratios by row, latencies of appends, growth with the size of the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from . import corpus
from .report import number
from .runner import PERCENTILES, Result
from .svg import LogAxis, Picture, width_of

WIDTH = 920.0
THREADS = (1, 16, 64)
GROWTH_ROWS = (
    "commonest word, rank", "commonest word, newest", "query: AND of three", "one-character CJK: 的",
    "20 hits inside the long session, contexts included", "get_messages_around in the long session",
    "list_sessions_rich(order_by_last_active=True)", "search_sessions()", "open and close of a current file",
)  # fmt: skip
"""The read rows of the chart of growth."""


def write(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write every chart that the results have data for; the files written.

    ``ratios-TABLE.svg`` for each table of the goals, ``latency.svg`` where an append row ran, ``growth.svg``
    where read rows ran at two sizes or more. Files of an earlier run that this one has no data for stay.
    """
    drawn: dict[str, Picture | None] = {}
    for table in dict.fromkeys(result.table for result in results):
        name = re.sub(r"\W+", "-", table)
        drawn[f"ratios-{name}.svg"] = ratios([result for result in results if result.table == table])
    drawn |= {"latency.svg": latency(results), "growth.svg": growth(results)}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in drawn.items():
        if picture is not None:
            (folder / name).write_text(picture.svg(), encoding="utf-8")
            written.append(folder / name)
    return written


# -- ratios --


def cost(result: Result) -> float | None:
    """The ratio as a cost: less is better, also for rates (there it is turned round)."""
    if not result.ratio:
        return None
    return 1 / result.ratio if result.measure.more_is_better else result.ratio


def goal_cost(result: Result) -> float | None:
    """The goal's ratio as a cost; None where the goal is none of the ratio."""
    goal = result.measure.goal
    if goal is None:
        return None
    return 1 / goal.least if goal.least else goal.most


def ratios(results: Sequence[Result]) -> Picture | None:
    """A bar for each ratio that has a goal, of one table; to the left of 1 ours needs less."""
    shown = [result for result in results if cost(result) is not None and goal_cost(result) is not None]
    if not shown:
        return None
    names = [_name(result, shown) for result in shown]
    left = min(max(width_of(name) for name in names) + 24, 470.0)
    values = [value for result in shown for value in (cost(result), goal_cost(result)) if value]
    axis = LogAxis.around([*values, 1.0], left + 62, WIDTH - 70)
    row, top = 22.0, 92.0
    picture = Picture(
        f"Ours as a share of what it is compared with: {shown[0].table}",
        f"{_summary(shown)} Bars to the left of 1 are better, on a logarithmic scale.",
        WIDTH, top + row * len(shown) + 34,
    )  # fmt: skip
    _heading(picture, "ratio of ours, less is better (rates are turned round); logarithmic")
    _legend(picture, left + 62)
    _vertical_grid(picture, axis, top - 8, top + row * len(shown), lambda value: f"{value:g}", 1.0)
    for place, (name, result) in enumerate(zip(names, shown, strict=True)):
        _ratio(picture, axis, top + row * place, name, result, left)
    return picture


def _name(result: Result, shown: Sequence[Result]) -> str:
    """The row; its measure and size only where another bar differs in them alone."""
    alike = [other for other in shown if other.row == result.row]
    measure = f", {result.measure.name}" if len({other.measure.name for other in alike}) > 1 else ""
    size = f" [{result.size}]" if len({other.size for other in alike}) > 1 else ""
    return f"{result.row}{measure}{size}"


def _summary(shown: Sequence[Result]) -> str:
    reached = sum(result.reached is True for result in shown)
    best = min(shown, key=lambda result: cost(result) or 1.0)
    return (
        f"{len(shown)} ratios, {reached} of them at their goal;"
        f" the lowest is {number(cost(best))}, of {best.row} against {best.against}."
    )


def _ratio(picture: Picture, axis: LogAxis, y: float, name: str, result: Result, left: float) -> None:
    value, goal = cost(result) or 1.0, goal_cost(result) or 1.0
    base, end = axis.at(1.0), axis.at(value)
    picture.text(left, y + 12, name, anchor="end")
    picture.bar(base, y + 2, end - base, 13, "ours" if value <= 1 else "worse")
    shown = number(value)
    on_left = value <= 1
    goal_x = axis.at(goal)
    label_x = end - 8 if on_left else end + 8
    if on_left and end - 14 - width_of(shown) < goal_x < end + 8:
        label_x = min(label_x, goal_x - 10)
    if not on_left and end - 8 < goal_x < end + 14 + width_of(shown):
        label_x = goal_x + 10
    picture.text(label_x, y + 12.5, shown, anchor="end" if on_left else "start", bold=True, size=11)
    picture.diamond(goal_x, y + 8.5, "goal")


def _legend(picture: Picture, x: float) -> None:
    y = 66.0
    for kind, text in (("ours", "less than compared"), ("worse", "more"), ("goal", "goal")):
        if kind == "goal":
            picture.diamond(x + 6, y - 4, kind)
        else:
            picture.bar(x, y - 10, 12, 11, kind)
        picture.text(x + 18, y, text, "quiet")
        x += width_of(text) + 40


def _heading(picture: Picture, below: str) -> None:
    picture.text(16, 28, picture.title, size=16, bold=True)
    picture.text(16, 46, below, "quiet")


def _vertical_grid(
    picture: Picture,
    axis: LogAxis,
    top: float,
    bottom: float,
    label: Callable[[float], str],
    base: float | None = None,
) -> None:
    for tick in axis.ticks():
        x = axis.at(tick)
        picture.line([(x, top), (x, bottom)], "quiet" if tick == base else "grid")
        picture.text(x, bottom + 16, label(tick), "quiet", "middle", 11)


# -- latencies --


def latency(results: Iterable[Result]) -> Picture | None:
    """p50, p90, p99 and the longest append by 1, 16 and 64 threads: a dot for each side."""
    names = {f"append_message, {count} thread{'s' * (count > 1)}, acknowledged": count for count in THREADS}
    chosen = [
        result for result in results
        if result.row in names and result.percentiles and len(result.percentiles) == 2
    ]  # fmt: skip
    found = {names[result.row]: result.percentiles for result in chosen if result.percentiles}
    if not found:
        return None
    values = [value for sides in found.values() for side in sides.values() for value in side.values()]
    axis = LogAxis.around(values, 165, WIDTH - 60)
    row, top = 26.0, 92.0
    panel = row * len(PERCENTILES) + 42
    told = [_latency_told(count, sides["ours"], sides["other"]) for count, sides in found.items()]
    picture = Picture(
        "How long one append takes until it is stored", f"{'; '.join(told)}.",
        WIDTH, top + panel * len(found) + 10,
    )  # fmt: skip
    _heading(picture, "milliseconds, less is better; logarithmic")
    _sides_legend(picture, 165, 70, chosen[0].against)
    bottom = top + panel * len(found) - 16
    _vertical_grid(picture, axis, top - 4, bottom, lambda value: f"{value:g} ms")
    for place, (count, sides) in enumerate(sorted(found.items())):
        y = top + panel * place
        picture.text(16, y + 12, f"{count} thread{'s' * (count > 1)}", bold=True, size=13)
        for step, name in enumerate(PERCENTILES):
            line = y + 30 + row * step
            _pair(picture, axis, line, sides["ours"][name], sides["other"][name])
            picture.text(106, line + 4, name, "quiet", "end")
    return picture


def _latency_told(count: int, ours: Mapping[str, float], other: Mapping[str, float]) -> str:
    return (
        f"{count} thread{'s' * (count > 1)}: p50 {number(ours['p50'])} ms against {number(other['p50'])} ms,"
        f" p99 {number(ours['p99'])} ms against {number(other['p99'])} ms"
    )


def _pair(picture: Picture, axis: LogAxis, y: float, ours: float, other: float) -> None:
    """Two dots joined by a line, each with its value on the outer side."""
    a, b = axis.at(ours), axis.at(other)
    picture.line([(a, y), (b, y)], "quiet", 1.5)
    picture.diamond(b, y, "other", 6)
    picture.dot(a, y, "ours", 5)
    first = ours <= other
    picture.text(
        a - 10 if first else a + 10, y + 4, number(ours), "ours", "end" if first else "start", 11, True
    )
    picture.text(b + 10 if first else b - 10, y + 4, number(other), "other", "start" if first else "end", 11)


def _sides_legend(picture: Picture, x: float, y: float, against: str) -> None:
    picture.dot(x, y - 4, "ours", 5)
    picture.text(x + 12, y, "ours", "quiet")
    picture.diamond(x + 66, y - 4, "other", 6)
    picture.text(x + 80, y, against, "quiet")


# -- growth --


def messages_of(size: str) -> int:
    """The number of messages of a size: S, M, L or digits."""
    return corpus.SIZES[size] if size in corpus.SIZES else int(size)


def growth(results: Iterable[Result]) -> Picture | None:
    """A small chart for each of GROWTH_ROWS that ran at two sizes or more: time over messages, both sides."""
    lines: dict[str, list[tuple[int, float, float]]] = {}
    for result in results:
        if result.row in GROWTH_ROWS and result.size and result.other is not None:
            lines.setdefault(result.row, []).append((messages_of(result.size), result.ours, result.other))
    lines = {name: sorted(points) for name in GROWTH_ROWS if len(points := lines.get(name, [])) > 1}
    if not lines:
        return None
    columns, wide, high, top = 3, (WIDTH - 32) / 3, 200.0, 92.0
    picture = Picture(
        "How the time of reading grows with the file",
        "; ".join(_growth_told(name, points) for name, points in lines.items()) + ".",
        WIDTH, top + high * -(-len(lines) // columns) + 6,
    )  # fmt: skip
    _heading(picture, "milliseconds a call over messages in the file, less is better; both logarithmic")
    _sides_legend(picture, 24, 68, "reference")
    for place, (name, points) in enumerate(lines.items()):
        _panel(picture, 16 + wide * (place % columns), top + high * (place // columns), wide, name, points)
    return picture


def _growth_told(name: str, points: Sequence[tuple[int, float, float]]) -> str:
    first, last = points[0], points[-1]
    return (
        f"{name}: ours {number(first[1])} to {number(last[1])} ms, compared with {number(first[2])}"
        f" to {number(last[2])} ms, from {first[0]:,} to {last[0]:,} messages"
    )


def _panel(
    picture: Picture, x: float, y: float, width: float, name: str, points: Sequence[tuple[int, float, float]]
) -> None:
    right, bottom = x + width - 52, y + 152
    across = LogAxis(points[0][0], points[-1][0], x + 52, right)
    up = LogAxis.around([value for _, *both in points for value in both], bottom, y + 22)
    short = name if width_of(name) < width - 14 else f"{name[: int((width - 14) / 6.6) - 1]}…"
    picture.text(x + 8, y + 8, short, bold=True)
    for tick in up.ticks():
        picture.line([(x + 52, up.at(tick)), (right, up.at(tick))], "grid")
        picture.text(x + 46, up.at(tick) + 4, f"{tick:g}", "quiet", "end", 11)
    for count, *_ in points:
        picture.text(across.at(count), bottom + 16, _thousands(count), "quiet", "middle", 11)
    for kind, place in (("other", 2), ("ours", 1)):
        picture.line([(across.at(point[0]), up.at(point[place])) for point in points], kind, 2)
        for point in points:
            mark = picture.dot if kind == "ours" else picture.diamond
            mark(across.at(point[0]), up.at(point[place]), kind, 4)
    ends = [up.at(points[-1][1]), up.at(points[-1][2])]
    apart = 0.0 if abs(ends[0] - ends[1]) >= 13 else (13 - abs(ends[0] - ends[1])) / 2
    for kind, place in (("ours", 1), ("other", 2)):
        own, rest = ends[place - 1], ends[2 - place]
        shift = apart if own > rest or (own == rest and place == 1) else -apart
        picture.text(right + 8, own + shift + 4, number(points[-1][place]), kind, "start", 11, kind == "ours")


def _thousands(count: int) -> str:
    return f"{count / 1000:g}k" if count >= 1000 else str(count)
