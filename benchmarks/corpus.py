"""Conversations of a wanted size for benchmarks, and a fast loader of them into a v11 file.

Real conversations from ``../shared/data`` beside the repository, repeated with
fresh ids; where they are absent, generated text of a fixed seed with the same
lengths and roles. Stdlib only.
"""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

from .reference_base import INDEXED, SCHEMA_SQL, SCHEMA_VERSION, fts_sql

Session = dict[str, Any]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SIZES = {"S": 10_000, "M": 50_000, "L": 160_000}  # messages
LONG_SESSION = 20_000  # messages of the one long session in L
#: Files by kind; "mixed" is all three in turn of 20 sessions each, so that a prefix is mixed too.
FILES = {
    "english": ("agent_sessions.jsonl.gz",),
    "cjk": ("cjk_sessions.jsonl.gz",),
    "mixed": ("agent_sessions.jsonl.gz", "cjk_sessions.jsonl.gz", "odd_messages.jsonl.gz"),
}
EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z: the first session's start where none is recorded
SOURCES = ("cli", "telegram", "discord", "cron")


def build(size: str | int = "S", kind: str = "mixed") -> Iterator[Session]:
    """Sessions with exactly ``size`` messages in all: "S", "M", "L" or a number.

    A session is ``{"id", "source", "model", "title", "started_at", "messages"}``
    with ``started_at`` in Unix seconds and titles unique. A message has only
    keys that ``append_message`` takes, and ``timestamp`` in Unix seconds.
    Size "L" has one session of 20,000 messages, id ``bench-long``, at its end.
    """
    total = SIZES[size] if isinstance(size, str) else size
    long = LONG_SESSION if size == "L" else 0
    left = total - long
    for number, session in enumerate(_repeated(kind)):
        if left <= 0:
            break
        messages = session["messages"][:left]
        left -= len(messages)
        yield _fresh(session, f"bench-{number:06d}", number, messages)
    if long:
        endless = chain.from_iterable(session["messages"] for session in _repeated(kind))
        yield _fresh({}, "bench-long", total, list(islice(endless, long)))


def _fresh(session: Session, name: str, number: int, messages: list[Session]) -> Session:
    """The session under another id, with a source, a start and times a few seconds apart."""
    start = EPOCH + 600.0 * number
    return {
        "id": name,
        "source": SOURCES[number % len(SOURCES)],
        "model": session.get("model"),
        "title": f"{(session.get('title') or 'Conversation')[:80]} ({number})",
        "started_at": start,
        "messages": [{**message, "timestamp": start + 3.0 * place} for place, message in enumerate(messages)],
    }


def _repeated(kind: str) -> Iterator[Session]:
    """The sessions of a kind again and again, without end."""
    if not all((SHARED / name).is_file() for name in FILES[kind]):
        yield from _generated(kind)
        return
    while True:
        files = [_read(name) for name in FILES[kind]]
        while files:
            alive = []
            for sessions in files:
                few = list(islice(sessions, 20))
                yield from few
                if few:
                    alive.append(sessions)
            files = alive


