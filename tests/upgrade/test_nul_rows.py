"""Rows whose text holds a NUL: the stdlib's older SQLite and ours tokenize them differently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import elsewhere, peer_says, sound

from hermes_state import SessionDB

MARK = "\x00json:"


def _content(kind: str, number: int) -> str | bytes:
    parts = [{"type": "text", "text": f"hello list {number} 广西"}]
    return {
        "list": MARK + json.dumps(parts),
        "nul": f"hello before {number}\x00behind 广西",
        "short": f"h\x00hello {number} 广西",
        "blob": f"hello blob {number}\x00广西".encode(),
    }[kind]


def _v11_file(path: Path, kind: str, count: int = 3) -> None:
    """A file of the v11 program with messages of one kind, indexed by its triggers in the stdlib's SQLite."""
    peer_says(path, "open")
    elsewhere(
        path,
        f"INSERT INTO sessions(id, source, started_at, message_count) VALUES ('s', 'cli', 1, {count})",
        (
            "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)",
            [(_content(kind, number),) for number in range(count)],
        ),
    )


KINDS = ["list", "nul", "short", "blob"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trigram", ["all", "unspaced"])
def test_a_v11_file_of_nothing_but_such_rows_opens_and_is_searched(
    tmp_path: Path, kind: str, trigram: str
) -> None:
    path = tmp_path / "state.db"
    _v11_file(path, kind)
    with SessionDB(path, trigram=trigram) as db:
        assert len(db.search_messages("hello")) == 3
        assert len(db.search_messages("广西")) == 3
    assert len(sound(path)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_such_rows_are_deleted_while_they_are_as_v11_left_them(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        _v11_file(path, kind, 40)
        assert db.delete_session("s")
        assert db.search_messages("hello") == []
    assert sound(path) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_v11_deletes_and_updates_rows_that_ours_indexed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        _v11_file(path, kind)
        assert len(db.search_messages("广西")) == 3
        peer_says(path, "delete", "--id", 1)
        peer_says(path, "update", "--id", 2, "--content", "now something else")
        assert [hit["id"] for hit in db.search_messages("广西")] == [3]
        assert [hit["id"] for hit in db.search_messages("something")] == [2]
        elsewhere(path, "UPDATE sessions SET message_count = 2")
    assert sound(path) == {2, 3}


@pytest.mark.parametrize("kind", KINDS)
def test_other_programs_delete_such_rows_through_the_trigger_connection(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        _v11_file(path, kind)
        db._conn.execute("DELETE FROM messages WHERE id = 1")
        db._execute_write(lambda conn: conn.execute("DELETE FROM messages WHERE id = 2"))
        db._conn.execute("UPDATE sessions SET message_count = 1")
        assert [hit["id"] for hit in db.search_messages("广西")] == [3]
    assert sound(path) == {3}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM messages WHERE id = 2",
        "DELETE FROM messages WHERE id IN (1, 2, 3)",
        "DELETE FROM messages",
        "UPDATE messages SET token_count = 5 WHERE id = 2",
        "UPDATE messages SET content = 'something else' WHERE id >= 2",
    ],
)
def test_other_programs_write_rows_that_v11_updated_after_we_had_indexed_them(
    tmp_path: Path, kind: str, statement: str
) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_messages("s", [{"role": "user", "content": f"plain {n}"} for n in range(6)])
        assert len(db.search_messages("plain")) == 6
        db._conn.execute("SELECT 1").fetchone()
        rows = [(_content(kind, n), n) for n in (1, 2, 3)]
        elsewhere(path, ("UPDATE messages SET content = ? WHERE id = ?", rows))
        db._conn.execute(statement)
        db._conn.execute("UPDATE sessions SET message_count = (SELECT count(*) FROM messages)")
        left = {row[0] for row in db._conn.execute("SELECT id FROM messages")}
        changed = {
            row[0] for row in db._conn.execute("SELECT id FROM messages WHERE content LIKE 'something%'")
        }
        assert {hit["id"] for hit in db.search_messages("something", limit=-1)} == changed
        assert {hit["id"] for hit in db.search_messages("plain", limit=-1)} == left - {1, 2, 3} - changed
        assert db.check()["verdict"] in ("ok", "drift"), "v11's own form of a row is no damage"
    ids = sound(path)
    assert ids == left
