"""Pure twin of the query_text kernel."""

from __future__ import annotations

import re
from typing import Final

from ._scripts_py import char_set, later
from .scripts_tables import DIACRITIC, SENTENCE, TOKEN, UNSPACED

MAX_QUERY_CHARS: Final = 10_000
"""Characters of a query that are read; the rest is ignored."""

MAX_TERMS: Final = 64
"""Terms of a query that are searched for; later ones are ignored."""

Leaf = tuple[str, str]
Operand = tuple[bool, tuple[Leaf, ...]]
Group = list[Operand]
Token = tuple[str, str, bool]

_LETTER = f"[{char_set(UNSPACED)}]"
_NO_LETTER = f"(?!{_LETTER})"
_SPACED = f"{_NO_LETTER}[{char_set(TOKEN)}](?:{_NO_LETTER}[{char_set(TOKEN, DIACRITIC)}])*"
_TOKENS = re.compile(r'"([^"]*)"(\*?)|[^\s"]+')
_UNSPACED = later(_LETTER)
_PIECES = later(f"[^{char_set(SENTENCE)}]+")
_INNER = later(f"[{char_set(TOKEN, UNSPACED)}](?:.*[{char_set(TOKEN, UNSPACED, DIACRITIC)}])?", re.DOTALL)
_WORD = later(_SPACED)
_WORDS = later(rf"{_SPACED}(?:[-._]+{_SPACED})*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_OPERATORS = ("AND", "OR", "NOT")
_RESERVED = frozenset(("AND", "OR", "NOT", "NEAR"))


def tokenize(text: str | None) -> list[Token]:
    """The query as tokens ``(kind, text, prefix)`` in order; kind is "operator", "phrase" or "word".

    White space and NUL separate. ``"..."`` is a phrase, with ``prefix`` True where a star
    follows at once; a quotation mark without a partner falls away. AND, OR and NOT in capitals are
    operators (``groups`` decides which of them have operands). A word is whatever else
    stands together, stars and punctuation included. Reads the whole words in MAX_QUERY_CHARS
    characters; surrogate pairs are joined, lone surrogates dropped. None is the empty query;
    TypeError for any other type than str.
    """
    out: list[Token] = []
    for found in _TOKENS.finditer(_readable(text)):
        phrase, star = found.groups()
        if phrase is not None:
            out.append(("phrase", phrase, star == "*"))
            continue
        word = found.group()
        out.append(("operator" if word in _OPERATORS else "word", word, False))
    return out


def groups(text: str | None) -> list[Group]:
    """The query as alternatives (OR), each a list of operands that must (AND) or must not hold.

    An operand is ``(negated, terms)`` with terms ``(kind, text)`` that must hold together. Kinds:
    "word", one token of unicode61; "phrase", text whose tokens follow each other; "prefix", the same
    with the last token as a prefix; "substring", literal text with a letter of an unspaced script.

    NOT binds tighter than AND (written or not), AND tighter than OR. A run of operators between two
    operands means NOT if it ends in NOT, else OR if it holds one, else AND. At the start a single NOT
    negates, any other run falls away; at the end every run does. Equal terms count once,
    and MAX_TERMS terms are kept. A group without a positive operand matches nothing.
    """
    out: list[Group] = []
    group: Group = []
    run: list[str] = []
    kept = 0
    first = True
    for kind, value, prefix in tokenize(text):
        if kind == "operator":
            run.append(value)
            continue
        terms = _phrase(value, prefix) if kind == "phrase" else _word(value)
        if not terms:
            continue
        negated = bool(run) and run[-1] == "NOT" and (not first or len(run) == 1)
        if not first and not negated and "OR" in run:
            kept -= _close(out, group)
            group = []
        run.clear()
        first = False
        for operand in [(True, tuple(terms))] if negated else [(False, (term,)) for term in terms]:
            if operand not in group and kept + len(operand[1]) <= MAX_TERMS:
                group.append(operand)
                kept += len(operand[1])
    _close(out, group)
    return out


def sanitize(text: str | None) -> str:
    """The query as a string that FTS5 accepts in MATCH, or ``""`` where it has no positive term."""
    return match_string(groups(text))


def match_string(alternatives: list[Group]) -> str:
    """``groups`` output as an FTS5 query; groups without a positive operand are left out.

    AND is written only beside a NOT: FTS5's implicit AND binds tighter than its NOT.
    """
    out = []
    for group in alternatives:
        wanted = [_operand(terms) for negated, terms in group if not negated]
        unwanted = [_operand(terms) for negated, terms in group if negated]
        if wanted:
            joined = (" AND " if unwanted else " ").join(wanted)
            out.append(" NOT ".join([joined, *unwanted]))
    return " OR ".join(out)


def _readable(text: str | None) -> str:
    """The part of the query that is read, as encodable text without NUL."""
    if text is None:
        return ""
    if not issubclass(type(text), str):
        raise TypeError(f"query must be a str, not {type(text).__name__}")
    head = str.__getitem__(text, slice(None, MAX_QUERY_CHARS))
    if str.__len__(text) > MAX_QUERY_CHARS:
        head = _whole_words(head)
    if not head.isascii() and _SURROGATE.search(head):
        head = head.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return head.replace("\x00", " ")


def _whole_words(head: str) -> str:
    """``head`` without its last word, which the cut may have halved, unless it is the only one."""
    words = head.rsplit(None, 1)
    return words[0] if len(words) == 2 else head


def _phrase(phrase: str, prefix: bool) -> list[Leaf]:
    stripped = phrase.strip()
    if _UNSPACED.search(stripped):
        return [("substring", stripped)]
    if not _WORD.search(stripped):
        return []
    return [("prefix" if prefix else "phrase", stripped)]


def _word(word: str) -> list[Leaf]:
    """The terms of a word: itself, or the pieces that punctuation parts it into."""
    if not _UNSPACED.search(word):
        return _spaced(word)
    out: list[Leaf] = []
    for piece in _PIECES.findall(word):
        inner = _INNER.search(piece)
        if inner and _UNSPACED.search(piece):
            out.append(("substring", inner.group()))
        else:
            out.extend(_spaced(piece))
    return out


def _spaced(word: str) -> list[Leaf]:
    """The terms of a word without letters of unspaced scripts.

    Hyphen, dot and underscore hold pieces together as a phrase, any other separator parts them,
    and a star behind the last piece makes it a prefix.
    """
    out: list[Leaf] = []
    end = 0
    for found in _WORDS.finditer(word):
        piece = found.group()
        end = found.end()
        out.append(("word" if _WORD.fullmatch(piece) else "phrase", piece))
    if out and "*" in word[end:]:
        out[-1] = ("prefix", out[-1][1])
    return out


def _close(out: list[Group], group: Group) -> int:
    """Keep ``group`` unless an equal one is kept already; the number of terms freed."""
    if not group:
        return 0
    if group in out:
        return sum(len(terms) for _, terms in group)
    out.append(group)
    return 0


def _operand(terms: tuple[Leaf, ...]) -> str:
    written = [_leaf(kind, text) for kind, text in terms]
    return written[0] if len(written) == 1 else f"({' AND '.join(written)})"


def _leaf(kind: str, text: str) -> str:
    bare = kind in ("word", "prefix") and text not in _RESERVED and _WORD.fullmatch(text) is not None
    quoted = text if bare else '"' + text.replace('"', '""') + '"'
    return quoted + "*" if kind == "prefix" else quoted
