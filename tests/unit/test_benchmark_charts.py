"""The charts of a benchmark run: what they show, and that they can be read."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from benchmark_modules import charts, result, runner, svg


def drawn(picture: Any) -> tuple[Any, list[str]]:
    """The root of the picture's document, and its texts."""
    root = ElementTree.fromstring(picture.svg())
    return root, [found.text for found in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_picture_has_a_title_a_description_both_schemes_and_escaped_text() -> None:
    picture = svg.Picture("a < b", "told & said", 100, 50)
    picture.text(1, 2, "<script>")
    root, texts = drawn(picture)
    named = {child.get("id"): child.text for child in root if child.get("id")}
    assert root.get("role") == "img"
    assert [named[name] for name in root.get("aria-labelledby").split()] == ["a < b", "told & said"]
    assert texts == ["<script>"]
    assert "prefers-color-scheme: dark" in picture.svg()


@pytest.mark.parametrize("scheme", [svg.LIGHT, svg.DARK])
def test_the_colours_are_readable_on_their_background(scheme: dict[str, str]) -> None:
    def luminance(colour: str) -> float:  # relative luminance of WCAG 2
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name in scheme.keys() - {"back", "grid"}:
        low, high = sorted((luminance(scheme[name]), luminance(scheme["back"])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_a_logarithmic_axis_ends_at_powers_of_ten_and_clamps() -> None:
    axis = svg.LogAxis.around([0.03, 4.0, 0.0], 100, 400)
    assert (axis.low, axis.high) == (0.01, 10.0)
    assert [axis.at(value) for value in (0.001, 0.01, 0.1, 10.0, 99.0)] == pytest.approx(
        [100, 100, 200, 400, 400]
    )
    assert axis.ticks() == pytest.approx([0.01, 0.1, 1.0, 10.0])
    with pytest.raises(ValueError, match="above 0"):
        svg.LogAxis.around([0.0], 0, 1)


def test_bars_have_the_row_its_ratio_and_a_diamond_at_the_goal() -> None:
    rate = result((2.0,), unit="reads/s", least=4.0)
    without_goal = result((0.7,))
    root, texts = drawn(charts.ratios([result((0.25,), most=0.28), without_goal, rate]))
    assert "0.25" in texts
    assert "0.5" in texts  # a rate is turned round
    assert "0.7" not in texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polygon"))) == 3  # two goals and the legend's
    assert charts.ratios([without_goal]) is None


def test_latencies_are_drawn_for_each_number_of_threads_that_ran() -> None:
    def ran(threads: str) -> Any:
        return runner.Result(
            f"append_message, {threads}, acknowledged", "write", "S", "reference",
            runner.Measure("p99", "ms"), 3.0, 30.0, (0.1,), None,
            {"ours": {"p50": 1.5, "p90": 2, "p99": 3, "max": 4},
             "other": {"p50": 15, "p90": 20, "p99": 30, "max": 40.5}},
        )  # fmt: skip

    _, texts = drawn(charts.latency([ran("64 threads"), ran("1 thread")]))
    assert "64 threads" in texts
    assert "16 threads" not in texts
    assert texts.index("1 thread") < texts.index("64 threads")
    assert {"p50", "p90", "p99", "max", "1.5", "40.5"} <= set(texts)
    assert charts.latency([result((0.5,))]) is None


def test_growth_is_drawn_for_rows_that_ran_at_two_sizes() -> None:
    def ran(name: str, size: str, ours: float) -> Any:
        return runner.Result(name, "read", size, "reference", runner.Measure("time", "ms"), ours, 9.0, (1.0,))

    several = [ran("search_sessions()", "L", 3.0), ran("search_sessions()", "500", 1.0)]
    picture = charts.growth([*several, ran("commonest word, rank", "S", 1.0)])
    _, texts = drawn(picture)
    assert "search_sessions()" in texts
    assert "commonest word, rank" not in texts
    assert texts.index("500") < texts.index("160k")
    assert "from 500 to 160,000 messages" in picture.told
    assert charts.growth(several[:1]) is None


def test_the_rows_of_the_charts_exist() -> None:
    names = {row.name for row in runner.ROWS}
    assert set(charts.GROWTH_ROWS) <= names
    assert {"append_message, 1 thread, acknowledged", "append_message, 64 threads, acknowledged"} <= names