def _read(name: str) -> Iterator[Session]:
    kept = ("role", "content", "tool_calls", "tool_call_id", "tool_name", "reasoning", "finish_reason")
    with gzip.open(SHARED / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            session = json.loads(line)
            session["messages"] = [
                {key: message[key] for key in kept if key in message} for message in session["messages"]
            ]
            yield session


# Generated text, where the data are absent

_ENGLISH = """
the to of and a in is it that for on with we this be can error file run docker test build please not
you i from deploy server change python add function check log config database command path data list
call return value user name start line message should have timeout version image container kubernetes
update branch review retry cache index search query session token network memory thread process schema
"""
_SYLLABLES = "ka lo mi tren por sel vu dar nik os tal rem ba quin ster lam"
_CJK = {
    "chinese": "的一是在我有和就不人这了中大来上国个到说们为子会也那要广西桂林报告考勤酒店数据服务端计划"
    "修改天气预订酒饭时间项目",
    "japanese": "のにをはがとでもしてたいすまこれそあどホテル京都予約駅料金朝食付き"
    "近場所会議資料検索関数確認東山",
    "korean": "이가은는을를에의로와서울부산역기차예약회의배포검색확인요약"
    "오늘내일시간추천해주세요있습니다그리고하지만",
}


def _generated(kind: str) -> Iterator[Session]:
    chance = random.Random(20_260_101)
    words = _vocabulary(chance)
    weights = list(accumulate(1.0 / rank for rank in range(1, len(words) + 1)))  # Zipf's law, exponent 1
    languages = {"english": ("english",), "cjk": tuple(_CJK)}.get(kind, ("english", "english", *_CJK))
    number = 0
    while True:
        language = chance.choice(languages)
        length = min(400, max(2, int(chance.lognormvariate(2.4, 0.9))))
        messages = list(islice(_conversation(chance, language, words, weights), length))
        yield {"id": f"gen-{number}", "title": f"Generated {language}", "messages": messages}
        number += 1


def _vocabulary(chance: random.Random) -> list[str]:
    """Common words, then 8,000 rarer ones put together from syllables."""
    parts = _SYLLABLES.split()
    rare = ("".join(chance.choices(parts, k=chance.randint(2, 4))) for _ in range(8000))
    return list(dict.fromkeys((*_ENGLISH.split(), *rare)))


def _conversation(
    chance: random.Random, language: str, words: list[str], weights: list[float]
) -> Iterator[Session]:
    number = 0
    while True:
        number += 1
        yield {"role": "user", "content": _text(chance, language, words, weights, 3.4)}
        if chance.random() < 0.6:
            arguments = json.dumps({"q": _text(chance, language, words, weights, 2.5)}, ensure_ascii=False)
            function = {"name": "terminal", "arguments": arguments}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            yield {"role": "assistant", "content": None, "tool_calls": [call], "finish_reason": "tool_calls"}
            result = _text(chance, language, words, weights, 4.6)
            yield {
                "role": "tool",
                "content": result,
                "tool_call_id": f"call_{number}",
                "tool_name": "terminal",
            }
        yield {
            "role": "assistant",
            "content": _text(chance, language, words, weights, 4.4),
            "finish_reason": "stop",
        }


def _text(chance: random.Random, language: str, words: list[str], weights: list[float], scale: float) -> str:
    """Text of about ``e ** scale`` words (or three times as many unspaced characters, at most 4,000)."""
    count = min(4000, max(2, int(chance.lognormvariate(scale, 0.8))))
    if language == "english":
        return " ".join(chance.choices(words, cum_weights=weights, k=count)) + "."
    letters = _CJK[language]
    run = chance.choices(
        letters, cum_weights=list(accumulate(1.0 / (4 + n) for n in range(len(letters)))), k=count
    )
    gap = " " if language == "korean" else ","
    return gap.join("".join(run[place : place + 7]) for place in range(0, count, 7)) + "。"


# The loader


def bulk_load(path: str | Path, sessions: Iterable[Session]) -> int:
    """Write the sessions into a new v11 file, both indexes filled and triggers made; the number of messages.

    The file is left in WAL mode and checkpointed. Rows are as ``append_message``
    of v11 writes them. Raises sqlite3.OperationalError where the file has messages.
    """
    conn = sqlite3.connect(str(path), isolation_level=None)
    try:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute("PRAGMA synchronous=OFF")  # only while loading; a setting of this connection
        conn.execute("PRAGMA cache_size=-65536")
        conn.executescript(SCHEMA_SQL)
        if conn.execute("SELECT 1 FROM messages LIMIT 1").fetchone():
            raise sqlite3.OperationalError(f"{path} has messages already")
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("INSERT INTO schema_version SELECT ? WHERE NOT EXISTS (SELECT 1 FROM schema_version)",
                     (SCHEMA_VERSION,))  # fmt: skip
        for session in sessions:
            _load(conn, session)
        total = int(conn.execute("SELECT count(*) FROM messages").fetchone()[0])
        for name in ("messages_fts", "messages_fts_trigram"):
            table, triggers = fts_sql(name)
            conn.execute(table)
            conn.execute(f"INSERT INTO {name}(rowid, content) SELECT id, {INDEXED.format('')} FROM messages")
            for trigger in triggers.split("END;")[:-1]:
                conn.execute(f"{trigger}END;")
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        conn.close()
    return total


def _load(conn: sqlite3.Connection, session: Session) -> None:
    messages = session["messages"]
    calls = sum(len(message.get("tool_calls") or ()) for message in messages)
    start = _seconds(session.get("started_at"), EPOCH)
    row = (session["id"], session["source"], session.get("model"), start, len(messages), calls)
    conn.execute(
        "INSERT INTO sessions (id, source, model, started_at, message_count, tool_call_count, title)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*row, session.get("title")),
    )
    conn.executemany(
        "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp,"
        " finish_reason, reasoning) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                session["id"],
                message["role"],
                _stored(message.get("content")),
                message.get("tool_call_id"),
                json.dumps(message["tool_calls"]) if message.get("tool_calls") else None,
                message.get("tool_name"),
                _seconds(message.get("timestamp"), start + place),
                message.get("finish_reason"),
                message.get("reasoning"),
            )
            for place, message in enumerate(messages)
        ),
    )


def _stored(content: Any) -> Any:
    return "\x00json:" + json.dumps(content) if isinstance(content, (list, dict)) else content


def _seconds(given: Any, otherwise: float) -> float:
    """Unix seconds from a number or an ISO 8601 text without or with a zone."""
    if isinstance(given, str):
        when = datetime.fromisoformat(given)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return otherwise if given is None else float(given)
