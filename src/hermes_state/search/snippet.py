"""A short piece of a hit's text around what the user typed, with the finds between marks.

The search room makes its own snippets: FTS5's ``snippet()`` tokenizes the whole text of a row, marks
trigrams instead of the typed characters, and knows nothing of terms that it did not match itself.
Here the work is a bounded number of scans for literal text, with a look at what stands beside each
find, and the result is bounded in tokens and in characters, whatever the text is. No expression is
compiled for a query: with all unspaced scripts in it, that alone would take milliseconds a word.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from hermes_state._fastpath.scripts_tables import UNSPACED

from .plan import Term

OPEN, CLOSE, ELLIPSIS = ">>>", "<<<", "..."
TOKENS: Final = 40
"""Length of a snippet in words; a letter of an unspaced script counts half."""

CHARS: Final = 400
"""Most characters of text in a snippet, marks and ellipses not counted."""

_BEFORE_TOKENS = 10
_BEFORE_CHARS = 120
_SPANS_A_TERM = 20
_PIECES = 16

Span = tuple[int, int]

_LETTERS = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_LETTER = f"[{_LETTERS}]"
_SPACED = rf"[^\W_{_LETTERS}]"
_TOKEN = re.compile(rf"({_LETTER}+)|(?:{_SPACED})+")
_ASCII_TOKEN = re.compile(r"[0-9A-Za-z]+")
_ASCII_TOKENS = re.compile(rf"(?:[^0-9A-Za-z]*+[0-9A-Za-z]++){{0,{TOKENS}}}+")
_SPACED_CHAR = re.compile(_SPACED)
_SPACED_RUN = re.compile(rf"(?:{_SPACED})*")
_GAP = re.compile(r"[\W_]+")
_PIECE = re.compile(r"[^\W_]+")
_INK = re.compile(r"\S")


class _Bare(dict[int, int]):
    """Code point -> its lower-case base letter, worked out once each; one for one, so offsets stay."""

    def __missing__(self, code: int) -> int:
        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        self[code] = ord(base) if len(base) == 1 else code
        return self[code]


class _Lower(dict[int, int]):
    """Code point -> its lower-case letter where that is one character."""

    def __missing__(self, code: int) -> int:
        low = chr(code).lower()
        self[code] = ord(low) if len(low) == 1 else code
        return self[code]


_BARE, _LOWER = _Bare(), _Lower()


class Marker:
    """Finds the terms of one query in texts."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self._words = [_Word(t.kind, t.text) for t in terms if t.kind != "substring"]
        # Without words and case nothing has to be folded: most searches in unspaced scripts.
        self._as_is = all(t.kind == "substring" and t.text.lower() == t.text.upper() for t in terms)
        self._substrings = [_Substring(lower(t.text)) for t in terms if t.kind == "substring"]

    def snippet(self, text: str) -> str:
        """About TOKENS tokens of ``text`` around the densest early find, finds marked."""
        low = text if self._as_is else lower(text)
        found = self._spans(low, 0, len(low))
        if self._words and not text.isascii() and not all(found):
            low = text.translate(_BARE)
            found = self._spans(low, 0, len(low))
        start, end = _window(text, _anchor(found))
        if any(len(spans) == _SPANS_A_TERM for spans in found):  # perhaps not all finds of the window
            found = self._spans(low, start, min(len(low), end + CHARS))
        return _rendered(text, start, end, _merged(found, start, end))

    def _spans(self, low: str, start: int, end: int) -> list[list[Span]]:
        """The first finds of each term between the offsets."""
        words = [word.spans(low, start, end) for word in self._words]
        return words + [substring.spans(low, start, end) for substring in self._substrings]


def lower(text: str) -> str:
    """``text`` in lower case with every offset kept."""
    low = text.lower()
    return low if len(low) == len(text) else text.translate(_LOWER)


@lru_cache(256)
def marker(terms: tuple[Term, ...]) -> Marker:
    """The ``Marker`` of these terms, the same one for a query that comes again."""
    return Marker(terms)


class _Substring:
    """Finds a text wherever it stands."""

    def __init__(self, text: str) -> None:
        self._text = text

    def spans(self, low: str, start: int, end: int) -> list[Span]:
        """The first finds between the offsets."""
        found: list[Span] = []
        at = low.find(self._text, start, end)
        while at >= 0 and len(found) < _SPANS_A_TERM:
            found.append((at, at + len(self._text)))
            at = low.find(self._text, at + len(self._text), end)
        return found


