"""What the demo searches for: a list made for the sample, or words picked from any other file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hermes_state.cli.records import Record

EXCERPT: Final = 2000
"""Characters of a message's text that are looked at."""
MOST_WORDS: Final = 50_000
"""Different words, or pairs of characters of a script, that are counted."""
MOST_EXCERPTS: Final = 300
"""Messages whose words are kept, to ask for two words of the same message."""


@dataclass(frozen=True)
class Query:
    """A query, why its hits are hits, and whether it must have some."""

    text: str
    why: str
    must_hit: bool = True


SAMPLE: Final = (
    Query("docker AND compose", "both words must be in the message, as whole words, in any case"),
    Query(
        "invoice NOT parser",
        "NOT leaves out the messages that have the second word; an underscore parts words",
    ),
    Query('"health check" OR deploy*', "a phrase keeps its order; a star asks for every word that begins so"),
    Query("广西", "two Chinese characters: they stand in a sentence without spaces, and are found inside it"),
    Query("京都 ホテル", "two Japanese terms, kanji and kana: both must be there"),
    Query("ｶﾀｶﾅ", "half-width kana are found as they were written"),
    Query("서울역", "Korean: found with the particle that is glued to its end"),
    Query("PPT 考勤", "an English and a Chinese term: each goes to the index that can answer it"),
    Query("youer", "a Latin word between Chinese characters is a word of its own"),
    Query("hotel_search", "the name of a tool is searchable, and so are the arguments of its calls"),
)

LIVE: Final = (
    Query("50% of $5", "signs are text and never syntax; this message was stored a moment ago"),
    Query("#123 in src/main.py", "so are numbers, paths and dots"),
    Query('"unbalanced AND (', "nothing is an error: what is no query is searched as words", must_hit=False),
)

# A word between ASCII signs is a word by everybody's rules: no mark follows, no other script touches it.
_EDGE = r"[^\x01-\x2f:-@\[-`{-\x7f]"
_WORD = re.compile(rf"(?<!{_EDGE})[a-z]{{4,20}}(?!{_EDGE})")
_PHRASE = re.compile(rf"(?<!{_EDGE})([a-z]{{4,20}} [a-z]{{4,20}})(?!{_EDGE})")
_SIGNED = re.compile(r"(?<!\S)[A-Za-z0-9/.#$@-]*[A-Za-z0-9][/@#:$%.-][A-Za-z0-9/@#:$%.-]{2,40}(?!\S)")
_TOOL = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{2,60}")
_SCRIPTS: Final = {
    "Chinese characters": re.compile("[一-鿿]{2}"),
    "kana": re.compile("[ぁ-ゖァ-ヺ]{2}"),
    "Hangul": re.compile("[가-힣]{2}"),
}


class Picker:
    """Looks at the records as they are stored, and picks queries that must find something.

    Its memory is bounded: it stops learning new words, and goes on counting those it knows.
    """

    def __init__(self) -> None:
        self._words: Counter[str] = Counter()
        self._tools: Counter[str] = Counter()
        self._pairs: dict[str, Counter[str]] = {name: Counter() for name in _SCRIPTS}
        self._excerpts: list[str] = []
        self._mixed: str | None = None
        self._signed: str | None = None

    def see(self, record: Record) -> None:
        """Learn from a session."""
        for message in record.messages:
            tool = message.get("tool_name")
            if isinstance(tool, str) and _TOOL.fullmatch(tool):
                _count(self._tools, [tool])
            content = message.get("content")
            if isinstance(content, str) and "\x00" not in content:
                self._learn(content)

    def _learn(self, content: str) -> None:
        # What is cut must not end in half a word.
        text = content if len(content) <= EXCERPT else content[:EXCERPT].rpartition(" ")[0]
        words = _WORD.findall(text)
        _count(self._words, words)
        pairs = []
        for name, pattern in _SCRIPTS.items():
            found = pattern.findall(text)
            pairs += found
            _count(self._pairs[name], found)
        if len(set(words)) >= 2 and len(self._excerpts) < MOST_EXCERPTS:
            self._excerpts.append(text[:500].rpartition(" ")[0])
        if self._mixed is None and words and pairs:
            self._mixed = f"{words[0]} {pairs[0]}"
        if self._signed is None and (signed := _SIGNED.search(text)):
            self._signed = signed.group()

    def queries(self) -> list[Query]:
        """The queries, each with its reason; none where the file has no text."""
        return list(self._queries())

    def _queries(self) -> Iterator[Query]:
        if self._words:
            common = self._words.most_common(1)[0][0]
            yield Query(common, "the commonest word of the file: the most matches to rank")
            rare = min(self._words, key=lambda word: (self._words[word], word))
            yield Query(rare, "one of its rarest words")
            yield Query(f"{rare[:-1]}*", "a star asks for every word that begins so")
        yield from self._from_one_message()
        for name, pairs in self._pairs.items():
            if pairs:
                pair = pairs.most_common(1)[0][0]
                yield Query(pair, f"the commonest pair of {name}: found anywhere inside a longer run")
        if self._mixed:
            yield Query(self._mixed, "two scripts in one message: each term goes to its own index")
        if self._tools:
            yield Query(self._tools.most_common(1)[0][0], "the name of the tool that answered most often")
        if self._signed:
            yield Query(self._signed, "signs inside a word are text, never syntax")

    def _from_one_message(self) -> Iterator[Query]:
        """Two words that stand in the same message, and two that stand side by side."""
        pairs = filter(None, map(self._rarest, self._excerpts))
        best = min(pairs, key=lambda pair: sum(self._words[word] for word in pair), default=None)
        if best:
            yield Query(" AND ".join(best), "both words must be in the message")
        phrase = next(filter(None, map(_PHRASE.search, self._excerpts)), None)
        if phrase:
            yield Query(f'"{phrase.group(1)}"', "a phrase: these words side by side, in this order")

    def _rarest(self, text: str) -> tuple[str, ...]:
        known = {word for word in _WORD.findall(text) if word in self._words}
        rarest = sorted(known, key=lambda word: (self._words[word], word))[:2]
        return tuple(rarest) if len(rarest) == 2 else ()


def _count(counter: Counter[str], found: list[Any]) -> None:
    counter.update(word for word in found if word in counter or len(counter) < MOST_WORDS)
