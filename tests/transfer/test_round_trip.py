"""Our own export, read again: every column of every row is what it was."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import program

from hermes_state import SessionDB

text = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from('\x00\ud800\udfff`"\\\n')), max_size=30
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
contents = (
    text | st.none() | st.lists(json_values, max_size=3) | st.dictionaries(text, json_values, max_size=3)
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": contents},
    optional={
        "tool_name": text,
        "tool_calls": st.lists(json_values, max_size=3) | text,
        "tool_call_id": text,
        "token_count": st.integers(-(2**63), 2**63 - 1),
        "finish_reason": text,
        "reasoning": text,
        "reasoning_content": text,
        "reasoning_details": json_values,
        "codex_reasoning_items": json_values,
        "codex_message_items": text,
        "timestamp": st.floats(0, 1e11),
    },
)
# What other programs may have written: any text in any column, numbers where they do not belong.
raw_messages = st.fixed_dictionaries(
    {
        name: st.none() | st.text(st.characters(codec="utf-8"), max_size=12) | st.just('[1, NaN, "\\u4e2d"]')
        for name in ("tool_calls", "tool_name", "reasoning_details", "codex_message_items", "finish_reason")
    }
    | {
        "content": st.none()
        | st.sampled_from(["\x00json:[1", '\x00json:["\\u4e2d"]', "\x00json:{}", "plain"]),
        "timestamp": st.floats(-1e9, 1e11) | st.just("no time"),
        "token_count": st.none() | st.integers(-5, 5) | st.just("many"),
    }
)
sessions = st.fixed_dictionaries(
    {
        "source": text,
        "messages": st.lists(messages, max_size=5),
        "raw": st.lists(raw_messages, max_size=3),
        "parent": st.none() | st.integers(0, 3),
        "title": st.booleans(),
        "ended": st.none() | text,
        "prompt": st.none() | text,
        "tokens": st.integers(0, 10**9),
    }
)


def tables(db: SessionDB) -> dict[str, list[tuple[Any, ...]]]:
    """Every stored row of both tables."""
    order = {"sessions": "id", "messages": "id"}
    return {
        name: [tuple(row) for row in db._conn.execute(f"SELECT * FROM {name} ORDER BY {key}")]
        for name, key in order.items()
    }


def fill(db: SessionDB, made: list[dict[str, Any]]) -> None:
    """Sessions whose messages have ids that alternate between them."""
    for index, session in enumerate(made):
        db.create_session(f"s{index}", session["source"], system_prompt=session["prompt"])
        if session["title"]:
            db.set_session_title(f"s{index}", f"title {index}")
        db.update_token_counts(f"s{index}", input_tokens=session["tokens"], estimated_cost_usd=0.1)
    for turn in range(5):
        for index, session in enumerate(made):
            db.append_messages(f"s{index}", session["messages"][turn : turn + 1])
    for index, session in enumerate(made):
        for raw in session["raw"]:
            names = ", ".join(raw)
            marks = ", ".join("?" * len(raw))
            db._conn.execute(
                f"INSERT INTO messages(session_id, role, {names}) VALUES (?, 'tool', {marks})",
                (f"s{index}", *raw.values()),
            )
            db._conn.execute(
                "UPDATE sessions SET message_count = message_count + 1 WHERE id = ?", (f"s{index}",)
            )
        if session["parent"] is not None and session["parent"] < len(made):
            db._conn.execute(
                "UPDATE sessions SET parent_session_id = ? WHERE id = ?",
                (f"s{session['parent']}", f"s{index}"),
            )
        if session["ended"] is not None:
            db.end_session(f"s{index}", session["ended"])


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[SessionDB, SessionDB]]:
    with tempfile.TemporaryDirectory() as folder:
        pair = SessionDB(Path(folder) / "from.db"), SessionDB(Path(folder) / "to.db")
        yield pair
        for store in pair:
            store.close()


def empty(db: SessionDB) -> None:
    db._conn.execute("UPDATE sessions SET parent_session_id = NULL")
    db._conn.execute("DELETE FROM messages")
    db._conn.execute("DELETE FROM sessions")


def calls_counted(rows: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Without tool_call_count: other programs' rows were not counted there, an import counts them."""
    return rows | {"sessions": [row[:11] + row[12:] for row in rows["sessions"]]}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=st.lists(sessions, max_size=4))
