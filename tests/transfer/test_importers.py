"""Lines of every kind that an import takes, and lines that it does not."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import corpus
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from hermes_state.transfer import jsonl
from hermes_state.transfer.importer import _as_held, transcript_id


def contents(db: SessionDB, session_id: str) -> list[Any]:
    return [message["content"] for message in db.get_messages(session_id)]


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# -- transcripts --


def test_a_transcript_becomes_the_session_of_its_file_name(db: SessionDB, tmp_path: Path) -> None:
    file = write(
        tmp_path / "20260101_120000_ab12.jsonl",
        {"role": "session_meta", "model": "m1", "platform": "telegram", "tools": []},
        {"role": "user", "content": "hi", "timestamp": "2026-01-01T12:00:00"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1"}],
            "timestamp": "2026-01-01T12:00:01",
        },
        {"role": "tool", "content": "done", "name": "terminal", "tool_call_id": "1"},
    )
    report = db.import_jsonl(file)
    assert (report.sessions, report.messages, report.problems) == (1, 3, [])
    session = db.get_session("20260101_120000_ab12")
    began = datetime(2026, 1, 1, 12).astimezone().timestamp()
    assert (session["source"], session["model"], session["started_at"]) == ("telegram", "m1", began)
    assert (session["message_count"], session["tool_call_count"]) == (3, 1)
    messages = db.get_messages("20260101_120000_ab12")
    assert [m["timestamp"] for m in messages] == [began, began + 1, pytest.approx(began + 1, abs=1e-4)]
    assert (messages[2]["tool_name"], messages[1]["tool_calls"]) == ("terminal", [{"id": "1"}])
    again = db.import_jsonl(file)
    assert (again.messages, again.messages_present, again.sessions_present) == (0, 3, 1)


def test_a_folder_of_transcripts_is_read_file_by_file(db: SessionDB, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"role": "user", "content": "of a"})
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as lines:
        lines.write('{"role": "user", "content": "of b"}\n')
    (tmp_path / "sessions.json").write_text("{}")
    report = db.import_jsonl(tmp_path)
    assert (report.sessions, report.messages, report.problems) == (2, 2, [])
    assert (contents(db, "a"), contents(db, "b")) == (["of a"], ["of b"])
    assert db.get_session("a")["source"] == "unknown"


def test_bad_lines_are_told_with_file_and_line_and_the_others_come_in(db: SessionDB, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    good = [json.dumps({"role": "user", "content": f"good {number}"}).encode() for number in range(4)]
    file.write_bytes(
        b"\n".join(
            [
                good[0],
                b"{not json",
                good[1],
                b'{"role": "user", "content": "\xff"}',
                b"[]",
                good[2],
                b'{"content": "no role"}',
                b'{"role": "user", "timestamp": "soon"}',
                b"   ",
                good[3],
                b'{"role": "user", "content": "cut o',
            ]
        )
    )
    told: list[str] = []
    report = db.import_jsonl(file, on_error=lambda problem: told.append(str(problem)))
    assert contents(db, "s") == [f"good {number}" for number in range(4)]
    assert [problem.line for problem in report.problems] == [2, 4, 5, 7, 8, 11]
    assert told == [str(problem) for problem in report.problems]
    assert told[0].startswith(f"{file}:2: not JSON")
    assert "not UTF-8 at byte 29" in told[1]
    assert "timestamp is not a time" in told[4]
    assert "ends in the middle" in told[5]
    file.write_bytes(file.read_bytes().replace(b'"cut o', b'"cut off"}'))
    assert db.import_jsonl(file).messages == 1
    assert contents(db, "s")[-1] == "cut off"


def test_a_stream_without_a_name_needs_the_session_of_its_messages(db: SessionDB) -> None:
    line = '{"role": "user", "content": "hi"}\n'
    report = db.import_jsonl(io.BytesIO(line.encode()))
    assert (report.messages, report.problem_count) == (0, 1)
    assert db.import_jsonl(io.StringIO(line), session_id="x", session_source="cli").messages == 1
    assert db.get_session("x")["source"] == "cli"


def test_what_on_error_raises_ends_the_import(db: SessionDB) -> None:
    def stop(problem: Any) -> None:
        raise RuntimeError(str(problem))

    with pytest.raises(RuntimeError, match="<stream>:1"):
        db.import_jsonl(io.StringIO("{\n"), on_error=stop)


def test_the_name_of_a_transcript() -> None:
    assert transcript_id("/a/b/20260101_x.jsonl.gz") == "20260101_x"
    assert transcript_id("a.b.jsonl") == "a.b"
    assert transcript_id("a.json.jsonl") == "a.json"
    assert transcript_id("<stream>") == ""


# -- OpenAI's chat format --


def test_chat_lines_become_sessions_that_are_the_same_in_every_file(db: SessionDB, tmp_path: Path) -> None:
    chats = [
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "one"}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "two"}]},
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "3", "weight": 1},
            ],
            "tools": [],
        },
    ]
    report = db.import_jsonl(write(tmp_path / "a.jsonl", *chats, chats[0]))
    assert report.lines == {"chat": 3}
    assert (report.sessions, report.sessions_present, report.messages, report.messages_present) == (
        2,
        1,
        5,
        2,
    )
    assert report.unknown_keys == {"session.tools": 1, "message.weight": 1}
    ids = [session["id"] for session in db.search_sessions()]
    assert all(session_id.startswith("chat_") for session_id in ids)
    by_length = {len(db.get_messages(session_id)): db.get_messages(session_id) for session_id in ids}
    assert by_length[3][0]["content"] == [{"type": "text", "text": "two"}]
    assert by_length[3][1]["tool_calls"] == [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    assert (by_length[3][2]["role"], by_length[3][2]["tool_name"]) == ("function", "f")
    again = db.import_jsonl(write(tmp_path / "b.jsonl", chats[1], chats[0]))
    assert (again.sessions, again.messages, again.messages_present) == (0, 0, 5)


# -- sessions with their messages a line --


@pytest.mark.parametrize("name", ["agent", "cjk", "odd"])
def test_the_shared_conversations_come_in_whole_and_once(db: SessionDB, tmp_path: Path, name: str) -> None:
    sessions = list(corpus.sessions(name, limit=60))
    file = write(tmp_path / "in.jsonl", *sessions)
    report = db.import_jsonl(file)
    assert (report.problems, report.unknown_keys) == ([], {})
    assert report.sessions == len(sessions)
    for session in sessions:
        row = db.get_session(session["id"])
        assert (row["source"], row["model"]) == (session["source"], session.get("model"))
        if session.get("started_at"):
            assert row["started_at"] == corpus.epoch(session["started_at"])
        stored = db.get_messages(session["id"])
        assert row["message_count"] == len(stored) == len(session["messages"])
        for given_message, message in zip(session["messages"], stored, strict=True):
            for key in ("role", "content", "tool_call_id", "tool_name", "reasoning", "finish_reason"):
                assert message[key] == given_message.get(key), key
            assert (message["tool_calls"] or None) == (given_message.get("tool_calls") or None)
            if given_message.get("timestamp"):
                assert message["timestamp"] == corpus.epoch(given_message["timestamp"])
    again = db.import_jsonl(file)
    assert (again.sessions, again.messages, again.messages_present) == (0, 0, report.messages)


def test_what_export_session_gives_can_be_imported(db: SessionDB, make_db: Any, tmp_path: Path) -> None:
    db.create_session("a", "cli", model_config={"t": 1})
    db.append_message("a", "assistant", ["x"], tool_calls=[{"id": 1}], reasoning_details=[{"k": 1}])
    db.end_session("a", "compression")
    db.create_session("b", "cli", parent_session_id="a")
    db.set_session_title("b", "t")
    other: SessionDB = make_db(tmp_path / "other.db")
    other.import_jsonl(write(tmp_path / "out.jsonl", *db.export_all()))
    assert other.export_all() == db.export_all()


def test_a_value_of_the_wrong_kind_costs_that_value_only(db: SessionDB) -> None:
    line = {
        "id": "s", "source": "cli", "model": {"no": "text"}, "started_at": "once", "input_tokens": 2**70,
        "messages": [5, {"content": "no role"}, {"role": "user", "content": "kept", "token_count": 1.5},
                     {"role": "user", "content": "stays", "id": "x"}],
    }  # fmt: skip
    report = db.import_jsonl(io.StringIO(json.dumps(line)))
    assert contents(db, "s") == ["stays"]
    assert [problem.reason.split(":")[0] for problem in report.problems] == [
        "'model'", "'started_at'", "'input_tokens'", "messages[0]", "messages[1]", "messages[2]",
    ]  # fmt: skip
    assert db.get_session("s")["input_tokens"] == 0


def test_a_message_without_its_session_line_makes_a_session_of_unknown_source(db: SessionDB) -> None:
    line = {"message": {"session_id": "s", "id": 7, "role": "user", "content": "hi", "timestamp": 5.0}}
    report = db.import_jsonl(io.StringIO(json.dumps(line)))
    assert (report.sessions, report.messages) == (1, 1)
    session = db.get_session("s")
    assert (session["source"], session["started_at"], session["message_count"]) == ("unknown", 5.0, 1)
    assert db.get_messages("s")[0]["id"] == 7


def test_an_export_of_a_later_form_is_read_as_far_as_it_is_known(db: SessionDB) -> None:
    lines = [{"hermes_state_export": {"format": 2}}, {"session": {"id": "s", "source": "cli"}}]
    report = db.import_jsonl(io.StringIO("\n".join(map(json.dumps, lines))))
    assert report.sessions == 1
    assert [problem.line for problem in report.problems] == [1]


def test_ids_never_run_out_because_of_a_file(db: SessionDB) -> None:
    for number in (2**63 - 1, 2**62, 0, -5, True, 1.0):
        line = {"message": {"session_id": f"s{number}", "id": number, "role": "user", "content": "hi"}}
        assert db.import_jsonl(io.StringIO(json.dumps(line))).messages == 1
    db.create_session("after", "cli")
    assert db.append_message("after", "user", "hi") == 7


def test_an_existing_session_is_filled_in_and_never_overwritten(db: SessionDB) -> None:
    db.create_session("s", "unknown", model="mine")
    line = {"id": "s", "source": "cli", "model": "theirs", "user_id": "u", "ended_at": 5, "messages": []}
    report = db.import_jsonl(io.StringIO(json.dumps(line)))
    session = db.get_session("s")
    assert (report.sessions, report.sessions_present) == (0, 1)
    assert (session["source"], session["model"], session["user_id"]) == ("cli", "mine", "u")
    assert session["ended_at"] is None


def test_a_gzip_file_that_is_cut_gives_what_is_before_the_cut(db: SessionDB, tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"role": "user", "content": f"{number} {'x' * 50}"}) + "\n" for number in range(9999)
    )
    packed = gzip.compress(lines.encode())
    (tmp_path / "s.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    report = db.import_jsonl(tmp_path / "s.jsonl.gz")
    assert 1000 < report.messages < 9999
    assert "cut short or damaged" in report.problems[-1].reason


def test_a_line_that_is_too_long_is_passed_over(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 100)
    long = json.dumps({"role": "user", "content": "y" * 1000})
    lines = f'{long}\n{{"role": "user", "content": "short"}}\n{long}'
    report = db.import_jsonl(io.StringIO(lines), session_id="s")
    assert contents(db, "s") == ["short"]
    assert [(problem.line, problem.reason) for problem in report.problems] == [
        (1, "longer than 100 bytes"), (3, "longer than 100 bytes"),
    ]  # fmt: skip


def test_progress_ends_at_the_size_of_the_files(db: SessionDB, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", *({"role": "user", "content": str(number)} for number in range(3000)))
    told: list[tuple[int, int]] = []
    db.import_jsonl(file, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert len(told) >= 3
    assert told[-1] == (file.stat().st_size,) * 2


def test_an_import_in_progress_lets_other_writers_in(db: SessionDB, tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", *({"role": "user", "content": f"{n} " * 50} for n in range(4000)))
    db.create_session("live", "cli")
    appended: list[int] = []
    db.import_jsonl(file, progress=lambda *_: appended.append(db.append_message("live", "user", "now")))
    assert len(contents(db, "live")) == len(appended) >= 4
    assert len(contents(db, "s")) == 4000


# -- whatever a line holds --

EXAMPLES = int(os.environ.get("HERMES_STATE_FUZZ_EXAMPLES", "120"))

GOOD = [
    {"hermes_state_export": {"format": 1}},
    {"session": {"id": "own", "source": "cli", "started_at": 1.0, "title": "t", "parent_session_id": "rec"}},
    {"message": {"session_id": "own", "id": 5, "role": "user", "content": "m", "timestamp": 2.0}},
    {"message": {"session_id": "own", "id": 6, "role": "tool", "content": "m", "timestamp": 2.0},
     "stored": {"tool_calls": "[broken"}},
    {"end": {"sessions": 1, "messages": 2}},
    {"id": "rec", "source": "x", "started_at": "2026-01-01T00:00:00Z",
     "messages": [{"role": "user", "content": "r"}]},
    {"messages": [{"role": "user", "content": ["c"]}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
]  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good line with a value, a key or bytes of it replaced."""
    line: Any = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    where: Any = line
    while draw(st.booleans()):
        inner = [value for value in where.values() if isinstance(value, dict)]
        inner += [
            item
            for value in where.values()
            if isinstance(value, list)
            for item in value
            if isinstance(item, dict)
        ]
        if not inner:
            break
        where = draw(st.sampled_from(inner))
    if where:
        where[draw(st.sampled_from(sorted(where)) | st.text(max_size=5))] = draw(anything)
    text = json.dumps(line).encode()
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(text)))
        text = text[:cut] + draw(st.binary(max_size=3)) + text[cut + draw(st.integers(0, 3)) :]
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bad=st.lists(mutated(), max_size=6), places=st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_no_line_ends_an_import_and_the_good_ones_come_in(bad: list[bytes], places: list[int]) -> None:
    marks = [
        {"role": "user", "content": f"mark {number}", "timestamp": float(number)} for number in range(12)
    ]
    lines = [json.dumps(mark).encode() for mark in marks]
    for line, place in zip(bad, places, strict=False):
        lines.insert(min(place, len(lines)), line)
    data = b"\n".join(lines)
    with SessionDB(":memory:") as db:
        report = db.import_jsonl(io.BytesIO(data), session_id="marks")
        stored = [m["content"] for m in db.get_messages("marks") if str(m["content"]).startswith("mark ")]
        assert stored == [mark["content"] for mark in marks]
        counted = Counter(message["session_id"] for s in db.iter_export() for message in s["messages"])
        for session in db.iter_export():
            assert (session["message_count"] or 0) == counted[session["id"]]
        assert db.message_count() == report.messages
        before = db.message_count()
        db.import_jsonl(io.BytesIO(data), session_id="marks")
        assert db.message_count() == before
        json.dumps(report.as_dict())


