"""The reference for search: every stored row read and matched by the contract's rules.

Independent of the package: its own reading of the query, its own searchable text, its own idea of
what an unspaced letter is (by Unicode names). Only folding and tokenizing come from
the real unicode61 and trigram tokenizers, through APSW.
"""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache

import apsw

_CONN = apsw.Connection(":memory:")
_UNICODE61 = _CONN.fts5_tokenizer("unicode61", [])
_TRIGRAM = _CONN.fts5_tokenizer("trigram", [])
_NAMES = re.compile(
    r"CJK (UNIFIED|COMPATIBILITY) IDEOGRAPH|HIRAGANA|KATAKANA|HANGUL|BOPOMOFO|THAI CHAR|THAI DIGIT|LAO |KHMER"
    r"|MYANMAR|TIBETAN (LETTER|SUBJOINED|VOWEL|DIGIT)|IDEOGRAPHIC (ITERATION|NUMBER|CLOSING)"
    r"|VERTICAL KANA|PROLONGED"
)
_SENTENCE = set(",;!?…、。，；！？：｡､")


def tokens(text: str) -> list[str]:
    """The folded tokens that unicode61 makes of ``text``."""
    return [
        str(token)
        for token in _UNICODE61(
            text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False
        )
    ]


@cache
def unspaced(char: str) -> bool:
    """Whether ``char`` is a letter, mark or digit of a script written without spaces."""
    if char == "\ue000" or "\u3200" <= char <= "\u33ff":  # the placeholder; enclosed and squared forms
        return True
    category = unicodedata.category(char)
    return category[0] in "LMN" and _NAMES.search(unicodedata.name(char, "")) is not None


@cache
def is_token(char: str) -> bool:
    """Whether unicode61 makes a token of ``char`` alone."""
    return bool(tokens(char))


@cache
def continues(char: str) -> bool:
    """Whether ``char`` stays inside a token of unicode61 once it has begun."""
    return len(tokens(f"a{char}b")) == 1


@cache
def low(char: str) -> str:
    """``char`` folded as the trigram tokenizer folds it."""
    made = _TRIGRAM(
        (char * 3).encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False
    )
    return str(next(iter(made)))[0]


def folded(text: str) -> str:
    return "".join(map(low, text))


def searchable(content: str | None, tool_name: str | None, tool_calls: str | None) -> str:
    """The text of a row: text parts of structured content, tool calls without ``\\u`` escapes."""
    body = content or ""
    if body.startswith("\x00json:"):
        with contextlib.suppress(ValueError):  # broken JSON is searched as it stands
            body = "\n".join(_parts(json.loads(body[6:])))
    calls = tool_calls or ""
    if "\\u" in calls:
        calls = re.sub(r"(?<!\\)\\+u([0-9a-f]{4})", _unescaped, calls)
        calls = calls.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        calls = re.sub("[\ud800-\udfff]", lambda lone: f"\\u{ord(lone[0]):04x}", calls)
    return f"{body} {tool_name or ''} {calls}".replace("\x00", " ")


def _unescaped(found: re.Match[str]) -> str:
    """The character of an escape; those that JSON must escape stay as they are."""
    code = int(found[1], 16)
    return found[0] if code < 0x20 or code in (0x22, 0x5C, 0x7F) else chr(code)


def _parts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [text for item in value for text in _parts(item)]
    if isinstance(value, dict):
        return _parts(value.get("text")) + _parts(value.get("content"))
    return []


def words(text: str) -> list[str]:
    """Tokens of spaced scripts; each run of unspaced letters is one token that equals no word."""
    return tokens(re.sub("\ue000+", " \ue000 ", "".join("\ue000" if unspaced(c) else c for c in text)))