def test_an_export_read_by_an_empty_store_gives_the_same_rows(
    stores: tuple[SessionDB, SessionDB], made: list[dict[str, Any]]
) -> None:
    old, new = stores
    empty(old)
    empty(new)
    fill(old, made)
    out = io.StringIO()
    exported = old.export_jsonl(out)
    report = new.import_jsonl(io.StringIO(out.getvalue()))
    assert report.problems == []
    assert (report.sessions, report.messages) == (exported.sessions, exported.messages)
    assert (report.ids_changed, report.titles_changed, report.parents_missing) == (0, 0, 0)
    assert report.unknown_keys == {}
    assert calls_counted(tables(new)) == calls_counted(tables(old))
    before = tables(new)
    again = new.import_jsonl(io.StringIO(out.getvalue()))
    assert (again.sessions, again.messages) == (0, 0)
    assert (again.sessions_present, again.messages_present) == (exported.sessions, exported.messages)
    assert tables(new) == before
    kept = old.import_jsonl(io.StringIO(out.getvalue()))
    assert (kept.messages, kept.messages_present) == (0, exported.messages)


def test_the_shared_conversations_come_through_an_export_unchanged(
    db: SessionDB, make_db: Any, tmp_path: Path
) -> None:
    with (tmp_path / "in.jsonl").open("w", encoding="utf-8") as lines:
        for session in corpus.sessions("all", limit=200):
            lines.write(json.dumps(session) + "\n")
    assert db.import_jsonl(tmp_path / "in.jsonl").problems == []
    db.export_jsonl(tmp_path / "out.jsonl.gz")
    other: SessionDB = make_db(tmp_path / "other.db")
    other.import_jsonl(tmp_path / "out.jsonl.gz")
    assert tables(other) == tables(db)
    assert other.export_all() == db.export_all()
    assert other.check()["ok"]
    other.export_jsonl(tmp_path / "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "out.jsonl.gz").read_bytes()


def test_what_was_imported_with_old_ids_is_found_by_search(
    db: SessionDB, make_db: Any, tmp_path: Path
) -> None:
    for index in range(20):
        db.create_session(f"s{index % 4}", "cli")
        db.append_message(f"s{index % 4}", "user", f"word{index} 广西{index}")
    db.export_jsonl(tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    random.Random(7).shuffle(lines)
    other: SessionDB = make_db(tmp_path / "other.db")
    other.create_session("busy", "cli")
    for _ in range(2):
        # Ids of the file are partly above, partly below what is indexed by then.
        other.import_jsonl(io.StringIO("".join(lines[:12])))
        assert other.search_messages("nothing") == []
    other.import_jsonl(io.StringIO("".join(lines)))
    for index in range(20):
        assert len(other.search_messages(f"word{index}")) == 1
        assert len(other.search_messages(f"广西{index}", limit=-1)) == (11 if index == 1 else 1)
    assert other.check()["ok"]


def test_ids_that_are_taken_change_and_the_order_of_the_session_stays(
    db: SessionDB, make_db: Any, tmp_path: Path
) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": str(number)} for number in range(6)])
    db.export_jsonl(tmp_path / "out.jsonl")
    other: SessionDB = make_db(tmp_path / "other.db")
    other.create_session("else", "cli")
    other.append_messages("else", [{"role": "user", "content": "x"}] * 3)
    other._conn.execute("DELETE FROM messages WHERE id < 3")
    report = other.import_jsonl(tmp_path / "out.jsonl")
    assert report.ids_changed == 4  # 3 is taken; 4 to 6 would stand before its new place
    assert [(m["id"], m["content"]) for m in other.get_messages("s")] == [
        (1, "0"), (2, "1"), (4, "2"), (5, "3"), (6, "4"), (7, "5"),
    ]  # fmt: skip
    assert other.import_jsonl(tmp_path / "out.jsonl").messages == 0


def test_a_session_that_went_on_keeps_its_new_messages_and_takes_what_it_lacks(
    db: SessionDB, tmp_path: Path
) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": content} for content in ("yes", "yes", "no")])
    db.export_jsonl(tmp_path / "out.jsonl")
    db._conn.execute("DELETE FROM messages WHERE id = 2")
    db._conn.execute("UPDATE sessions SET message_count = 2")
    db.append_message("s", "user", "later")
    report = db.import_jsonl(tmp_path / "out.jsonl")
    assert (report.messages, report.messages_present) == (1, 2)
    assert [m["content"] for m in db.get_messages("s")] == ["yes", "yes", "no", "later"]
    assert db.get_session("s")["message_count"] == 4


def test_children_before_their_parents_get_them_all_the_same(
    db: SessionDB, make_db: Any, tmp_path: Path
) -> None:
    previous = None
    for index in range(30):
        db.create_session(f"s{index}", "cli", parent_session_id=previous)
        previous = f"s{index}"
    db.create_session("lost", "cli", parent_session_id="s3")
    db.export_jsonl(tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    other: SessionDB = make_db(tmp_path / "other.db")
    report = other.import_jsonl(io.StringIO("".join(reversed(lines[1:-1]))))
    assert (report.sessions, report.parents_missing, report.problems) == (31, 0, [])
    assert tables(other) == tables(db)
    third: SessionDB = make_db(tmp_path / "third.db")
    report = third.import_jsonl(io.StringIO("".join(line for line in lines if '"id": "s3"' not in line)))
    assert report.parents_missing == 2
    assert third.get_session("lost")["parent_session_id"] is None
    third.import_jsonl(tmp_path / "out.jsonl")
    assert third.get_session("lost")["parent_session_id"] == "s3"


def test_columns_of_other_programs_come_along_and_unknown_ones_are_reported(
    db: SessionDB, make_db: Any, tmp_path: Path
) -> None:
    for statement in (
        "ALTER TABLE sessions ADD COLUMN mood TEXT",
        'ALTER TABLE messages ADD COLUMN "a ""b" REAL',
    ):
        db._conn.execute(statement)
    db.create_session("s", "cli")
    db.append_message("s", "user", "hi")
    db._conn.execute("UPDATE sessions SET mood = 'fine'")
    db._conn.execute('UPDATE messages SET "a ""b" = 1.5')
    db.export_jsonl(tmp_path / "out.jsonl")
    plain: SessionDB = make_db(tmp_path / "plain.db")
    report = plain.import_jsonl(tmp_path / "out.jsonl")
    assert report.unknown_keys == {"session.mood": 1, 'message.a "b': 1}
    wide: SessionDB = make_db(tmp_path / "wide.db")
    for statement in (
        "ALTER TABLE sessions ADD COLUMN mood TEXT",
        'ALTER TABLE messages ADD COLUMN "a ""b" REAL',
    ):
        wide._conn.execute(statement)
    wide.import_jsonl(tmp_path / "out.jsonl")
    assert tables(wide) == tables(db)


def test_a_title_that_is_taken_gets_the_next_number(db: SessionDB, make_db: Any, tmp_path: Path) -> None:
    db.create_session("a", "cli")
    db.set_session_title("a", "plan")
    db.export_jsonl(tmp_path / "out.jsonl")
    other: SessionDB = make_db(tmp_path / "other.db")
    other.create_session("b", "cli")
    other.set_session_title("b", "plan")
    assert other.import_jsonl(tmp_path / "out.jsonl").titles_changed == 1
    assert (other.get_session_title("a"), other.get_session_title("b")) == ("plan #2", "plan")


def test_an_export_that_was_cut_says_so_when_it_is_read(db: SessionDB, make_db: Any, tmp_path: Path) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": "x" * 100}] * 50)
    whole = io.StringIO()
    db.export_jsonl(whole)
    lines = whole.getvalue().splitlines(keepends=True)
    other: SessionDB = make_db(tmp_path / "other.db")
    report = other.import_jsonl(io.StringIO("".join([*lines[:10], *lines[20:]])))
    assert [problem.line for problem in report.problems] == [43]
    assert "1 sessions and 50 messages were exported" in report.problems[0].reason
    report = other.import_jsonl(io.StringIO(whole.getvalue()[:-500]))
    assert "the file ends in the middle of it" in report.problems[-1].reason


def test_a_file_is_replaced_at_the_end_or_not_at_all(
    db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "hi")
    target = tmp_path / "out.jsonl"
    target.write_text("old")

    def failing(*_: Any) -> Any:
        raise RuntimeError("half way")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(db, "_pages", failing)
        with pytest.raises(RuntimeError, match="half way"):
            db.export_jsonl(target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == ["out.jsonl"]
    with pytest.raises(LookupError):
        db.export_jsonl(target, session_id="nobody")
    assert target.read_text() == "old"
    db.export_jsonl(target)
    assert json.loads(target.read_text().splitlines()[-1]) == {"end": {"sessions": 1, "messages": 1}}
    if os.name == "posix":
        assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_one_session_and_one_source_can_be_exported(db: SessionDB, tmp_path: Path) -> None:
    for session_id, source in (("a", "cli"), ("b", "telegram"), ("c", "cli")):
        db.create_session(session_id, source)
        db.append_message(session_id, "user", session_id)
    out = io.StringIO()
    assert db.export_jsonl(out, session_id="b").sessions == 1
    assert [json.loads(line) for line in out.getvalue().splitlines()] == list(
        db.iter_export_records(None, "b")
    )
    assert db.export_jsonl(tmp_path / "x.jsonl.gz", source="cli").messages == 2
    with gzip.open(tmp_path / "x.jsonl.gz", "rt", encoding="utf-8") as lines:
        assert [json.loads(line)["session"]["id"] for line in lines if '{"session"' in line] == ["a", "c"]
    told: list[tuple[int, int]] = []
    out = io.StringIO()
    db.export_jsonl(out, progress=lambda done, total: told.append((done, total)), form="sessions")
    assert told == [(3, 3)]
    assert [json.loads(line) for line in out.getvalue().splitlines()] == list(db.iter_export())
    with pytest.raises(ValueError, match="form"):
        db.export_jsonl(out, form="xml")


@pytest.mark.parametrize("flushes", [1, 2, 3])
def test_an_import_that_was_killed_is_completed_by_the_next(
    db: SessionDB, make_db: Any, tmp_path: Path, flushes: int
) -> None:
    for index in range(300):
        # Children before their parents, so that some hang on a parent that came after the kill.
        db.create_session(f"s{index:03}", "cli", parent_session_id=f"s{index - 1:03}" if index else None)
        db.append_messages(f"s{index:03}", [{"role": "user", "content": f"{index} {n}"} for n in range(10)])
    out = io.StringIO()
    db.export_jsonl(out)
    records = [json.loads(line) for line in out.getvalue().splitlines()][1:-1]
    records.sort(
        key=lambda r: r["session"]["id"] if "session" in r else r["message"]["session_id"], reverse=True
    )
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code = """
flushes = int(args[1])
def stop(*_):
    global flushes
    flushes -= 1
    if not flushes:
        barrier()
SessionDB(path).import_jsonl(args[0], progress=stop)
"""
    path = tmp_path / "killed.db"
    with program(code, path, tmp_path / "in.jsonl", flushes) as running:
        running.ready().signal(signal.SIGKILL)
        running.process.wait(timeout=300)
    other: SessionDB = make_db(path)
    half = other.message_count()
    assert 0 < half < 3000
    report = other.import_jsonl(tmp_path / "in.jsonl")
    assert (report.messages_present, report.messages) == (half, 3000 - half)
    assert tables(other) == tables(db)
    assert other.check()["ok"]
