"""The reference way to match, in Python: fold a text, find a term in it.

For the scan that serves where an index is missing or damaged. It folds as unicode61 does
(lower case, combining marks off, for words) and as the trigram index does (lower case alone, for
substrings), by Python's Unicode tables instead of SQLite's.
"""

from __future__ import annotations

import re
import unicodedata

from hermes_state._fastpath import scripts

from .plan import Group, Plan, Term

_MARKS = re.compile("[\u0300-\u036f]")


def lower(text: str) -> str:
    """``text`` in lower case, character by character, so that offsets stay."""
    if text.isascii():
        return text.lower()
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def words(text: str) -> list[str]:
    """The tokens of ``text`` as the word index has them, runs of unspaced letters as U+E000."""
    split = lower(scripts.split_mixed(text))
    if not split.isascii():
        split = _MARKS.sub("", unicodedata.normalize("NFD", split))
    return [token.strip("_") for token in re.findall(r"\w+|\ue000", split.replace("_", " "))]


class Folded:
    """One text, folded both ways, each when first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._low: str | None = None
        self._joined: str | None = None

    def holds(self, term: Term) -> bool:
        """Whether ``term`` is in the text."""
        if term.kind == "substring":
            if self._low is None:
                self._low = lower(self._text)
            return lower(term.text) in self._low
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
