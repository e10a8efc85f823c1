"""The store against a simple model of it, over random sequences of calls.

The profile ``HYPOTHESIS_PROFILE=long`` tries many more, and other ones each time.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import matcher
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model_values import (
    ASKED,
    CHATS,
    COUNTS,
    DELETE_SQL,
    IDS,
    INSERT_SQL,
    MESSAGE,
    QUERIES,
    REASONS,
    SETTINGS,
    SOURCES,
    STAMPED,
    TEXT,
    TITLES,
    UPDATE_SQL,
    Session,
    calls_of,
    expected_fields,
)

from hermes_state import SessionDB


class StoreMachine(RuleBasedStateMachine):
    """Every rule makes one call (or a few) on the store and on the model."""

    @initialize(
        indexing=st.sampled_from(["background", "inline"]), trigram=st.sampled_from(["all", "unspaced"])
    )
    def begin(self, indexing: str, trigram: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.indexing, self.trigram = indexing, trigram
        self.sessions: dict[str, Session] = {}
        self.meta: dict[str, str] = {}
        self.topics: dict[tuple[str, str], str] = {}
        self.others: list[SessionDB] = []
        self.db = self.opened()
        for session_id, parent in (("a", None), ("ab", "a"), ("a_b", "ab")):
            self.create(session_id, "cli", None, parent)

    def opened(self) -> SessionDB:
        return SessionDB(self.folder / "state.db", indexing=self.indexing, trigram=self.trigram)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.everything()
            for query in ASKED:
                self.compare(query)
            for handle in (*self.others, self.db):
                handle.close()
            shutil.rmtree(self.folder)

    def session(self, session_id: str) -> Session:
        return self.sessions[session_id]

    # -- sessions

    @rule(
        session_id=IDS,
        source=SOURCES,
        model=st.sampled_from([None, "m", "n"]),
        parent=st.one_of(st.none(), IDS),
    )
    def create(self, session_id: str, source: str, model: str | None, parent: str | None) -> None:
        parent = parent if parent in self.sessions and parent != session_id else None
        assert self.db.create_session(session_id, source, model=model, parent_session_id=parent) == session_id
        known = self.sessions.setdefault(session_id, Session(source))
        known.source = source if known.source == "unknown" else known.source
        known.model = known.model or model
        known.parent = known.parent or parent

    def end(self, session_id: str, reason: str) -> None:
        self.db.end_session(session_id, reason)
        known = self.sessions.get(session_id)
        if known is not None and not known.ended:
            known.ended, known.end_reason = True, reason

    def reopen(self, session_id: str) -> None:
        self.db.reopen_session(session_id)
        if session_id in self.sessions:
            self.session(session_id).ended, self.session(session_id).end_reason = False, None

    def count_tokens(self, session_id: str, number: int | None, absolute: bool) -> None:
        self.db.update_token_counts(session_id, input_tokens=number, absolute=absolute)
        known = self.sessions.setdefault(session_id, Session("unknown"))
        known.tokens = (number or 0) + (0 if absolute else known.tokens)

    def set_title(self, session_id: str, title: str) -> None:
        wanted = self.db.sanitize_title(title)
        holder = next((i for i, s in self.sessions.items() if s.title == wanted and i != session_id), None)
        if session_id not in self.sessions:
            assert self.db.set_session_title(session_id, title) is False
        elif wanted is not None and holder is not None and holder not in self.continued_ancestors(session_id):
            with pytest.raises(ValueError, match="already in use"):
                self.db.set_session_title(session_id, title)
        else:
            assert self.db.set_session_title(session_id, title) is True
            if wanted is not None and holder is not None:
                self.session(holder).title = None
            self.session(session_id).title = wanted

    def number_title(self, session_id: str, title: str) -> None:
        if session_id not in self.sessions:
            with pytest.raises(LookupError):
                self.db.set_or_number_title(session_id, title)
            return
        got = self.db.set_or_number_title(session_id, title)
        assert got == title or got.startswith(f"{title} #")
        for other, known in self.sessions.items():
            if other != session_id and known.title == got:
                assert other in self.continued_ancestors(session_id)
                known.title = None
        self.session(session_id).title = got

    @rule(session_id=IDS, data=st.data(), what=st.sampled_from(["end", "reopen", "count", "title", "number"]))
    def change_session(self, session_id: str, data: st.DataObject, what: str) -> None:
        if what == "end":
            self.end(session_id, data.draw(REASONS))
        elif what == "reopen":
            self.reopen(session_id)
        elif what == "count":
            self.count_tokens(session_id, data.draw(COUNTS), data.draw(st.booleans()))
        elif what == "title":
            self.set_title(session_id, data.draw(TITLES))
        else:
            self.number_title(session_id, data.draw(st.sampled_from(["foo", "bar"])))

    # -- messages

    @rule(session_id=IDS, message=MESSAGE)
    def append(self, session_id: str, message: dict[str, Any]) -> None:
        if session_id not in self.sessions:
            with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
                self.db.append_message(session_id, **message)
            self.create(session_id, "cli", None, None)
        self.appended(session_id, [message], [self.db.append_message(session_id, **message)])

    @rule(session_id=IDS, messages=st.lists(st.one_of(MESSAGE, STAMPED), min_size=1, max_size=5))
    def append_batch(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        if session_id not in self.sessions:
            if messages:
                with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
                    self.db.append_messages(session_id, messages)
            self.create(session_id, "telegram", None, None)
        self.appended(session_id, messages, self.db.append_messages(session_id, messages))

    def appended(self, session_id: str, messages: list[dict[str, Any]], ids: list[int]) -> None:
        known = self.session(session_id)
        assert len(ids) == len(messages)
        found = self.db.get_messages(session_id)[len(known.messages) :]
        assert [row["id"] for row in found] == ids
        for row, message in zip(found, messages, strict=True):
            shown = expected_fields(message)
            assert {key: row[key] for key in shown} == shown
        known.messages += found
        known.counted += len(messages)
        known.calls += calls_of(messages)

    @rule(session_id=IDS, keep=st.integers(0, 6), messages=st.lists(st.one_of(MESSAGE, STAMPED), max_size=3))
    def replace(self, session_id: str, keep: int, messages: list[dict[str, Any]]) -> None:
        if session_id not in self.sessions:
            return
        known = self.session(session_id)
        head = known.messages[:keep]
        self.db.replace_messages(session_id, [*head, *messages])
        found = self.db.get_messages(session_id)
        assert found[: len(head)] == head
        assert len(found) == len(head) + len(messages)
        for row, message in zip(found[len(head) :], messages, strict=True):
            shown = expected_fields(message)
            assert {key: row[key] for key in shown} == shown
        known.messages = found
        known.counted, known.calls = len(found), calls_of(found)

    def clear(self, session_id: str) -> None:
        self.db.clear_messages(session_id)
        if session_id in self.sessions:
            known = self.session(session_id)
            known.messages, known.counted, known.calls = [], 0, 0

    # -- other programs' SQL

    @rule(
        session_id=IDS, text=TEXT, way=st.sampled_from(["insert", "update", "delete"]), inside=st.booleans()
    )
    def write_sql(self, session_id: str, text: str, way: str, inside: bool) -> None:
        if session_id not in self.sessions:
            return
        known = self.session(session_id)
        sql, params = {
            "insert": (INSERT_SQL, (session_id, text)),
            "update": (UPDATE_SQL, (text, session_id)),
            "delete": (DELETE_SQL, (session_id,)),
        }[way]
        if inside:
            self.db._execute_write(lambda conn: conn.execute(sql, params))
        else:
            self.db._conn.execute(sql, params)
        found = self.db.get_messages(session_id)
        if way == "insert":
            assert found[:-1] == known.messages
            assert found[-1]["content"] == text
        elif way == "update":
            shown = [{**row, "content": text} if row["role"] == "user" else row for row in known.messages]
            assert found == shown
        else:
            assert found == [row for row in known.messages if row["role"] != "tool"]
        known.messages = found

    # -- deletion

    @rule(session_id=IDS, what=st.sampled_from(["clear", "clear", "session", "conversation", "prune"]))
    def remove(self, session_id: str, what: str) -> None:
        if what == "clear":
            self.clear(session_id)
        elif what == "session":
            self.delete(session_id)
        elif what == "conversation":
            self.delete_conversation(session_id)
        else:
            self.prune()

    def delete(self, session_id: str) -> None:
        assert self.db.delete_session(session_id) is (session_id in self.sessions)
        self.gone([session_id])

    def delete_conversation(self, session_id: str) -> None:
        deleted = self.db.delete_conversation(session_id)
        assert set(deleted) <= set(self.sessions)
        assert (session_id in deleted) is (session_id in self.sessions)
        self.gone(deleted)

    def prune(self) -> None:
        rows = {session_id: self.db.get_session(session_id) for session_id in self.sessions}
        newest = {i: max((m["timestamp"] for m in s.messages), default=0.0) for i, s in self.sessions.items()}
        ended = {i for i, s in self.sessions.items() if s.ended}
        kept = set(self.sessions) - ended
        needed = set()
        for session_id in kept:
            needed |= set(self.continued_ancestors(session_id))
        wanted = ended - needed
        assert (
            max(newest.values(), default=0.0)
            < max((row["started_at"] for row in rows.values()), default=0.0) + 3600
        )
        assert set(self.db.prune_candidates(0)) == wanted
        assert self.db.prune_sessions(0) == len(wanted)
        self.gone(sorted(wanted))

    def gone(self, ids: list[str]) -> None:
        for session_id in ids:
            self.sessions.pop(session_id, None)
        for known in self.sessions.values():
            known.parent = None if known.parent in ids else known.parent
        self.topics = {topic: session for topic, session in self.topics.items() if session not in ids}

    def continued_ancestors(self, session_id: str) -> list[str]:
        """The ancestors that compression leads from to this session."""
        found: list[str] = []
        at = session_id
        while (parent := self.sessions[at].parent) is not None and parent not in found:
            above, below = self.db.get_session(parent), self.db.get_session(at)
            if above["end_reason"] != "compression" or below["started_at"] < above["ended_at"] - 1.0:
                break
            found.append(parent)
            at = parent
        return [ancestor for ancestor in found if ancestor != session_id]

    # -- handoff, topics, metadata

    @rule(session_id=IDS, data=st.data(), what=st.sampled_from(["handoff", "bind", "unbind", "meta"]))
    def beside_messages(self, session_id: str, data: st.DataObject, what: str) -> None:
        if what == "handoff":
            self.handoff(session_id, data.draw(st.sampled_from(["request", "claim", "complete", "fail"])))
        elif what == "bind":
            self.bind(data.draw(CHATS), data.draw(st.sampled_from(["10", "11"])), session_id)
        elif what == "unbind":
            self.unbind(data.draw(CHATS), data.draw(st.booleans()))
        else:
            self.set_meta(
                data.draw(st.sampled_from(["k", "l"])), data.draw(st.sampled_from(["", "1", "v\x00w"]))
            )

    def handoff(self, session_id: str, step: str) -> None:
        known = self.sessions.get(session_id)
        state = known.handoff["state"] if known is not None and known.handoff else None
        if step == "request":
            free = known is not None and state not in ("pending", "running")
            assert self.db.request_handoff(session_id, "telegram") is free
            changed = {"state": "pending", "platform": "telegram", "error": None} if free else None
        elif step == "claim":
            assert self.db.claim_handoff(session_id) is (state == "pending")
            changed = {**known.handoff, "state": "running"} if known and state == "pending" else None
        else:
            if state is None:
                return
            if step == "complete":
                self.db.complete_handoff(session_id)
            else:
                self.db.fail_handoff(session_id, "broken")
            changed = {
                **known.handoff,
                "state": f"{step}d".replace("faild", "failed"),
                "error": None if step == "complete" else "broken",
            }  # type: ignore[union-attr]
        if known is not None and changed is not None:
            known.handoff = changed

    def bind(self, chat: str, thread: str, session_id: str) -> None:
        def call() -> None:
            self.db.bind_telegram_topic(
                chat_id=chat, thread_id=thread, user_id="u", session_key="k", session_id=session_id
            )

        elsewhere = [
            topic
            for topic, session in self.topics.items()
            if session == session_id and topic != (chat, thread)
        ]
        if session_id not in self.sessions:
            with pytest.raises(sqlite3.IntegrityError):
                call()
        elif elsewhere:
            with pytest.raises(ValueError, match="already linked"):
                call()
        else:
            call()
            self.topics[chat, thread] = session_id

    def unbind(self, chat: str, clear: bool) -> None:
        self.db.disable_telegram_topic_mode(chat_id=chat, clear_bindings=clear)
        if clear:
            self.topics = {topic: session for topic, session in self.topics.items() if topic[0] != chat}

    def set_meta(self, key: str, value: str) -> None:
        self.db.set_meta(key, value)
        self.meta[key] = value

    # -- handles

    @rule(what=st.sampled_from(["background", "inline", "second", "first", "vacuum"]))
    def handles(self, what: str) -> None:
        if what == "second":
            self.second_handle()
        elif what == "vacuum":
            self.db.vacuum()
        elif what != "first":
            self.reopen_file(what)
        elif self.others:
            self.first_handle()

    def reopen_file(self, indexing: str) -> None:
        for handle in (*self.others, self.db):
            handle.close()
        self.others = []
        self.indexing = indexing
        self.db = self.opened()

    def second_handle(self) -> None:
        self.others.append(self.db)
        self.db = self.opened()

    def first_handle(self) -> None:
        self.db.close()
        self.db = self.others.pop()

    # -- what must be equal

    @rule(session_id=IDS, what=st.sampled_from(["lineage", "lists", "activity", "everything"]))
    def look(self, session_id: str, what: str) -> None:
        if what == "lineage":
            self.look_at_lineage(session_id)
        elif what == "everything":
            self.everything()
        else:
            self.look_at_lists(what == "activity")

    @rule(query=QUERIES, session_id=IDS, order=st.sampled_from([None, "newest", "oldest"]))
    def search(self, query: str, session_id: str, order: str | None) -> None:
        self.compare(query, session_id, order)
        self.compare(query)

    def compare(self, query: str, session_id: str | None = None, order: str | None = None) -> None:
        """The hits are those of the matcher over the rows as they are stored."""
        found = self.db.search_messages(query, limit=-1, sort=order, exclude_session_id=session_id)
        stored = self.db._conn.execute("SELECT * FROM messages ORDER BY id").fetchall()
        wanted = [
            (row["timestamp"], row["id"])
            for row in stored
            if row["session_id"] != session_id
            and matcher.matches(
                query, matcher.searchable(row["content"], row["tool_name"], row["tool_calls"])
            )
        ]
        assert sorted(hit["id"] for hit in found) == [row_id for _, row_id in wanted], query
        if order is not None:
            ordered = [row_id for _, row_id in sorted(wanted, reverse=order == "newest")]
            assert [hit["id"] for hit in found] == ordered
        for hit in found:
            assert [part["role"] for part in hit["context"]] == self.neighbours(hit["session_id"], hit["id"])

    def neighbours(self, session_id: str, message_id: int) -> list[str]:
        rows = self.session(session_id).messages
        place = next(i for i, row in enumerate(rows) if row["id"] == message_id)
        return [row["role"] for row in rows[max(0, place - 1) : place + 2]]

    def look_at_lineage(self, session_id: str) -> None:
        if session_id in self.sessions:
            line = [row["id"] for row in self.db.get_lineage(session_id)]
            walked, at = [session_id], self.session(session_id).parent
            while at is not None and at not in walked:
                walked.append(at)
                at = self.session(at).parent
            assert line == walked
            tip = self.db.get_compression_tip(session_id)
            assert tip == session_id or session_id in self.continued_ancestors(tip)
            whole = self.db.get_messages_as_conversation(session_id, include_ancestors=True)
            assert len(whole) <= sum(len(self.session(link).messages) for link in walked)
        else:
            assert self.db.get_lineage(session_id) == []

    def look_at_lists(self, by_activity: bool) -> None:
        every = self.db.list_sessions_rich(limit=-1, include_children=True, order_by_last_active=by_activity)
        assert {row["id"] for row in every} == set(self.sessions)
        key = "last_active" if by_activity else "started_at"
        assert [row[key] for row in every] == sorted((row[key] for row in every), reverse=True)
        shown = self.db.list_sessions_rich(limit=-1, order_by_last_active=by_activity)
        roots = {i for i, s in self.sessions.items() if s.parent is None}
        listed = {row.get("_lineage_root_id", row["id"]) for row in shown}
        assert roots <= listed
        assert {row["id"] for row in self.db.search_sessions(limit=-1)} == set(self.sessions)

    def everything(self) -> None:
        exported = {session["id"]: session for session in json.loads(json.dumps(self.db.export_all()))}
        assert set(exported) == set(self.sessions)
        for session_id, known in self.sessions.items():
            assert exported[session_id]["messages"] == known.messages
            assert self.db.get_messages(session_id) == known.messages
            assert self.db.get_handoff_state(session_id) == known.handoff
            assert len(self.db.get_messages_as_conversation(session_id)) == len(known.messages)
        for key in ("k", "l"):
            assert self.db.get_meta(key) == self.meta.get(key)
        bound = {
            (row["chat_id"], row["thread_id"]): row["session_id"]
            for chat in ("1", "2")
            for row in self.db.list_telegram_topic_bindings_for_chat(chat_id=chat)
        }
        assert bound == self.topics

    @invariant()
    def counters_and_columns(self) -> None:
        if not hasattr(self, "db"):
            return
        assert self.db.session_count() == len(self.sessions)
        assert self.db.message_count() == sum(len(known.messages) for known in self.sessions.values())
        for session_id, known in self.sessions.items():
            row = self.db.get_session(session_id)
            assert row is not None
            shown = (
                "source",
                "model",
                "parent_session_id",
                "end_reason",
                "title",
                "message_count",
                "tool_call_count",
                "input_tokens",
            )
            assert tuple(row[name] for name in shown) == (
                known.source, known.model, known.parent, known.end_reason, known.title, known.counted,
                known.calls, known.tokens,
            )  # fmt: skip
            assert (row["ended_at"] is not None) is known.ended


TestStore = StoreMachine.TestCase
TestStore.settings = SETTINGS
