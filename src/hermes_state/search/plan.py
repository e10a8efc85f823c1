"""From the user's query to a plan: which terms, on which index each, joined how."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import apsw

from hermes_state._fastpath import query_text, scripts

TRIGRAM_LENGTH = 3
"""Characters of a trigram: shorter substrings are looked up in the vocabulary of the index."""

MATCHES = ("words", "substring")
"""How a term of a script with spaces matches: whole words, or wherever it stands."""

CACHED_CHARS: Final = 1_000
"""Characters of a query up to which what it was read as is kept for the next time."""
CACHED: Final = 256
"""Queries of which that is kept, those that were asked last."""


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to find. ``kind``: "word", "phrase", "prefix" or "substring" (see ``query_text.groups``)."""

    kind: str
    text: str

    @property
    def route(self) -> str:
        """ "words" (unicode61 index), "trigram" (trigram index) or "short" (its vocabulary)."""
        if self.kind != "substring":
            return "words"
        return "short" if len(self.text) < TRIGRAM_LENGTH else "trigram"

    @property
    def everywhere(self) -> bool:
        """True for a substring that rows without a letter of an unspaced script may hold, too."""
        return self.kind == "substring" and not scripts.has_unspaced(self.text)


@dataclass(frozen=True, slots=True)
class Operand:
    """Terms that hold together, wanted or (``negated``) unwanted together."""

    negated: bool
    terms: tuple[Term, ...]

    @property
    def route(self) -> str:
        """The route of its terms, or "mixed"."""
        routes = {term.route for term in self.terms}
        return routes.pop() if len(routes) == 1 else "mixed"


Group = tuple[Operand, ...]
_Groups = list[list[tuple[bool, tuple[tuple[str, str], ...]]]]


@dataclass(frozen=True)
class Plan:
    """Alternatives, each a group of operands with at least one that is wanted.

    What is worked out from them is worked out once, since plans of queries that come again are kept.
    """

    groups: tuple[Group, ...]

    @cached_property
    def routes(self) -> frozenset[str]:
        """Every route that a term of the plan takes."""
        return frozenset(term.route for group in self.groups for operand in group for term in operand.terms)

    @cached_property
    def index(self) -> str:
        """The route by which one MATCH answers the whole plan, "words" or "trigram"; else empty."""
        routes = {operand.route for group in self.groups for operand in group}
        return routes.pop() if len(routes) == 1 and routes <= {"words", "trigram"} else ""

    @cached_property
    def match(self) -> str:
        """The whole plan as FTS5's MATCH takes it; for a plan with an ``index``."""
        return match_string(self.groups)

    @cached_property
    def everywhere(self) -> tuple[Term, ...]:
        """The terms that rows without a letter of an unspaced script may hold inside words."""
        return tuple(t for group in self.groups for operand in group for t in operand.terms if t.everywhere)

    @cached_property
    def wanted(self) -> tuple[Term, ...]:
        """The terms that a hit may show: those of operands that are not negated, each once."""
        terms = [
            t for group in self.groups for operand in group if not operand.negated for t in operand.terms
        ]
        return tuple(dict.fromkeys(terms))


def build(conn: apsw.Connection | None, query: str | None, match: str = "words") -> Plan:
    """The plan of ``query``; no groups where it has no positive term.

    ``match`` "substring": every word and phrase is a literal text that matches wherever it stands.
    With a connection, terms of spaced scripts that its unicode61 tokenizer finds no token in
    are dropped: an FTS5 phrase without tokens matches nothing and says so to nobody.
    """
    if match not in MATCHES:
        raise ValueError(f"match must be one of {', '.join(map(repr, MATCHES))}, not {match!r}")
    kept = isinstance(query, str) and len(query) <= CACHED_CHARS
    doubtful = (_doubtful if kept else _doubtful.__wrapped__)(query, match)
    dropped = tuple(text for text in doubtful if not _searchable(conn, text))
    return (_without if kept else _without.__wrapped__)(query, match, dropped)