@pytest.mark.parametrize("name", ["tool_calls", "token_count", "timestamp"])
@given(
    value=st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.from_regex(r"\s*[+-]?[0-9]{0,20}\.?[0-9]{0,3}(e[0-9]{1,4})?\s*", fullmatch=True)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
)
def test_a_stored_value_is_what_its_column_gives_back(name: str, value: Any) -> None:
    kind = {"tool_calls": "TEXT", "token_count": "INTEGER", "timestamp": "REAL"}[name]
    conn = apsw.Connection(":memory:")
    conn.execute(f"CREATE TABLE t(c {kind})")
    held = _as_held(name, value)
    conn.execute("INSERT INTO t VALUES (?)", (held,))
    (back,) = conn.execute("SELECT c FROM t").fetchall()[0]
    assert (back, type(back)) == (held, type(held))


@pytest.mark.parametrize("value", [True, False, 5, 2.5, "5", "2.0", "many", None])
@pytest.mark.parametrize("name", ["content", "tool_calls", "token_count", "timestamp", "reasoning"])
def test_a_stored_value_of_another_kind_is_taken_once(db: Any, name: str, value: Any) -> None:
    message = {"session_id": "s", "id": 6, "role": "tool", "content": "m", "timestamp": 2.0}
    lines = [{"hermes_state_export": {"format": 1}}, {"message": message, "stored": {name: value}}]
    data = "\n".join(map(json.dumps, lines)).encode()
    for _ in range(2):
        report = db.import_jsonl(io.BytesIO(data))
    refused = name == "timestamp" and value in (None, "many")
    assert db.message_count() == (0 if refused and report.problems else 1)
