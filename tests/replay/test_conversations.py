"""Real conversations go through the store and back with nothing changed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import corpus
import pytest

MODES = ["background", "inline"]
PIECE = 1_000
"""Messages of a session that one `append_messages` takes."""


def given(message: dict[str, Any]) -> dict[str, Any]:
    return corpus.replace_dict(message)


def check(stored: dict[str, Any], message: dict[str, Any]) -> None:
    """That ``stored`` is ``message`` in every column that the message has, and empty in the others."""
    for key in corpus.APPEND_KEYS:
        value = message.get(key)
        if key == "tool_calls":
            value = value or None
        assert stored[key] == value, (stored["session_id"], stored["id"], key)
        assert type(stored[key]) is type(value)
    if message.get("timestamp"):
        assert stored["timestamp"] == corpus.epoch(message["timestamp"])


def calls(messages: list[dict[str, Any]]) -> int:
    return sum(len(message.get("tool_calls") or ()) for message in messages)


def open_session(db: Any, session: dict[str, Any]) -> None:
    db.create_session(
        session["id"], session["source"], **({"model": session["model"]} if session.get("model") else {})
    )


@pytest.fixture(params=MODES)
def db(request: pytest.FixtureRequest, make_db: Any) -> Any:
    """A store in each way of indexing."""
    return make_db(indexing=request.param)


@pytest.mark.slow
def test_every_session_comes_back_as_it_went_in(db: Any) -> None:
    sessions = list(corpus.sessions("all"))
    for session in sessions:
        open_session(db, session)
        messages = [given(message) for message in session["messages"]]
        for start in range(0, len(messages), PIECE):
            db.append_messages(session["id"], messages[start : start + PIECE])
    total = sum(len(session["messages"]) for session in sessions)
    assert db.session_count() == len(sessions)
    assert db.message_count() == total
    for session in sessions:
        stored = db.get_messages(session["id"])
        assert len(stored) == len(session["messages"])
        for row, message in zip(stored, session["messages"], strict=True):
            check(row, message)
        counted = db.get_session(session["id"])
        assert counted["message_count"] == len(stored)
        assert counted["tool_call_count"] == calls(session["messages"])


SLICE = [*("agent",) * 20, *("cjk",) * 12, *("odd",) * 12]


def sliced() -> Iterator[dict[str, Any]]:
    """Some sessions of each file, not the first ones alone: every tenth, shortened to 25 messages."""
    for name in ("agent", "cjk", "odd"):
        every = list(corpus.sessions(name, 300 if name != "odd" else 150))
        for session in every[:: max(1, len(every) // SLICE.count(name))][: SLICE.count(name)]:
            yield {**session, "id": f"{name}-{session['id']}", "messages": session["messages"][:25]}


def test_messages_appended_one_by_one_are_read_by_every_reader(db: Any) -> None:
    for session in sliced():
        open_session(db, session)
        ids = [
            db.append_message(session["id"], **corpus.message_kwargs(message))
            for message in session["messages"]
        ]
        stored = db.get_messages(session["id"])
        assert [row["id"] for row in stored] == ids
        for row, message in zip(stored, session["messages"], strict=True):
            check(row, {key: value for key, value in message.items() if key != "timestamp"})
        replay = db.get_messages_as_conversation(session["id"])
        assert [(part["role"], part.get("tool_call_id"), part.get("tool_calls")) for part in replay] == [
            (message["role"], message.get("tool_call_id") or None, message.get("tool_calls") or None)
            for message in session["messages"]
        ]
        for part, message in zip(replay, session["messages"], strict=True):
            content = message["content"]
            if isinstance(content, str) and message["role"] in ("user", "assistant"):
                content = content.strip()
            assert part["content"] == content
        exported = json.loads(json.dumps(db.export_session(session["id"])))
        assert exported["messages"] == stored
        assert exported["message_count"] == len(stored)
        if ids:
            middle = ids[len(ids) // 2]
            window = db.get_messages_around(session["id"], middle, window=3)["window"]
            assert window == [
                row for row in stored if row["id"] in ids[max(0, len(ids) // 2 - 3) : len(ids) // 2 + 4]
            ]
    assert json.dumps(db.export_all())


def test_replacing_what_was_read_changes_nothing_at_all(db: Any) -> None:
    for session in sliced():
        open_session(db, session)
        db.append_messages(session["id"], [given(message) for message in session["messages"]])
    before = raw(db)
    for session in sliced():
        db.replace_messages(session["id"], db.get_messages(session["id"]))
        db.replace_messages(session["id"], db.export_session(session["id"])["messages"])
    assert raw(db) == before


def test_replacing_with_the_conversation_as_it_was_given_keeps_its_head(db: Any) -> None:
    for session in sliced():
        open_session(db, session)
        messages = [given(message) for message in session["messages"]]
        db.append_messages(session["id"], messages)
        ids = [row["id"] for row in db.get_messages(session["id"])]
        db.replace_messages(session["id"], [*messages, {"role": "user", "content": "one more"}])
        found = db.get_messages(session["id"])
        assert [row["id"] for row in found[:-1]] == ids
        assert found[-1]["content"] == "one more"


def raw(db: Any) -> list[tuple[Any, ...]]:
    """Every column of every message and session as it is stored."""
    return [
        tuple(row)
        for sql in ("SELECT * FROM messages ORDER BY id", "SELECT * FROM sessions ORDER BY id")
        for row in db._conn.execute(sql)
    ]


WORD = re.compile(r"[A-Za-z]{4,}")
RUN = re.compile("[\u4e00-\u9fff\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3]+")


def rarest(text: str, counts: Counter[str]) -> str | None:
    """The word of ``text`` that the fewest messages of the slice have."""
    found = set(WORD.findall(text))
    return min(found, key=lambda word: (counts[word.lower()], word)) if found else None


def test_each_message_is_found_by_its_own_rarest_word(db: Any) -> None:
    for session in sliced():
        open_session(db, session)
        db.append_messages(session["id"], [given(message) for message in session["messages"]])
    texts = {
        row["id"]: row["content"]
        for session in sliced()
        for row in db.get_messages(session["id"])
        if isinstance(row["content"], str) and row["content"].isprintable() and len(row["content"]) < 100_000
    }
    counts = Counter(word.lower() for text in texts.values() for word in set(WORD.findall(text)))
    asked = 0
    for message_id, text in list(texts.items())[::3]:
        if (word := rarest(text, counts)) and re.search(rf"(?<!\w){word}(?!\w)", text):
            assert message_id in {hit["id"] for hit in db.search_messages(word, limit=-1)}, word
            asked += 1
        for run in RUN.findall(text)[:1]:
            for term in {run[:1], run[:2], run[-3:]}:
                assert message_id in {hit["id"] for hit in db.search_messages(term, limit=-1)}, term
                asked += 1
    assert asked > 40


def test_a_store_that_was_closed_gives_the_same_again(db: Any, make_db: Any) -> None:
    for session in sliced():
        open_session(db, session)
        db.append_messages(session["id"], [given(message) for message in session["messages"]])
    before = db.export_all()
    db.close()
    assert make_db().export_all() == before
