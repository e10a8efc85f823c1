"""From a plan to SQL: one SELECT of ``(id, rank)`` with its parameters.

Each index answers all the terms that it can answer in one MATCH; what several
indexes must say together is joined as sets. ``rank`` is FTS5's bm25 (smaller is better), added up over the
indexes that took part. A one- or two-character term has no bm25: its share is bm25's term
frequency part alone, ``-tf * (k1 + 1) / (tf + k1)`` with FTS5's k1 = 1.2.

A row that stands in ``hs_fts_words`` is answered there for terms of spaced scripts; its rank is
the one of ``messages_fts`` where that matches too.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from .plan import Group, Operand, Plan, Term, fold, match_string

Params = tuple[object, ...]

_MATCH = "SELECT rowid AS id, {rank} AS rank FROM {table} WHERE {table} MATCH ?{between}"
_WORDS_UNRANKED = """\
SELECT rowid AS id, 0.0 AS rank FROM messages_fts WHERE messages_fts MATCH ?{between}
AND NOT EXISTS (SELECT 1 FROM hs_fts_words_docsize d WHERE d.id = messages_fts.rowid)
UNION ALL SELECT rowid, 0.0 FROM hs_fts_words WHERE hs_fts_words MATCH ?{between}"""
# bm25 is worked out for a row when its rank is read: once each here, for rows that pass the conditions.
# The plus sign keeps SQLite from asking FTS5 row by row, each time from the start.
_WORDS_TOO = """\
SELECT id, rank FROM (
    WITH h(id, rank) AS MATERIALIZED (SELECT rowid, rank FROM hs_fts_words WHERE hs_fts_words MATCH ?),
    b(id, rank) AS MATERIALIZED (
        SELECT rowid, rank FROM messages_fts
        WHERE messages_fts MATCH ? AND +rowid IN (SELECT id FROM h)
    )
    SELECT rowid AS id, rank FROM messages_fts
    WHERE messages_fts MATCH ?
    AND NOT EXISTS (SELECT 1 FROM hs_fts_words_docsize d WHERE d.id = messages_fts.rowid)
    UNION ALL
    SELECT h.id, COALESCE(b.rank, h.rank) FROM h LEFT JOIN b ON b.id = h.id
)"""
_WORDS_APART = """\
SELECT rowid AS id, rank FROM messages_fts WHERE messages_fts MATCH ?
AND NOT EXISTS (SELECT 1 FROM hs_fts_words_docsize d WHERE d.id = messages_fts.rowid)"""
_SHORT = (
    "SELECT doc AS id, -(count(*) * 2.2) / (count(*) + 1.2) AS rank"
    " FROM temp.hs_vocabulary WHERE term >= ? AND term < ?{between} GROUP BY doc"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """A SELECT whose columns are ``id`` (each once) and ``rank``, and what to bind."""

    sql: str
    params: Params


@dataclass(frozen=True, slots=True)
class Compiler:
    """Makes ``Rows`` of plans for one connection.

    ``words``: rows stand in ``hs_fts_words``, so it must be asked. ``ranked``: ranks are wanted
    (bm25 costs more than the match itself), else they are 0. ``between``: only rows with ids in this
    range, ends included, are wanted (unranked).
    """

    conn: apsw.Connection
    words: bool
    ranked: bool
    between: tuple[int, int] | None = None

    def plan(self, plan: Plan) -> Rows:
        """The rows that any group of the plan matches."""
        if plan.index:
            return self._match(plan.index, plan.match)
        return self._any([self._group(group) for group in plan.groups])

    def _group(self, group: Group) -> Rows:
        """The rows in which every wanted operand holds and no unwanted one."""
        wanted: list[Rows] = []
        rest: list[Operand] = []
        for route in ("words", "trigram"):
            mine = [operand for operand in group if operand.route == route]
            if any(not operand.negated for operand in mine):
                wanted.append(self._match(route, match_string((tuple(mine),))))
            else:
                rest.extend(mine)
        rest.extend(operand for operand in group if operand.route in ("short", "mixed"))
        wanted.extend(self._short(term) for operand in rest if not operand.negated for term in operand.terms)
        found = self._all(wanted)
        for operand in rest:
            if operand.negated:
                unwanted = self._ids(operand)
                found = Rows(
                    f"SELECT id, rank FROM ({found.sql}) WHERE id NOT IN (SELECT id FROM ({unwanted.sql}))",  # noqa: S608
                    found.params + unwanted.params,
                )
        return found

    def _ids(self, operand: Operand) -> Rows:
        """The rows in which all terms of one operand hold, whatever their indexes, unranked."""
        quiet = Compiler(self.conn, self.words, False, self.between)
        parts = [
            quiet._short(term)
            if term.route == "short"
            else quiet._match(term.route, match_string(((_only(term),),)))
            for term in operand.terms
        ]
        return quiet._all(parts)

    def _match(self, route: str, query: str) -> Rows:
        """One MATCH in the index of ``route``."""
        if route == "words" and self.words:
            return self._words(query)
        rank = "rank" if self.ranked else "0.0"
        table = "messages_fts" if route == "words" else "messages_fts_trigram"
        return Rows(
            _MATCH.format(table=table, rank=rank, between=self._range("rowid")), (query, *self._ends())
        )

    def _words(self, query: str) -> Rows:
        """One MATCH in the word index where some rows are answered by ``hs_fts_words``."""
        if not self.ranked:
            params = (query, *self._ends())
            return Rows(_WORDS_UNRANKED.format(between=self._range("rowid")), params + params)
        if self._in_words(query):
            return Rows(_WORDS_TOO, (query, query, query))
        return Rows(_WORDS_APART, (query,))

    def _range(self, name: str) -> str:
        return f" AND {name} BETWEEN ? AND ?" if self.between else ""

    def _ends(self) -> Params:
        return self.between or ()

    def _in_words(self, query: str) -> bool:
        """Whether ``query`` matches a row of ``hs_fts_words``; most matches need not be asked for twice."""
        sql = "SELECT 1 FROM hs_fts_words WHERE hs_fts_words MATCH ? LIMIT 1"
        return self.conn.execute(sql, (query,)).fetchone() is not None

    def _short(self, term: Term) -> Rows:
        """The rows that hold a term of one or two characters: trigrams that begin with it."""
        first = fold(self.conn, term.text)
        return Rows(_SHORT.format(between=self._range("doc")), (first, _after(first), *self._ends()))

    def _all(self, parts: list[Rows]) -> Rows:
        """The rows of every part, ranks added."""
        if len(parts) == 1:
            return parts[0]
        return self._sum(parts, f" HAVING count(*) = {len(parts)}")

    def _any(self, parts: list[Rows]) -> Rows:
        """The rows of one part or several, ranks added."""
        return parts[0] if len(parts) == 1 else self._sum(parts, "")

    def _sum(self, parts: list[Rows], having: str) -> Rows:
        union = " UNION ALL ".join(f"SELECT id, rank FROM ({part.sql})" for part in parts)  # noqa: S608
        return Rows(
            f"SELECT id, sum(rank) AS rank FROM ({union}) GROUP BY id{having}",  # noqa: S608 - constant parts
            tuple(value for part in parts for value in part.params),
        )


def has_words(conn: apsw.Connection) -> bool:
    """True when a row stands in ``hs_fts_words``."""
    try:
        return conn.execute("SELECT 1 FROM hs_fts_words_docsize LIMIT 1").fetchone() is not None
    except apsw.SQLError:
        return False  # a file without the table has no such row


def _only(term: Term) -> Operand:
    return Operand(False, (term,))


def _after(prefix: str) -> str:
    """The first text, in code point order, behind every text that begins with ``prefix``.

    UTF-8 keeps code point order. A prefix of U+10FFFF alone has none; then a longer text than any
    trigram of it stands in.
    """
    for size in range(len(prefix), 0, -1):
        code = ord(prefix[size - 1]) + 1
        if code == 0xD800:
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[: size - 1] + chr(code)
    return chr(0x10FFFF) * 4
