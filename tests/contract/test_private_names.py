"""Private names that other programs and their tests use, as section 3 and 4 of the contract have them."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any
from unittest import mock

import pytest

from hermes_state import SessionDB


@pytest.fixture
def s(any_db: Any) -> Any:
    """A store in every mode, with a session ``s`` of three messages."""
    any_db.create_session("s", "cli", model="m")
    any_db.append_messages("s", [{"role": "user", "content": f"docker {i} 部署"} for i in range(3)])
    return any_db


def ids(db: Any, query: str = "docker") -> set[int]:
    return {hit["id"] for hit in db.search_messages(query, limit=-1)}


# -- _conn


def test_rows_are_read_by_name_index_slice_and_as_dicts(s: Any) -> None:
    row = s._conn.execute("SELECT id, source AS Src, model FROM sessions WHERE id = ?", ("s",)).fetchone()
    assert (row["id"], row["Src"], row["src"], row[2], row[-1]) == ("s", "cli", "cli", "m", "m")
    assert row[0:2] == ("s", "cli")
    assert list(row.keys()) == ["id", "Src", "model"]
    assert dict(row) == {"id": "s", "Src": "cli", "model": "m"}
    assert len(row) == 3
    one, two, three = row
    assert (one, two, three) == tuple(row) == ("s", "cli", "m")
    with pytest.raises(IndexError):
        row["nothing"]
    with pytest.raises(IndexError):
        row[3]
    assert "cli" in list(row)


def test_cursors_fetch_one_many_all_and_by_iteration(s: Any) -> None:
    sql = "SELECT id FROM messages ORDER BY id"
    cursor = s._conn.execute(sql)
    assert cursor.fetchone()["id"] == 1
    assert [row[0] for row in cursor.fetchmany(1)] == [2]
    assert [row[0] for row in cursor.fetchall()] == [3]
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []
    assert [row[0] for row in s._conn.execute(sql)] == [1, 2, 3]
    assert [row["id"] for row in s._conn.cursor().execute(sql)] == [1, 2, 3]
    assert [column[0] for column in s._conn.execute(sql).description] == ["id"]
    assert [column[0] for column in s._conn.execute("SELECT 1 AS a, 2 AS b WHERE 0").description] == [
        "a",
        "b",
    ]


def test_rowcount_lastrowid_and_description_are_those_of_the_stdlib(s: Any) -> None:
    inserted = s._conn.execute("INSERT INTO messages(session_id, role, timestamp) VALUES ('s', 'user', 1.0)")
    assert (inserted.rowcount, inserted.lastrowid) == (1, 4)
    assert inserted.description is None
    assert s._conn.execute("UPDATE messages SET token_count = 1 WHERE id > 1").rowcount == 3
    assert s._conn.execute("UPDATE messages SET token_count = 1 WHERE id > 100").rowcount == 0
    assert s._conn.execute("DELETE FROM messages WHERE id = 4").rowcount == 1
    assert s._conn.execute("SELECT 1").rowcount == -1
    assert s._conn.execute("/* a */ -- b\n UPDATE messages SET token_count = 2").rowcount == 3


def test_parameters_may_be_a_list_a_tuple_or_a_dict(s: Any) -> None:
    for params in (["s"], ("s",)):
        assert (
            s._conn.execute("SELECT COUNT(*) FROM messages WHERE session_id = ?", params).fetchone()[0] == 3
        )
    sql = "SELECT COUNT(*) FROM messages WHERE session_id = :id"
    assert s._conn.execute(sql, {"id": "s", "more": 1}).fetchone()[0] == 3
    for wrong in (("s", "t"), ()):
        with pytest.raises(sqlite3.ProgrammingError):
            s._conn.execute("SELECT ?", wrong)


def test_executemany_and_executescript(s: Any) -> None:
    many = s._conn.executemany("INSERT INTO state_meta(key, value) VALUES (?, ?)", [("a", "1"), ("b", "2")])
    assert many.rowcount == 2
    with pytest.raises(sqlite3.IntegrityError):
        s._conn.executemany("INSERT INTO state_meta(key, value) VALUES (?, ?)", [("c", "3"), ("a", "4")])
    assert (s.get_meta("a"), s.get_meta("c")) == ("1", None)
    s._conn.executescript(
        "CREATE TABLE other(x); INSERT INTO other VALUES (1); INSERT INTO other VALUES (2);"
        " INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', 'scripted', 1);"
    )
    assert s._conn.execute("SELECT SUM(x) FROM other").fetchone()[0] == 3
    assert len(ids(s, "scripted")) == 1


def test_commit_and_rollback_do_nothing_outside_a_transaction(s: Any) -> None:
    s._conn.execute("UPDATE sessions SET model = 'n'")
    s._conn.rollback()
    assert s.get_session("s")["model"] == "n"
    s._conn.commit()
    s._conn.commit()
    with s._conn:
        s._conn.execute("UPDATE sessions SET model = 'o'")
    assert s.get_session("s")["model"] == "o"


def test_a_transaction_of_its_own_is_seen_by_others_once_it_is_committed(s: Any) -> None:
    s._conn.execute("BEGIN IMMEDIATE")
    assert s._conn.in_transaction
    s._conn.execute("UPDATE messages SET content = 'kubernetes' WHERE id = 1")
    assert s.get_messages("s")[0]["content"] == "docker 0 部署"
    s._conn.execute("COMMIT")
    assert not s._conn.in_transaction
    assert ids(s, "kubernetes") == {1}
    assert ids(s) == {2, 3}
    s._conn.execute("BEGIN")
    s._conn.execute("UPDATE messages SET content = 'gone'")
    s._conn.rollback()
    assert ids(s) == {2, 3}
    assert ids(s, "gone") == set()


def test_what_is_written_through_it_is_found_through_both_indexes(s: Any) -> None:
    new = s._conn.execute(
        "INSERT INTO messages(session_id, role, content, timestamp)"
        " VALUES ('s', 'user', '修改youer服务端 docker', 1)"
    ).lastrowid
    assert ids(s, "youer") == ids(s, "服务端") == ids(s, "服务") == {new}
    s._conn.execute("UPDATE messages SET content = '别的 podman' WHERE id = ?", (new,))
    assert ids(s, "youer") == ids(s, "服务端") == set()
    assert ids(s, "podman") == ids(s, "别的") == {new}
    s._conn.execute("DELETE FROM messages WHERE id = ?", (new,))
    assert ids(s, "podman") == set()
    assert ids(s) == {1, 2, 3}
    marked = (
        "\x00json:" + '[{"type": "text", "text": "inside"}, {"type": "image_url", "image_url": {"url": "u"}}]'
    )
    listed = s._conn.execute(
        "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)", (marked,)
    ).lastrowid
    assert ids(s, "inside") == {listed}
    assert ids(s, "image_url") == set()


def test_what_was_appended_before_is_in_the_indexes_by_the_time_it_runs(s: Any) -> None:
    for number in range(3):
        new = s.append_message("s", "user", f"fresh{number}")
        row = s._conn.execute(
            "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?", (f"fresh{number}",)
        ).fetchone()
        assert row[0] == new


def test_its_identity_is_stable_and_it_may_be_used_from_any_thread_with_and_without_the_lock(s: Any) -> None:
    conn = s._conn
    errors: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            barrier.wait(300)
            for turn in range(15):
                if number % 2:
                    with s._lock:
                        s._conn.execute("UPDATE sessions SET model = ? WHERE id = 's'", (f"{number}-{turn}",))
                        assert s._conn.execute("SELECT COUNT(*) FROM messages").fetchone()[0] >= 3
                else:
                    assert len(s._conn.execute("SELECT * FROM messages ORDER BY id").fetchmany(2)) == 2
                    s.append_message("s", "user", f"thread {number}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert errors == []
    assert s._conn is conn
    assert s.message_count("s") == 3 + 45
    assert len(ids(s, "thread")) == 45


def test_no_statement_is_left_half_stepped(s: Any) -> None:
    half = s._conn.execute("SELECT id FROM messages ORDER BY id")
    assert half.fetchone()[0] == 1
    s.append_message("s", "user", "in between")
    s.vacuum()
    s._conn.execute("CREATE TABLE other(x)")
    s._conn.execute("DROP TABLE other")
    assert [row[0] for row in half] == [2, 3]


def test_its_errors_are_those_of_the_stdlib(s: Any) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table: absent"):
        s._conn.execute("SELECT * FROM absent")
    with pytest.raises(sqlite3.OperationalError, match="syntax error"):
        s._conn.execute("SELEC 1")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY constraint failed"):
        s._conn.execute("INSERT INTO messages(session_id, role, timestamp) VALUES ('x', 'user', 1)")
    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE constraint failed: sessions\.id"):
        s._conn.execute("INSERT INTO sessions(id, source, started_at) VALUES ('s', 'cli', 1)")
    assert s.append_message("s", "user", "goes on") == 4


# -- _lock and _execute_write


def test_the_lock_may_be_held_around_any_call(s: Any) -> None:
    with s._lock, s._lock:
        assert s.append_message("s", "user", "inside") == 4
        assert s._conn.execute("SELECT COUNT(*) FROM messages").fetchone()[0] == 4
        assert len(s.search_messages("inside")) == 1
    assert s._lock.acquire(timeout=5)
    s._lock.release()


def test_execute_write_is_one_transaction_with_the_functions_result(s: Any) -> None:
    def work(conn: Any) -> str:
        conn.execute("UPDATE sessions SET model = 'one' WHERE id = 's'")
        cursor = conn.execute(
            "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('s', 'user', 'written', 1.0)"
        )
        return f"id {cursor.lastrowid}"

    assert s._execute_write(work) == "id 4"
    assert s.get_session("s")["model"] == "one"
    assert ids(s, "written") == {4}

    def fails(conn: Any) -> None:
        conn.execute("UPDATE sessions SET model = 'two'")
        conn.execute("DELETE FROM messages")
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        s._execute_write(fails)
    assert s.get_session("s")["model"] == "one"
    assert ids(s) == {1, 2, 3}


def test_execute_write_rows_have_names(s: Any) -> None:
    assert s._execute_write(lambda conn: conn.execute("SELECT * FROM sessions").fetchone()["source"]) == "cli"


# -- _encode_content and _decode_content


def test_content_is_encoded_and_decoded_by_the_marked_format() -> None:
    for content, stored in (
        (None, None),
        ("text", "text"),
        ([1], "\x00json:[1]"),
        ({"a": "é"}, '\x00json:{"a": "é"}'),
        ([], "\x00json:[]"),
    ):
        assert SessionDB._encode_content(content) == stored
        assert SessionDB._decode_content(stored) == content
    assert SessionDB._decode_content(SessionDB._encode_content("\x00json:[1]")) == "\x00json:[1]"
    assert SessionDB._decode_content('\x00json:["\\u00e9"]') == ["é"]
    assert SessionDB._decode_content("\x00json:broken") == "\x00json:broken"


class Counting:
    """An ``_encode_content`` that counts its calls and may fail at one of them."""

    def __init__(self, fail_at: int = 0) -> None:
        self.seen: list[Any] = []
        self.fail_at = fail_at

    def __call__(self, content: Any) -> Any:
        self.seen.append(content)
        if len(self.seen) == self.fail_at:
            raise RuntimeError("encoder failed")
        return content if content is None else f"[{content}]"


def test_a_patched_encoder_is_called_once_a_message(s: Any) -> None:
    encoder = Counting()
    with mock.patch.object(s, "_encode_content", encoder):
        s.append_message("s", "user", "one")
        s.append_messages("s", [{"role": "user", "content": "two"}, {"role": "user", "content": None}])
        assert encoder.seen == ["one", "two", None]
        s.replace_messages("s", [{"role": "user", "content": "three"}, {"role": "user", "content": "four"}])
        assert encoder.seen[3:] == ["three", "four"]
    assert [message["content"] for message in s.get_messages("s")] == ["[three]", "[four]"]
    assert len(ids(s, "three")) == 1


@pytest.mark.parametrize("where", ["instance", "class"])
def test_an_encoder_that_fails_in_the_third_message_leaves_the_old_history(s: Any, where: str) -> None:
    before = s.export_session("s")
    new = [{"role": "user", "content": f"new {i}"} for i in range(5)]
    target = s if where == "instance" else SessionDB
    with (
        mock.patch.object(target, "_encode_content", Counting(fail_at=3)),
        pytest.raises(RuntimeError, match="encoder"),
    ):
        s.replace_messages("s", new)
    assert s.export_session("s") == before
    with (
        mock.patch.object(target, "_encode_content", Counting(fail_at=3)),
        pytest.raises(RuntimeError, match="encoder"),
    ):
        s.append_messages("s", new)
    with (
        mock.patch.object(target, "_encode_content", Counting(fail_at=1)),
        pytest.raises(RuntimeError, match="encoder"),
    ):
        s.append_message("s", "user", "new")
    assert s.export_session("s") == before
    assert ids(s) == {1, 2, 3}
    assert ids(s, "new") == set()


def test_a_subclass_may_encode_and_decode_its_own_way(tmp_path: Any) -> None:
    class Shouting(SessionDB):
        @classmethod
        def _encode_content(cls, content: Any) -> Any:
            return super()._encode_content(content.upper() if isinstance(content, str) else content)

    with Shouting(tmp_path / "a.db") as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "quiet")
        db.replace_messages("s", [*db.get_messages("s"), {"role": "user", "content": "loud"}])
        assert [message["content"] for message in db.get_messages("s")] == ["QUIET", "LOUD"]


# -- the query helpers


@pytest.mark.parametrize(
    ("text", "cjk"),
    [("", False), ("docker café", False), ("桂", True), ("かな", True), ("カナ", True), ("한글", True),
     ("a桂b", True), ("𠮷", True), ("ﾊﾝｶｸ", True), ("🎉", False), ("Ελλάδα Кириллица", False)],
)  # fmt: skip
def test_contains_cjk(text: str, cjk: bool) -> None:
    assert SessionDB._contains_cjk(text) is cjk


@pytest.mark.parametrize(
    "query",
    ["docker", "hello AND", "chat-send", '"exact phrase"', "deploy*", "a OR b NOT c", "C++", "a:b",
     '"unbalanced', "(x", "AND", "", "***", "NEAR(a b)", "x^2", "{a}", "a'b", "广西 AND 桂林",
     "\x00", "\ud800"],
)  # fmt: skip
def test_a_sanitized_query_is_one_that_fts5_takes(db: Any, query: str) -> None:
    sanitized = SessionDB._sanitize_fts5_query(query)
    assert isinstance(sanitized, str)
    if sanitized:
        db._conn.execute("SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?", (sanitized,)).fetchall()


def test_sanitizing_quotes_hyphens_and_drops_dangling_operators() -> None:
    assert SessionDB._sanitize_fts5_query("chat-send") == '"chat-send"'
    assert SessionDB._sanitize_fts5_query("hello AND") == "hello"
    assert SessionDB._sanitize_fts5_query("docker deployment") == "docker deployment"
    assert SessionDB._sanitize_fts5_query("deploy*") == "deploy*"
    assert SessionDB._sanitize_fts5_query('"exact phrase"') == '"exact phrase"'