@dataclass
class Find:
    """One term: ``kind`` substring, or the tokens of a phrase whose last may be a prefix."""

    literal: str = ""
    phrase: list[str] = field(default_factory=list)
    prefix: bool = False

    def within(self, text: str) -> bool:
        if self.literal:
            return folded(self.literal) in folded(text)
        have = words(text)
        size = len(self.phrase)
        for i in range(len(have) - size + 1):
            part = have[i : i + size]
            if part == self.phrase or (
                self.prefix and part[:-1] == self.phrase[:-1] and part[-1].startswith(self.phrase[-1])
            ):
                return True
        return False


def matches(query: str, text: str) -> bool:
    """Whether a row with this searchable text is a hit of ``query``."""
    for wanted, unwanted in parse(query):
        unwelcome = any(all(f.within(text) for f in operand) for operand in unwanted)
        if wanted and all(f.within(text) for f in wanted) and not unwelcome:
            return True
    return False


Alternative = tuple[list[Find], list[list[Find]]]


def parse(query: str) -> list[Alternative]:
    """The query as alternatives of (wanted terms, unwanted operands)."""
    query = query.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore").replace("\x00", " ")
    out: list[Alternative] = [([], [])]
    operators: list[str] = []
    begun = False
    for quoted, text, star in _chunks(query):
        if not quoted and text in ("AND", "OR", "NOT"):
            operators.append(text)
            continue
        operand = _phrase(text, star) if quoted else _word(text)
        if not operand:
            continue
        negated = operators[-1:] == ["NOT"] and (begun or operators == ["NOT"])
        if begun and "OR" in operators and not negated:
            out.append(([], []))
        if negated:
            out[-1][1].append(operand)
        else:
            out[-1][0].extend(operand)
        operators, begun = [], True
    return out


def _chunks(query: str) -> list[tuple[bool, str, bool]]:
    out = []
    at = 0
    while at < len(query):
        if query[at].isspace():
            at += 1
        elif query[at] == '"':
            close = query.find('"', at + 1)
            if close >= 0:
                out.append((True, query[at + 1 : close], query[close + 1 : close + 2] == "*"))
                at = close
            at += 1
        else:
            end = at
            while end < len(query) and not query[end].isspace() and query[end] != '"':
                end += 1
            # A star behind a phrase belongs to the phrase.
            word = query[at:end]
            out.append((False, word, False))
            at = end
    return out


def _phrase(text: str, star: bool) -> list[Find]:
    text = text.strip()
    if any(map(unspaced, text)):
        return [Find(literal=text)]
    found = tokens(text)
    return [Find(phrase=found, prefix=star)] if found else []


def _word(word: str) -> list[Find]:
    if not any(map(unspaced, word)):
        return _spaced(word)
    out = []
    piece = ""
    for char in word + ",":
        if char in _SENTENCE or unicodedata.category(char) in ("Ps", "Pe", "Pi", "Pf"):
            if any(map(unspaced, piece)):
                while not (unspaced(piece[0]) or is_token(piece[0])):
                    piece = piece[1:]
                while not (unspaced(piece[-1]) or is_token(piece[-1]) or continues(piece[-1])):
                    piece = piece[:-1]
                out.append(Find(literal=piece))
            else:
                out.extend(_spaced(piece))
            piece = ""
        else:
            piece += char
    return out


def _spaced(word: str) -> list[Find]:
    """Pieces of token characters; ``-._`` alone between two joins them to a phrase."""
    pieces: list[tuple[str, str]] = []  # (separator before, token)
    gap = ""
    inside = False
    for char in word:
        if is_token(char) or (inside and continues(char)):
            if inside:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + char)
            else:
                pieces.append((gap, char))
            gap, inside = "", True
        else:
            gap, inside = gap + char, False
    out: list[Find] = []
    for i, (before, piece) in enumerate(pieces):
        if i and before and not before.strip("-._"):
            out[-1].phrase += tokens(piece)
        else:
            out.append(Find(phrase=tokens(piece)))
    if out and "*" in gap:
        out[-1].prefix = True
    return out
