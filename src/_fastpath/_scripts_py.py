"""Pure twin of the scripts kernel: regular expressions over the tables of ``scripts_tables``."""

from __future__ import annotations

import re
from typing import Any, cast

from .scripts_tables import DIACRITIC, TOKEN, UNSPACED, Ranges

Run = tuple[int, int, bool]


def char_set(*tables: Ranges) -> str:
    """The inside of a regular expression's ``[...]`` for the code points of ``tables``."""
    return "".join(
        f"{re.escape(chr(first))}-{re.escape(chr(last))}" for ranges in tables for first, last in ranges
    )


_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub")


class _Later:
    """Has the methods of a pattern, and compiles it when one of them is first asked for."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._made = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._made)
        # From now on they are found at once, as those of the pattern itself.
        self.__dict__.update({key: getattr(compiled, key) for key in _METHODS})
        return getattr(compiled, name)


def later(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """``re.compile`` at the first use: all sets of thousands of characters take 60 ms of an import."""
    return cast("re.Pattern[str]", _Later(pattern, flags))


_LETTER = f"[{char_set(UNSPACED)}]"
_MARKS = f"[{char_set(DIACRITIC)}]*"
_OTHER = f"(?!{_LETTER})[{char_set(TOKEN)}]"
_UNSPACED = later(_LETTER)
_UNSPACED_RUN = later(f"{_LETTER}+")
_MIXED = later(f"{_LETTER}{_MARKS}{_OTHER}|{_OTHER}{_MARKS}{_LETTER}")
_PLACEHOLDER = " \ue000 "


def _check(text: object) -> None:
    # Not isinstance: an object may claim any class, and only a real str has characters to look at.
    if not issubclass(type(text), str):
        raise TypeError(f"text must be str, not {type(text).__name__}")


def has_unspaced(text: str) -> bool:
    """True when ``text`` holds a letter of a script that is written without spaces.

    Which those are: the module docstring of ``scripts_tables``. ASCII text answers at once.
    """
    _check(text)
    return not str.isascii(text) and _UNSPACED.search(text) is not None


def count_cjk(text: str) -> int:
    """How many characters of ``text`` are letters of unspaced scripts."""
    _check(text)
    if str.isascii(text):
        return 0
    return sum(found.end() - found.start() for found in _UNSPACED_RUN.finditer(text))


def runs(text: str) -> list[Run]:
    """``text`` cut into its longest runs ``(start, end, unspaced)``, in characters, end exclusive."""
    _check(text)
    size = str.__len__(text)
    if str.isascii(text):
        return [(0, size, False)] if size else []
    out: list[Run] = []
    done = 0
    for found in _UNSPACED_RUN.finditer(text):
        start, end = found.span()
        if start > done:
            out.append((done, start, False))
        out.append((start, end, True))
        done = end
    if size > done:
        out.append((done, size, False))
    return out


def has_mixed(text: str) -> bool:
    """True where a letter of an unspaced script touches a unicode61 token character of another.

    There unicode61 makes one token of both (``修改youer服务端``). Combining marks between them,
    which unicode61 lets pass, do not part them.
    """
    _check(text)
    return not str.isascii(text) and _MIXED.search(text) is not None


def split_mixed(text: str) -> str:
    """``text`` with each run of unspaced letters replaced by one token, U+E000 between spaces.

    So the words beside it are tokens of their own, and phrases keep their distance.
    """
    _check(text)
    if str.isascii(text):
        return str.__getitem__(text, slice(None))
    return _UNSPACED_RUN.sub(_PLACEHOLDER, str.__getitem__(text, slice(None)))
