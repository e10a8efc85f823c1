"""A small writer of SVG charts: shapes, text as text, logarithmic axes, light and dark colours.

Colours are classes; the picture holds a style for each colour scheme and its own background, so that it is
readable wherever it is shown. SVG 1.1 elements, and ``prefers-color-scheme`` of Media Queries Level 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

LIGHT = {
    "back": "#ffffff", "text": "#1f2328", "quiet": "#59636e", "grid": "#d8dee4", "ours": "#1f6feb",
    "other": "#bc4c00", "worse": "#bc4c00", "goal": "#116329",
}  # fmt: skip
DARK = {
    "back": "#0d1117", "text": "#e6edf3", "quiet": "#9198a1", "grid": "#30363d", "ours": "#58a6ff",
    "other": "#f0883e", "worse": "#f0883e", "goal": "#56d364",
}  # fmt: skip
"""Class -> colour; each has a contrast of 4.5 or more against ``back``, but for the grid."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', sans-serif"
LETTER = 6.6
"""Pixels that a letter takes at most on average, at 12 pixels; wide (CJK) letters take two."""


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def width_of(text: str) -> float:
    """About how wide the text is at 12 pixels."""
    return LETTER * sum(2 if ord(letter) > 0x2E7F else 1 for letter in text)


def _style(colours: dict[str, str]) -> str:
    parts = [f".back{{fill:{colours['back']}}}.back-edge{{stroke:{colours['back']}}}"]
    for name, colour in colours.items():
        if name != "back":
            parts.append(f".{name}{{fill:{colour}}}.{name}-line{{stroke:{colour};fill:none}}")
    return "".join(parts)


@dataclass
class Picture:
    """A chart under construction; lengths in pixels, the origin top left.

    Attributes:
        title: its heading, also what a screen reader says first.
        told: what it shows, in a sentence or two, for who does not see it.
    """

    title: str
    told: str
    width: float
    height: float
    _parts: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, kind: str = "text", anchor: str = "start", size: int = 12,
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Text whose baseline is at ``y``; ``anchor`` is start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
            f' font-size="{size}"{weight}>{escape(text)}</text>'
        )

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A filled rectangle; a negative width goes to the left."""
        left = min(x, x + width)
        self._parts.append(
            f'<rect class="{kind}" x="{number(left)}" y="{number(y)}" width="{number(abs(width))}"'
            f' height="{number(height)}" rx="1.5"/>'
        )

    def line(
        self, points: Sequence[tuple[float, float]], kind: str, width: float = 1, dash: str = ""
    ) -> None:
        """A line through the points."""
        through = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<polyline class="{kind}-line" points="{through}" stroke-width="{number(width)}"{dashed}/>'
        )

    def dot(self, x: float, y: float, kind: str, radius: float = 4.5) -> None:
        """A filled circle."""
        self._parts.append(f'<circle class="{kind}" cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"/>')

    def diamond(self, x: float, y: float, kind: str, radius: float = 5) -> None:
        """A filled diamond, told apart from a dot without its colour."""
        corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
        through = " ".join(f"{number(a)},{number(b)}" for a, b in corners)
        self._parts.append(f'<polygon class="{kind} back-edge" points="{through}"/>')

    def svg(self) -> str:
        """The whole document."""
        box = f"0 0 {number(self.width)} {number(self.height)}"
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{number(self.width)}"'
            f' height="{number(self.height)}" role="img" aria-labelledby="title desc"'
            f' font-family="{FONT}">',
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="desc">{escape(self.told)}</desc>',
            f"<style>{_style(LIGHT)}@media (prefers-color-scheme: dark){{{_style(DARK)}}}</style>",
            f'<rect class="back" width="{number(self.width)}" height="{number(self.height)}" rx="6"/>',
            *self._parts,
            "</svg>\n",
        ])  # fmt: skip


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic scale from ``low`` to ``high`` (both above 0) on the pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> LogAxis:
        """The scale between powers of ten that holds every value. ValueError if there is none above 0."""
        found = [value for value in values if value > 0]
        if not found:
            raise ValueError("no value above 0")
        low = math.floor(math.log10(min(found)))
        high = max(math.ceil(math.log10(max(found))), low + 1)
        return cls(10.0**low, 10.0**high, start, end)

    def at(self, value: float) -> float:
        """The pixel of a value; values beyond an end are put at that end."""
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + min(share, 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """The powers of ten on the scale."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]
