"""Random deletions, indexing and forgetting against a brute-force look at the rows."""

from __future__ import annotations

import json
from typing import Any

import apsw
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from search_store import add, hits, session, set_triggers, store

from hermes_state.search import forgetting, health, indexing, tables

WORDS = ["docker", "广西", "修改youer服务端", "西", "podman"]
TABLES = (tables.FTS, tables.TRIGRAM, tables.WORDS)
PLACES = st.lists(st.integers(0, 60), min_size=1, max_size=8)
MARKED = [*WORDS, "youer"]


class Forgetting(RuleBasedStateMachine):
    """One store; messages are chosen by their place among those that stand, or that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.conn = store()
        session(self.conn, "t", "telegram")
        self.texts: dict[int, str] = {}
        self.gone: list[int] = []
        self.clock = 0

    def teardown(self) -> None:
        while indexing.index_step(self.conn, 50) or forgetting.step(self.conn, 50):
            pass
        assert forgetting.complete(self.conn)
        assert forgetting.count(self.conn) == 0
        for table in TABLES:
            self.conn.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
            indexed = {row_id for (row_id,) in self.conn.execute(f"SELECT id FROM {table}_docsize")}
            mixed = {row_id for row_id, text in self.texts.items() if "youer" in text}
            assert indexed == (mixed if table == tables.WORDS else set(self.texts))
        self.conn.close()

    def store(self, text: str, row_id: int | None = None) -> int:
        self.clock += 1
        chosen = "t" if self.clock % 3 else "s"
        stamp = float(self.clock * 7 % 31)
        new = add(self.conn, text, session_id=chosen, timestamp=stamp, row_id=row_id)
        self.texts[new] = text
        return new

    @rule(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), by_triggers=st.booleans())
    def append(self, words: list[str], by_triggers: bool) -> None:
        set_triggers(self.conn, by_triggers)
        self.store(" ".join(words))
        set_triggers(self.conn, False)

    @rule(rows=st.integers(1, 9))
    def index(self, rows: int) -> None:
        indexing.index_step(self.conn, rows)

    @rule(rows=st.integers(1, 9))
    def forget(self, rows: int) -> None:
        forgetting.step(self.conn, rows)

    @rule(places=PLACES, later=st.booleans())
    def delete(self, places: list[int], later: bool) -> None:
        standing = sorted(self.texts)
        ids = sorted({standing[place] for place in places if place < len(standing)})
        (forgetting.defer if later else indexing.forget)(self.conn, ids)
        self.conn.execute(
            "DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),)
        )
        self.gone += ids
        for row_id in ids:
            del self.texts[row_id]

    @rule(place=st.integers(0, 60), word=st.sampled_from(WORDS))
    def give_an_id_again(self, place: int, word: str) -> None:
        """As an import does with the ids of its file."""
        if place >= len(self.gone):
            return
        row_id = self.gone.pop(place)
        if row_id in self.texts:
            return
        self.store(f"{word} again", row_id)
        forgetting.settle(self.conn, [row_id])
        if row_id <= tables.watermark(self.conn):
            indexing.index_rows(self.conn, [row_id])

    @rule(place=st.integers(0, 60))
    def insert_by_triggers(self, place: int) -> None:
        """Another program gives an id of its own: it fails as long as the entry stands, or all is right."""
        if place >= len(self.gone) or self.gone[place] in self.texts:
            return
        set_triggers(self.conn, True)
        self.conn.execute("SAVEPOINT other")
        try:
            self.store("docker other", self.gone[place])
        except apsw.ConstraintError:
            assert not forgetting.complete(self.conn)
        finally:
            self.conn.execute("RELEASE other")
            set_triggers(self.conn, False)

    @rule()
    def start_anew(self) -> None:
        indexing.reset(self.conn)

    def found(self, query: str, **filters: Any) -> list[int]:
        return hits(self.conn, query, **filters)

    @invariant()
    def searches_are_exact(self) -> None:
        for word in MARKED:
            expected = {row_id for row_id, text in self.texts.items() if word in text}
            for sort in (None, "newest", "oldest"):
                assert sorted(self.found(word, sort=sort)) == sorted(expected), (word, sort)
        both = {i for i, text in self.texts.items() if "docker" in text and "广西" in text}
        assert set(self.found("docker 广西")) == both
        whole = self.found("docker", sort="newest")
        for at in range(0, 60, 3):
            assert self.found("docker", limit=3, offset=at, sort="newest") == whole[at : at + 3]
        ranked = [row_id for at in range(0, 60, 3) for row_id in self.found("docker", limit=3, offset=at)]
        assert sorted(ranked) == sorted(whole[:60]) or len(whole) > 60

    @invariant()
    def what_is_listed_is_no_surplus(self) -> None:
        for table in TABLES:
            assert health.surplus(self.conn, table, -(2**63))[2] == []


TestForgetting = Forgetting.TestCase
TestForgetting.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
