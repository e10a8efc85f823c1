"""The goals' read table, on one file a side that is made once."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from . import corpus
from .runner import Bench, Goal, Measure, Side, Values, repeated, row

LONG, MIDDLE = "bench-long", "bench-middle"
LONG_MESSAGES, MIDDLE_MESSAGES = 20_000, 5_000
READERS = 8
MS = 1e-3
#: Queries that v11 answers by its indexes, with their filters; `Words` fills the braces in from the file.
QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "one word": ("{middle}", {}),
    "two words": ("{common} {middle}", {}),
    "AND of three": ("{common} AND {middle} AND {rare}", {}),
    "OR": ("{middle} OR {rare} OR docker", {}),
    "NOT": ("{middle} NOT {common}", {}),
    "phrase": ('"error message"', {}),
    "prefix": ("{start}*", {}),
    "hyphenated word": ("read-only", {}),
    "a word of one row": ("{single}", {}),
    "no hit": ("zyxwvutsrq", {}),
    "filters": ("{middle}", {"source_filter": ["cli", "telegram"], "role_filter": ["assistant"]}),
    "second page": ("{middle}", {"offset": 20}),
    "three Han characters": ("{han}", {}),
    "three Han characters, OR": ("{han} OR {han2}", {}),
    "three Hangul syllables": ("{hangul}", {}),
}
IN_SHORT_FORM = ("NOT", "second page", "three Han characters")
"""The few whose time at the small size is more than the overhead of a call."""


def sessions(size: str | int) -> Iterator[corpus.Session]:
    """``size`` messages: ordinary sessions, one of 5,000 and one of 20,000 (fewer in small sizes)."""
    total = corpus.SIZES[size] if isinstance(size, str) else size
    long, middle = min(LONG_MESSAGES, total * 2 // 5), min(MIDDLE_MESSAGES, total // 10)
    yield from corpus.build(total - long - middle, "mixed")
    start = corpus.EPOCH + 600.0 * total
    for name, count in ((MIDDLE, middle), (LONG, long)):
        found = chain.from_iterable(session["messages"] for session in corpus.build(count, "mixed"))
        messages = [{**message, "timestamp": start + place} for place, message in enumerate(found)]
        yield {"id": name, "source": "cli", "model": None, "title": name, "started_at": start,
               "messages": messages}  # fmt: skip
        start += count


def read_name(bench: Bench) -> str:
    """The name of the prepared file of the size that is read."""
    return f"read-{bench.reads}"


def read_file(bench: Bench, side: Side) -> Path:
    """The side's file of the size that is read."""
    return bench.prepared(side, read_name(bench), lambda path: corpus.bulk_load(path, sessions(bench.reads)))


@contextmanager
def opened(bench: Bench, side: Side) -> Iterator[Any]:
    """A store on the read file."""
    store = side.open(read_file(bench, side))
    try:
        yield store
    finally:
        store.close()


def timed(bench: Bench, side: Side, call: Callable[[Any], Any]) -> Values:
    """Milliseconds of one call on the read file, after one that is not timed."""
    with opened(bench, side) as store:
        return repeated(lambda: call(store), MS)


_words: dict[Path, dict[str, str]] = {}


def words(bench: Bench, side: Side) -> dict[str, str]:
    """Words of the file by how many rows have them; the same for both sides.

    ``commonest`` is the most frequent of three ASCII letters or more, ``common``, ``middle`` and
    ``rare`` are the 10th, 100th and 1,000th (or last), ``single`` is in one row, ``start`` is the
    beginning of ``middle``; ``han``, ``han2`` and ``hangul`` are the most frequent trigrams.
    """
    read_file(bench, side)
    path = bench.workspace / f"{read_name(bench)}.db"  # as both were copied from it
    if path not in _words:
        _words[path] = _chosen_words(path)
    return _words[path]


