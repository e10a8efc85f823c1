"""Reading a store as a stream: in order, in pages, with nothing held between them."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from processes import program

from hermes_state import SessionDB, errors
from hermes_state.store import paging

MEMORY = """
import re
from pathlib import Path

def memory(name):
    # VmRSS is what this process holds, VmHWM the most that it ever held, in MB (proc(5), status).
    # (getrusage's maximum is no use here: a new process inherits that of its parent.)
    return int(re.search(name + r":\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) / 1e3
"""


def fill(db: SessionDB, sessions: int, messages: int) -> None:
    for number in range(sessions):
        db.create_session(f"s{number:03}", ("cli", "telegram")[number % 2])
        db.append_messages(
            f"s{number:03}", [{"role": "user", "content": f"{number} {index}"} for index in range(messages)]
        )


@pytest.mark.parametrize("batch", [1, 7, 500])
def test_messages_come_in_order_in_pages_of_any_size(db: SessionDB, batch: int) -> None:
    fill(db, 2, 40)
    assert list(db.iter_messages("s000", batch=batch)) == db.get_messages("s000")
    assert list(db.iter_messages("nobody", batch=batch)) == []


def test_a_page_is_bounded_by_bytes_too(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_BYTES", 1000)
    db.create_session("s", "cli")
    db.append_messages(
        "s", [{"role": "user", "content": "x" * size} for size in (10, 5000, 400, 400, 400, 5)]
    )
    key = b"s"
    sizes, after = [], 0
    while rows := db._read(lambda conn, last=after: paging.stored_messages(conn, key, last, 500), "test"):
        sizes.append(len(rows))
        after = rows[-1][0]
    assert sizes == [2, 3, 1]


def test_messages_that_are_appended_meanwhile_come_too(db: SessionDB) -> None:
    fill(db, 1, 3)
    found = []
    for message in db.iter_messages("s000", batch=2):
        found.append(message["content"])
        if len(found) == 2:
            db.append_message("s000", "user", "new")
    assert found == ["0 0", "0 1", "0 2", "new"]


def test_nothing_is_pinned_between_two_pages(db: SessionDB) -> None:
    fill(db, 3, 10)
    streams: list[Any] = [db.iter_messages("s000", batch=2), db.iter_export(), db.iter_export_records()]
    for stream in streams:
        next(stream)
    db.append_message("s001", "user", "x" * 100_000)
    db._engine._worker.stop()  # it may be at a checkpoint just now
    pages, copied = db._engine._writer.conn.wal_checkpoint(mode=1)
    assert pages == copied, "a snapshot was open: the whole log could not be copied"


def test_the_export_stream_is_export_all_in_the_order_of_starts(db: SessionDB) -> None:
    fill(db, 5, 3)
    streamed = list(db.iter_export())
    assert [session["id"] for session in streamed] == [f"s{number:03}" for number in range(5)]
    assert sorted(streamed, key=lambda s: s["id"]) == sorted(db.export_all(), key=lambda s: s["id"])
    assert [session["id"] for session in db.iter_export("telegram")] == ["s001", "s003"]
    assert len(list(db.iter_export(""))) == 5


def test_sessions_of_one_start_and_of_any_id_come_once(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_state.api.transfer.SESSIONS_PAGE", 3)
    ids = ["", "a", "a\x00b", "Z", "é", "\U0001f389", *map(str, range(20))]
    for session_id in ids:
        db.create_session(session_id, "cli")
    db._conn.execute("UPDATE sessions SET started_at = 5")
    db._conn.execute("INSERT INTO sessions(id, source, started_at) VALUES (CAST(x'ff41' AS TEXT), 'cli', 5)")
    db._conn.execute("INSERT INTO sessions(id, source, started_at) VALUES (x'ff41', 'cli', 'never')")
    records = [record["session"]["id"] for record in db.iter_export_records() if "session" in record]
    assert sorted(records) == sorted([*ids, "\ufffdA"])


def test_a_store_that_is_closed_ends_its_streams_with_the_typed_error(db: SessionDB) -> None:
    fill(db, 1, 10)
    stream = db.iter_messages("s000", batch=2)
    next(stream), next(stream)
    db.close()
    with pytest.raises(errors.StoreClosedError):
        next(stream)
    for call in (lambda: db.iter_messages("s000"), db.iter_export, db.iter_export_records):
        with pytest.raises(errors.StoreClosedError):
            call()


def test_a_session_of_an_export_is_as_it_was_when_its_first_record_came(db: SessionDB) -> None:
    fill(db, 1, 3)
    records = []
    for record in db.iter_export_records():
        records.append(record)
        if "session" in record:
            db.append_message("s000", "user", "too late")
    assert records[1]["session"]["message_count"] == 3
    assert records[-1] == {"end": {"sessions": 1, "messages": 3}}


def test_streams_can_be_read_in_several_threads_beside_a_writer(db: SessionDB) -> None:
    fill(db, 4, 50)
    start = threading.Barrier(5)
    counts: list[int] = []

    def read() -> None:
        start.wait()
        counts.append(sum(len(session["messages"]) for session in db.iter_export("telegram")))

    def write() -> None:
        start.wait()
        for _ in range(50):
            db.append_message("s000", "user", "more")

    threads = [threading.Thread(target=read) for _ in range(4)] + [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [100] * 4


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_export_and_import_of_50000_messages_take_less_than_64_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path, trigram="unspaced") as db:
        db.create_session("long", "cli")
        for part in range(20):
            db.append_messages(
                "long", [{"role": "user", "content": f"{part} {n} " * 60} for n in range(1000)]
            )
        fill(db, 300, 100)
    reading = """
db = SessionDB(path)
db.search_messages("nothing"), next(db.iter_export_records())
before = memory("VmRSS")
report = db.export_jsonl(args[0])
count = sum(1 for _ in db.iter_messages("long"))
say(grown=memory("VmHWM") - before, messages=report.messages, streamed=count)
db.close()
"""
    with program(MEMORY + reading, path, tmp_path / "out.jsonl") as running:
        answer = running.finish()[-1]
    assert (answer["messages"], answer["streamed"]) == (50_000, 20_000)
    assert answer["grown"] < 64
    storing = """
db = SessionDB(path, trigram="unspaced")
before = memory("VmRSS")
report = db.import_jsonl(args[0])
say(grown=memory("VmHWM") - before, messages=report.messages, problems=report.problem_count)
db.close()
"""
    with program(MEMORY + storing, tmp_path / "new.db", tmp_path / "out.jsonl") as running:
        answer = running.finish()[-1]
    assert (answer["messages"], answer["problems"]) == (50_000, 0)
    assert answer["grown"] < 64


def test_a_record_that_holds_what_cannot_be_utf_8_is_written(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", ["lone \ud83d"])
    out = io.BytesIO()
    text = io.TextIOWrapper(out, "utf-8")
    db.export_jsonl(text)
    text.flush()
    assert json.loads(out.getvalue().decode().splitlines()[2])["message"]["content"] == ["lone \ud83d"]
