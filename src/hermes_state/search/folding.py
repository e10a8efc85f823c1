"""The reference way to match, in Python: fold a text, find a term in it.

For the scan that serves where an index is missing, damaged or cannot tell. It folds as unicode61 does
(lower case, combining marks off, for words), by Python's Unicode tables instead of SQLite's, and as the
trigram index does (lower case alone, for substrings), by that tokenizer itself where SQLite has it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import apsw

from hermes_state._fastpath import scripts

from .plan import Group, Plan, Term

_MARKS = re.compile("[\u0300-\u036f]")


def lower(text: str) -> str:
    """``text`` in lower case, character by character, so that offsets stay."""
    if text.isascii():
        return text.lower()
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


class _TrigramFold(dict[int, str]):
    """Code point -> the character as the trigram tokenizer folds it, worked out once each."""

    def __init__(self, tokenizer: apsw.FTS5Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, code: int) -> str:
        made = self._tokenizer(
            (chr(code) * 3).encode("utf-8"), apsw.FTS5_TOKENIZE_QUERY, None,
            include_offsets=False, include_colocated=False,
        )  # fmt: skip
        self[code] = str(next(iter(made)))[0]
        return self[code]


def trigram_fold(conn: apsw.Connection) -> Callable[[str], str]:
    """How the trigram index folds a text, character by character; ``lower`` where SQLite has none."""
    try:
        table = _TrigramFold(conn.fts5_tokenizer("trigram", []))
    except (apsw.NoFTS5Error, apsw.SQLError):
        return lower
    return lambda text: text.lower() if text.isascii() else text.translate(table)


def words(text: str) -> list[str]:
    """The tokens of ``text`` as the word index has them, runs of unspaced letters as U+E000."""
    split = lower(scripts.split_mixed(text))
    if not split.isascii():
        split = _MARKS.sub("", unicodedata.normalize("NFD", split))
    return [token.strip("_") for token in re.findall(r"\w+|\ue000", split.replace("_", " "))]


class Folded:
    """One text, folded both ways, each when first asked for."""

    def __init__(self, text: str, fold: Callable[[str], str] = lower) -> None:
        self._text = text
        self._fold = fold
        self._low: str | None = None
        self._joined: str | None = None

    def holds(self, term: Term) -> bool:
        """Whether ``term`` is in the text."""
        if term.kind == "substring":
            if self._low is None:
                self._low = self._fold(self._text)
            return self._fold(term.text) in self._low
        if self._joined is None:
            self._joined = f" {' '.join(words(self._text))} "
        wanted = " " + " ".join(words(term.text))
        return wanted + ("" if term.kind == "prefix" else " ") in self._joined

    def matches(self, plan: Plan) -> bool:
        """Whether any group of ``plan`` matches the text."""
        return any(self._group(group) for group in plan.groups)

    def _group(self, group: Group) -> bool:
        return all(
            all(self.holds(term) for term in operand.terms) is not operand.negated for operand in group
        )