def _chosen_words(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        latin = [
            term for term in _terms(conn, "messages_fts")
            if term.isascii() and term.isalpha() and len(term) > 2 and term not in ("and", "not")
        ]  # fmt: skip
        trigrams = _terms(conn, "messages_fts_trigram")
        han = [term for term in trigrams if all("\u4e00" <= letter <= "\u9fff" for letter in term)]
        hangul = [term for term in trigrams if all("\uac00" <= letter <= "\ud7a3" for letter in term)]
    return {
        "commonest": latin[0], "common": latin[9], "middle": latin[min(99, len(latin) // 2)],
        "rare": latin[min(999, len(latin) - 2)], "single": latin[-1],
        "start": latin[min(99, len(latin) // 2)][:3], "han": [*han, "考勤报"][0],
        "han2": [*han[1:], "数据库"][0], "hangul": [*hangul, "서울역"][0],
    }  # fmt: skip


def _terms(conn: sqlite3.Connection, table: str) -> list[str]:
    """The terms of a full-text table, those of most rows first."""
    conn.execute(f"CREATE VIRTUAL TABLE temp.terms_{table} USING fts5vocab(main, {table}, row)")
    return [term for (term,) in conn.execute(f"SELECT term FROM terms_{table} ORDER BY doc DESC, term")]


def _commonest(name: str, sort: str | None, most: float) -> None:
    @row(f"commonest word, {name}", "read", Measure("time", "ms", Goal(most=most)), short=True)
    def run(bench: Bench, side: Side) -> Values:
        word = words(bench, side)["commonest"]
        return timed(bench, side, lambda store: store.search_messages(word, sort=sort))


_commonest("rank", None, 0.8)
_commonest("newest", "newest", 0.05)
_commonest("oldest", "oldest", 0.05)


def _query(name: str, query: str, given: dict[str, Any]) -> None:
    @row(
        f"query: {name}", "read", Measure("time", "ms", Goal(most=1.0)), short=name in IN_SHORT_FORM
    )  # fmt: skip
    def run(bench: Bench, side: Side) -> Values:
        text = query.format_map(words(bench, side))
        return timed(bench, side, lambda store: store.search_messages(text, **given))


for _name, (_text, _given) in QUERIES.items():
    _query(_name, _text, _given)


@row("20 hits inside the long session, contexts included", "read", Measure("time", "ms", Goal(most=0.02)))
def hits_in_long_session(bench: Bench, side: Side) -> Values:
    # The long session is alone in a file, so that every hit lies in it.
    def build(path: Path) -> None:
        only = (session for session in sessions(bench.reads) if session["id"] == LONG)
        corpus.bulk_load(path, only)

    path = bench.prepared(side, f"long-{bench.reads}", build)
    store = side.open(path)
    try:
        return repeated(lambda: store.search_messages("error OR file", limit=20), MS)
    finally:
        store.close()


def _short_cjk(query: str) -> None:
    name = "one-character" if len(query) == 1 else "two-character"

    @row(f"{name} CJK: {query}", "read", Measure("time", "ms", Goal(most=0.05)), short=True)
    def run(bench: Bench, side: Side) -> Values:
        return timed(bench, side, lambda store: store.search_messages(query))


for _text in ("的", "桂", "酒店", "桂林"):
    _short_cjk(_text)


@row(
    "list_sessions_rich(order_by_last_active=True)",
    "read",
    Measure("time", "ms", Goal(most=0.10)),
    short=True,
)
def list_by_activity(bench: Bench, side: Side) -> Values:
    return timed(bench, side, lambda store: store.list_sessions_rich(order_by_last_active=True))


@row("search_sessions()", "read", Measure("time", "ms", Goal(most=0.15)), short=True)
def list_sessions(bench: Bench, side: Side) -> Values:
    return timed(bench, side, lambda store: store.search_sessions())


@row("get_messages, 5,000 messages", "read", Measure("time", "ms", Goal(most=0.40)), short=True)
def read_session(bench: Bench, side: Side) -> Values:
    return timed(bench, side, lambda store: store.get_messages(MIDDLE))


@row(
    "get_messages_as_conversation, 5,000 messages", "read", Measure("time", "ms", Goal(most=0.40)), short=True
)
def replay_session(bench: Bench, side: Side) -> Values:
    return timed(bench, side, lambda store: store.get_messages_as_conversation(MIDDLE))


def _in_the_middle(bench: Bench, side: Side, method: str) -> Values:
    with opened(bench, side) as store:
        ids = [message["id"] for message in store.get_messages(LONG)]
        middle = ids[len(ids) // 2]
        return repeated(lambda: getattr(store, method)(LONG, middle), MS)


@row("get_messages_around in the long session", "read", Measure("time", "ms", Goal(most=0.02)), short=True)
def around(bench: Bench, side: Side) -> Values:
    return _in_the_middle(bench, side, "get_messages_around")


@row("get_anchored_view in the long session", "read", Measure("time", "ms", Goal(most=0.02)), short=True)
def anchored(bench: Bench, side: Side) -> Values:
    return _in_the_middle(bench, side, "get_anchored_view")


@row("open and close of a current file", "read", Measure("time", "ms", Goal(most=0.6)), short=True)
def open_and_close(bench: Bench, side: Side) -> Values:
    path = read_file(bench, side)
    return repeated(lambda: side.open(path).close(), MS, least=5)


@row(
    "8 reader threads beside one writer", "read",
    Measure("reads", "reads/s", Goal(least=4.0), bound=False), short=True,
)  # fmt: skip
def read_beside_writer(bench: Bench, side: Side) -> Values:
    """Short replays by 8 threads while one appends without pause, on a copy of the file."""
    with bench.copied(read_file(bench, side)) as path:
        store = side.open(path)
        try:
            return {"reads": _reads_a_second(store, bench.scale(1, 3))}
        finally:
            store.close()


def _reads_a_second(store: Any, seconds: float) -> float:
    ids = [found["id"] for found in store.search_sessions(limit=60) if found["id"] not in (LONG, MIDDLE)]
    store.create_session("beside", "cli")
    stop = threading.Event()
    ready = threading.Barrier(READERS + 2)
    counts = [0] * READERS
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        ready.wait()
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failed.append(error)

    def read(number: int) -> None:
        store.get_messages_as_conversation(ids[(counts[number] + number) % len(ids)])
        counts[number] += 1

    def write() -> None:
        store.append_message("beside", "assistant", "an answer of ordinary length, written beside readers")

    pool = [
        threading.Thread(target=guarded, args=(lambda number=number: read(number),))
        for number in range(READERS)
    ]
    pool.append(threading.Thread(target=guarded, args=(write,)))
    for thread in pool:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in pool:
        thread.join()
    taken = time.perf_counter() - started
    if failed:
        raise failed[0]
    return sum(counts) / taken
