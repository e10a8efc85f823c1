"""Stored text as a terminal may show it, and numbers as people read them."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Any

from rich.text import Text

_MARKED = re.compile(">>>(.*?)<<<", re.DOTALL)
_LONGEST = 220
"""Characters of a text that are shown."""
_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories whose characters may move a cursor or turn the direction of writing."""


def clean(text: str, longest: int = _LONGEST) -> str:
    """One line of at most ``longest`` characters that a terminal shows as it is.

    White space is folded; control and format characters, which could move the cursor or
    turn the direction of writing, become their escapes; joiners inside emoji stay.
    """
    folded = " ".join(text.split())
    if len(folded) > longest:
        folded = folded[: longest - 3] + "..."
    return "".join(map(_shown, folded))


def clean_block(text: str) -> str:
    """``text`` with its lines and tabs, and everything else that could steer a terminal as its escape."""
    return "\n".join("".join(map(_shown, line.expandtabs(4))) for line in text.splitlines())


def _shown(character: str) -> str:
    if character == "\u200d" or unicodedata.category(character) not in _STEERING:
        return character
    return character.encode("unicode_escape").decode("ascii")


def marked(text: str) -> Text:
    """A snippet with what its marks enclose in bold; the marks stay for those without colours."""
    shown = Text()
    line = clean(text, 400)
    place = 0
    for found in _MARKED.finditer(line):
        shown.append(line[place : found.start()])
        shown.append(found.group(), style="bold magenta")
        place = found.end()
    return shown.append(line[place:])


def time_text(seconds: float) -> str:
    """A duration: seconds, milliseconds or microseconds."""
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} us"


def size_text(number: float) -> str:
    """Bytes in decimal units."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"


def when_text(seconds: Any) -> str:
    """A Unix time in local time to the minute; ``-`` where it is none."""
    if not isinstance(seconds, int | float):
        return "-"
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "-"


def cost_text(dollars: Any) -> str:
    """US dollars to a hundredth of a cent; ``-`` where none is known."""
    return f"{dollars:,.4f}" if isinstance(dollars, int | float) else "-"


def count_text(number: Any) -> str:
    """A count with its thousands apart; 0 for NULL, another program's text as it stands."""
    return f"{number:,}" if isinstance(number, int | float) else clean(str(number or 0), 20)


def plural(number: int, thing: str) -> str:
    """``1 session``, ``1,250 sessions``."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
