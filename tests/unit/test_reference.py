"""The reference store behaves as the user's document says, and writes files that the v11 peer finds sound."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from benchmark_modules import ROOT, bench_corpus, reference


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    store = reference.SessionDB(tmp_path / "state.db")
    store.create_session("s", "cli", model="m")
    yield store
    store.close()


def _check(path: Path) -> dict[str, Any]:
    script = str(ROOT / "tests" / "peers" / "v11_peer.py")
    done = subprocess.run(
        [sys.executable, script, str(path), "check"], capture_output=True, text=True, check=True
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _hits(db: Any, query: str, **filters: Any) -> list[int]:
    return sorted(hit["id"] for hit in db.search_messages(query, **filters))


def test_what_is_appended_comes_back_and_is_counted(db: Any) -> None:
    calls = [{"id": "a"}, {"id": "b"}]
    db.append_message("s", "user", [{"type": "text", "text": "hi"}])
    db.append_message("s", "assistant", tool_calls=calls, reasoning="why", finish_reason="tool_calls")
    stored = db.get_messages("s")
    assert stored[0]["content"] == [{"type": "text", "text": "hi"}]
    assert stored[1]["tool_calls"] == calls
    session = db.get_session("s")
    assert (session["message_count"], session["tool_call_count"]) == (2, 2)
    assert db.get_messages_as_conversation("s")[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": calls,
        "finish_reason": "tool_calls",
        "reasoning": "why",
    }
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        db.append_message("nobody", "user", "x")


def test_search_takes_words_phrases_operators_prefixes_and_three_character_cjk(db: Any) -> None:
    for text in (
        "docker networking is up",
        "kubernetes only",
        "networking docker",
        "我们去桂林山水玩",
        "chat-send",
    ):
        db.append_message("s", "user", text)
    assert _hits(db, "docker networking") == [1, 3]
    assert _hits(db, '"docker networking"') == [1]
    assert _hits(db, "docker OR kubernetes") == [1, 2, 3]
    assert _hits(db, "networking NOT up") == [3]
    assert _hits(db, "kuber*") == [2]
    assert _hits(db, "桂林山水") == [4]
    assert _hits(db, "桂林") == [4]
    assert _hits(db, "chat-send") == [5]
    assert _hits(db, "docker AND") == [1, 3]
    assert _hits(db, "docker", source_filter=["telegram"]) == []
    assert _hits(db, "docker", role_filter=["user"], exclude_sources=["telegram"]) == [1, 3]
    newest = db.search_messages("docker", sort="newest")
    assert [hit["id"] for hit in newest] == [3, 1]
    assert ">>>docker<<<" in newest[0]["snippet"]
    assert [part["content"] for part in newest[0]["context"]] == [
        "kubernetes only",
        "networking docker",
        "我们去桂林山水玩",
    ]
    assert "content" not in newest[0]


@pytest.mark.parametrize(
    ("query", "sanitized"),
    [
        ("hello AND", "hello"),
        ("chat-send now", '"chat-send" now'),
        ('say "fix issue', "say fix issue"),
        ('"a b" c(', '"a b" c'),
        ("*** dock**", "dock*"),
    ],
)
def test_sanitizer_keeps_phrases_and_drops_what_fts5_would_refuse(query: str, sanitized: str) -> None:
    assert " ".join(reference.SessionDB._sanitize_fts5_query(query).split()) == sanitized


def test_lists_show_a_compressed_conversation_under_its_tip(db: Any) -> None:
    db.append_message("s", "user", "the first question")
    db.end_session("s", "compression")
    db.create_session("t", "cli", parent_session_id="s")
    db.append_message("t", "user", "the second question")
    for flag in (False, True):
        listed = db.list_sessions_rich(order_by_last_active=flag)
        assert [(row["id"], row["_lineage_root_id"]) for row in listed] == [("t", "s")]
        assert listed[0]["preview"] == "the second question"
    assert db.get_compression_tip("s") == "t"
    assert [row["id"] for row in db.search_sessions()] == ["t", "s"]
    replay = db.get_messages_as_conversation("t", include_ancestors=True)
    assert [message["content"] for message in replay] == ["the first question", "the second question"]


def test_windows_and_bookends_go_by_id(db: Any) -> None:
    for number in range(20):
        db.append_message("s", "user", f"n{number}")
    view = db.get_anchored_view("s", 10, window=2, bookend=2)
    assert [message["id"] for message in view["window"]] == [8, 9, 10, 11, 12]
    assert [message["id"] for message in view["bookend_start"]] == [1, 2]
    assert [message["id"] for message in view["bookend_end"]] == [19, 20]
    assert (view["messages_before"], view["messages_after"]) == (2, 2)


def test_replace_delete_and_prune_keep_counters_and_indexes_in_step(db: Any, tmp_path: Path) -> None:
    db.append_message("s", "user", "old words")
    db.replace_messages("s", [{"role": "user", "content": "new words", "tool_calls": [{"id": "x"}]}])
    assert db.get_session("s")["tool_call_count"] == 1
    for number in range(3):
        db.create_session(f"old{number}", "cli")
        db.append_message(f"old{number}", "user", "ancient")
        db.end_session(f"old{number}", "user_exit")
    db._conn.execute("UPDATE sessions SET started_at = 1000.0 WHERE id LIKE 'old%'")
    assert db.prune_sessions(90) == 3
    report = _check(tmp_path / "state.db")
    assert report["ok"], report
    assert report["messages"] == 1
    assert db.delete_session("s") is True
    assert db.delete_session("s") is False


def test_tokens_add_up_and_titles_number_themselves(db: Any) -> None:
    db.update_token_counts("s", input_tokens=5, output_tokens=2, estimated_cost_usd=0.5)
    db.update_token_counts("s", input_tokens=5, api_call_count=1)
    row = db.get_session("s")
    assert (row["input_tokens"], row["output_tokens"], row["api_call_count"]) == (10, 2, 1)
    assert row["estimated_cost_usd"] == 0.5
    assert db.set_session_title("s", "  Fix \u200bbuild ")
    assert db.get_next_title_in_lineage("Fix build") == "Fix build #2"
    with pytest.raises(ValueError, match="already in use"):
        db.set_session_title(db.create_session("t", "cli"), "Fix build")


def test_threads_lose_nothing(db: Any) -> None:
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for number in range(25):
            db.append_message("s", "user", f"n{number}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db.message_count("s") == db.get_session("s")["message_count"] == 100


@pytest.mark.parametrize("kind", ["mixed", "english", "cjk"])
def test_benchmark_sessions_have_the_size_asked_for_and_fresh_ids(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (bench_corpus.SHARED, ROOT / "nowhere"):
        monkeypatch.setattr(bench_corpus, "SHARED", folder)
        sessions = list(bench_corpus.build(3000, kind))
        assert sum(len(session["messages"]) for session in sessions) == 3000
        assert len({session["id"] for session in sessions}) == len(sessions)
        text = json.dumps(sessions, ensure_ascii=False)
        cjk = sum("\u3040" <= char <= "\ud7a3" for char in text)
        assert (cjk > 1000) == (kind != "english")


def test_generated_sessions_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_corpus, "SHARED", ROOT / "nowhere")
    first, second = (list(bench_corpus.build(500)) for _ in range(2))
    assert first == second


def test_bulk_load_makes_the_file_that_appends_would(tmp_path: Path) -> None:
    sessions = list(bench_corpus.build(400))
    assert bench_corpus.bulk_load(tmp_path / "bulk.db", sessions) == 400
    report = _check(tmp_path / "bulk.db")
    assert report["ok"], report
    with (
        closing(reference.SessionDB(tmp_path / "bulk.db")) as bulk,
        closing(reference.SessionDB(tmp_path / "slow.db")) as slow,
    ):
        for session in sessions:
            slow.create_session(session["id"], session["source"])
            for message in session["messages"]:
                message = {key: value for key, value in message.items() if key != "timestamp"}
                slow.append_message(session["id"], **message)
        for table in ("messages_fts_content", "messages_fts_trigram_content"):
            sql = f"SELECT * FROM {table} ORDER BY id"
            assert [tuple(row) for row in bulk._rows(sql)] == [tuple(row) for row in slow._rows(sql)]
        schema = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        assert [tuple(row) for row in bulk._rows(schema)] == [tuple(row) for row in slow._rows(schema)]


def test_reference_upgrades_an_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes((ROOT / "tests" / "fixtures" / "v9.db").read_bytes())
    reference.SessionDB(path).close()
    report = _check(path)
    assert report["ok"], report
    assert report["version"] == 11
