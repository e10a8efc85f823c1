"""From the user's query to a plan: which terms, on which index each, joined how."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from hermes_state._fastpath import query_text

TRIGRAM_LENGTH = 3
"""Characters of a trigram: shorter substrings are looked up in the vocabulary of the index."""


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


def build(conn: apsw.Connection | None, query: str | None) -> Plan:
    """The plan of ``query``; no groups where it has no positive term.

    With a connection, terms of spaced scripts that its unicode61 tokenizer finds no token in
    are dropped: an FTS5 phrase without tokens matches nothing and says so to nobody.
    """
    groups = []
    for alternatives in query_text.groups(query):
        group = [
            Operand(negated, kept)
            for negated, terms in alternatives
            if (kept := tuple(Term(kind, text) for kind, text in terms if _searchable(conn, kind, text)))
        ]
        if any(not operand.negated for operand in group):
            groups.append(tuple(group))
    return Plan(tuple(groups))


def _searchable(conn: apsw.Connection | None, kind: str, text: str) -> bool:
    if conn is None or kind == "substring" or text.isascii():
        return True
    try:
        tokenizer = conn.fts5_tokenizer("unicode61", [])
    except (apsw.NoFTS5Error, apsw.SQLError):
        return True  # without FTS5 the scan answers, and it knows no empty phrase
    return bool(tokenizer(text.encode("utf-8"), apsw.FTS5_TOKENIZE_QUERY, None))


def fold(conn: apsw.Connection, text: str) -> str:
    """``text`` (one or two characters) folded as the trigram index folds it."""
    tokenizer = conn.fts5_tokenizer("trigram", [])
    padded = (text + "aa").encode("utf-8")
    tokens = tokenizer(padded, apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False)
    return str(next(iter(tokens)))[: len(text)]


def describe(plan: Plan, hs_words: bool) -> str:
    """The plan in words, one line a group."""
    if not plan.groups:
        return "no positive term: matches nothing"
    words = "messages_fts, with hs_fts_words for rows that mix scripts" if hs_words else "messages_fts"
    names = {
        "words": f"MATCH in {words}",
        "trigram": "MATCH in messages_fts_trigram",
        "short": "range over the vocabulary of messages_fts_trigram",
    }
    lines = []
    for group in plan.groups:
        parts = [
            f"{'not ' if operand.negated else ''}{term.kind} {term.text!r} ({names[term.route]})"
            for operand in group
            for term in operand.terms
        ]
        lines.append(" and ".join(parts))
    return "\nor ".join(lines)