@lru_cache(CACHED)
def _doubtful(query: str | None, match: str) -> tuple[str, ...]:
    """The texts in the query in which unicode61 might find no token."""
    read = _read(query, match)
    terms = (term for group in read for _, terms in group for term in terms)
    return tuple(text for kind, text in terms if kind != "substring" and not text.isascii())


@lru_cache(CACHED)
def _without(query: str | None, match: str, dropped: tuple[str, ...]) -> Plan:
    """The plan of the query without those texts."""
    groups = []
    for alternatives in _read(query, match):
        group = [
            Operand(negated, kept)
            for negated, terms in alternatives
            if (kept := tuple(Term(kind, text) for kind, text in terms if text not in dropped))
        ]
        if any(not operand.negated for operand in group):
            groups.append(tuple(group))
    return Plan(tuple(groups))


def _read(query: str | None, match: str) -> _Groups:
    return query_text.groups(query) if match == "words" else _literals(query)


def _literals(query: str | None) -> _Groups:
    """``query_text.groups`` with each word and phrase as it stands, as one substring.

    The operators are those of every query: a name stands in for each text while they are read.
    """
    names: dict[str, str] = {}
    written = []
    for kind, text, _ in query_text.tokenize(query):
        if kind == "operator":
            written.append(text)
        elif literal := text.strip():
            written.append(names.setdefault(literal, f"t{len(names)}"))
    literals = {name: literal for literal, name in names.items()}
    return [
        [(negated, tuple(("substring", literals[name]) for _, name in terms)) for negated, terms in group]
        for group in query_text.groups(" ".join(written))
    ]


def _searchable(conn: apsw.Connection | None, text: str) -> bool:
    """Whether the unicode61 tokenizer of ``conn`` finds a token in ``text``."""
    if conn is None:
        return True
    try:
        tokenizer = conn.fts5_tokenizer("unicode61", [])
    except (apsw.NoFTS5Error, apsw.SQLError):
        return True  # without FTS5 the scan answers, and it knows no empty phrase
    return bool(tokenizer(text.encode("utf-8"), apsw.FTS5_TOKENIZE_QUERY, None))


def fold(conn: apsw.Connection, text: str) -> str:
    """``text`` (one or two characters) folded as the trigram index folds it.

    Raises:
        apsw.SQLError: SQLite has no trigram tokenizer.
    """
    try:
        tokenizer = conn.fts5_tokenizer("trigram", [])
    except (apsw.NoFTS5Error, apsw.SQLError) as error:
        raise apsw.SQLError("no such tokenizer: trigram") from error  # as SQLite says it of a table
    padded = (text + "aa").encode("utf-8")
    tokens = tokenizer(padded, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
    return str(next(iter(tokens)))[: len(text)]


def match_string(groups: tuple[Group, ...]) -> str:
    """Groups of terms that one index answers as the text that FTS5's MATCH takes."""
    return query_text.match_string(
        [
            [(operand.negated, tuple((t.kind, t.text) for t in operand.terms)) for operand in group]
            for group in groups
        ]
    )


def describe(plan: Plan, hs_words: bool, *, scanned: bool = False) -> str:
    """The plan in words, one line a group; ``scanned``: no index answers any of it."""
    if not plan.groups:
        return "no positive term: matches nothing"
    words = "messages_fts, with hs_fts_words for rows that mix scripts" if hs_words else "messages_fts"
    names = {
        "words": f"MATCH in {words}",
        "trigram": "MATCH in messages_fts_trigram",
        "short": "range over the vocabulary of messages_fts_trigram",
    }
    if scanned:
        names = dict.fromkeys(names, "scan")
    lines = []
    for group in plan.groups:
        parts = [
            f"{'not ' if operand.negated else ''}{term.kind} {term.text!r} ({names[term.route]})"
            for operand in group
            for term in operand.terms
        ]
        lines.append(" and ".join(parts))
    return "\nor ".join(lines)
