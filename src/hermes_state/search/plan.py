"""From the user's query to a plan: which terms, on which index each, joined how."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from hermes_state._fastpath import query_text, scripts

TRIGRAM_LENGTH = 3
"""Characters of a trigram: shorter substrings are looked up in the vocabulary of the index."""

MATCHES = ("words", "substring")
"""How a term of a script with spaces matches: whole words, or wherever it stands."""


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Alternatives, each a group of operands with at least one that is wanted."""

    groups: tuple[Group, ...]

    @property
    def routes(self) -> frozenset[str]:
        """Every route that a term of the plan takes."""
        return frozenset(term.route for group in self.groups for operand in group for term in operand.terms)

    @property
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
    groups = []
    for alternatives in query_text.groups(query) if match == "words" else _literals(query):
        group = [
            Operand(negated, kept)
            for negated, terms in alternatives
            if (kept := tuple(Term(kind, text) for kind, text in terms if _searchable(conn, kind, text)))
        ]
        if any(not operand.negated for operand in group):
            groups.append(tuple(group))
    return Plan(tuple(groups))


def _literals(query: str | None) -> list[list[tuple[bool, tuple[tuple[str, str], ...]]]]:
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


def _searchable(conn: apsw.Connection | None, kind: str, text: str) -> bool:
    if conn is None or kind == "substring" or text.isascii():
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