class _Word:
    """Finds whole tokens of a word, phrase or prefix, with whatever stands between them in the text."""

    def __init__(self, kind: str, text: str) -> None:
        low = lower(text)
        self._pieces = [piece.translate(_BARE) for piece in _PIECE.findall(low)][:_PIECES] or [low]
        self._prefix = kind == "prefix"

    def spans(self, low: str, start: int, end: int) -> list[Span]:
        """The first finds between the offsets."""
        first = self._pieces[0]
        found: list[Span] = []
        at = low.find(first, start, end)
        while at >= 0 and len(found) < _SPANS_A_TERM:
            last = self._end(low, at, end)
            if last < 0:
                at = low.find(first, at + 1, end)
            else:
                found.append((at, last))
                at = low.find(first, last, end)
        return found

    def _end(self, low: str, at: int, end: int) -> int:
        """Where the find that begins at ``at`` ends; -1 if it is none."""
        if at and _SPACED_CHAR.match(low, at - 1):
            return -1
        last = at + len(self._pieces[0])
        for piece in self._pieces[1:]:
            gap = _GAP.match(low, last, end)
            if gap is None or not low.startswith(piece, gap.end(), end):
                return -1
            last = gap.end() + len(piece)
        if self._prefix:
            run = _SPACED_RUN.match(low, last, end)
            return run.end() if run else last
        return -1 if _SPACED_CHAR.match(low, last, end) else last


def _anchor(found: list[list[Span]]) -> Span:
    """The find behind which most different terms follow soon; the first of the text among equals."""
    if len(found) == 1:
        return found[0][0] if found[0] else (0, 0)
    spans = sorted((span, term) for term, spans in enumerate(found) for span in spans)
    best, most = (0, 0), 0
    for i, (span, _) in enumerate(spans):
        terms = set()
        for other, term in spans[i:]:
            if other[0] > span[0] + CHARS // 2:
                break
            terms.add(term)
        if len(terms) > most:
            best, most = span, len(terms)
    return best


def _window(text: str, anchor: Span) -> Span:
    """Where the snippet begins and ends: some tokens before ``anchor``, TOKENS in all."""
    begin, cut = (_ascii_begin, _ascii_cut) if text.isascii() else (_begin, _cut)
    if len(text) <= CHARS and cut(text, 0, len(text)) == len(text):
        return 0, len(text)
    start = begin(text, anchor[0])
    if not _INK.search(text, 0, start):
        start = 0
    most = min(len(text), start + CHARS)
    return start, max(cut(text, start, most), min(anchor[1], most))


def _ascii_begin(text: str, at: int) -> int:
    """``_begin`` for ASCII, where every token is a word."""
    lowest = max(0, at - _BEFORE_CHARS)
    starts = [token.start() for token in _ASCII_TOKEN.finditer(text, lowest, at)][-_BEFORE_TOKENS:]
    if starts and starts[0] == lowest > 0:
        del starts[0]
    return starts[0] if starts else at


def _ascii_cut(text: str, start: int, end: int) -> int:
    """``_cut`` for ASCII, where every token is a word."""
    found = _ASCII_TOKENS.match(text, start, end)
    whole = found.end() if found else start
    return whole if _ASCII_TOKEN.search(text, whole, end) else end


def _begin(text: str, at: int) -> int:
    """Where the tokens begin that a snippet shows before the find at ``at``."""
    lowest = max(0, at - _BEFORE_CHARS)
    start, room = at, float(_BEFORE_TOKENS)
    for token in reversed(list(_TOKEN.finditer(text, lowest, at))):
        first, last = token.span()
        if token.group(1):
            size = min(last - first, int(room * 2))
            room -= size / 2
            first = last - size
        else:
            room -= 1
        if room < 0 or (first == lowest > 0 and not token.group(1)):
            break
        start = first
    return start


def _cut(text: str, start: int, end: int) -> int:
    """The end of the last token that fits into TOKENS from ``start`` on, or ``end`` where all do."""
    room, whole = float(TOKENS), start
    for token in _TOKEN.finditer(text, start, end):
        first, last = token.span()
        if token.group(1):
            if last - first > room * 2:
                return first + int(room * 2)
            room -= (last - first) / 2
        else:
            room -= 1
        if room < 0:
            return whole
        whole = last
    return end


def _merged(found: list[list[Span]], start: int, end: int) -> list[Span]:
    """The spans of all terms inside the window, those that overlap joined."""
    out: list[Span] = []
    for first, last in sorted(span for spans in found for span in spans):
        last = min(last, end)
        if first >= last or first < start:
            continue
        if out and first < out[-1][1]:
            out[-1] = (out[-1][0], max(last, out[-1][1]))
        else:
            out.append((first, last))
    return out


def _rendered(text: str, start: int, end: int, marked: list[Span]) -> str:
    pieces = [ELLIPSIS] if start else []
    done = start
    for first, last in marked:
        pieces += (text[done:first], OPEN, text[first:last], CLOSE)
        done = last
    more = _INK.search(text, end) is not None
    pieces.append(text[done:end] if more else text[done:end].rstrip())
    if more:
        pieces.append(ELLIPSIS)
    return "".join(pieces)
