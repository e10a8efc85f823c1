"""The conversations that tests and the demo use are there, well formed and of the kinds they promise."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("tests_corpus", TESTS / "corpus.py")
assert _spec is not None
assert _spec.loader is not None
corpus: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(corpus)


def test_sample_tells_of_every_kind_of_conversation() -> None:
    sample = list(corpus.sessions("sample"))
    messages = [message for session in sample for message in session["messages"]]
    assert len(sample) >= 14
    assert len(messages) >= 150
    assert len({session["id"] for session in sample}) == len(sample)
    assert {message["role"] for message in messages} == {"system", "user", "assistant", "tool"}
    assert any(isinstance(message["content"], list) for message in messages)
    assert any(message.get("reasoning") for message in messages)
    assert any(len(message.get("tool_calls", ())) > 1 for message in messages)
    text = json.dumps(sample, ensure_ascii=False)
    for word in (
        "docker",
        "广西",
        "桂林",
        "考勤",
        "报告",
        "京都",
        "ｶﾀｶﾅ",
        "서울역",
        "修改youer服务端的计划",
        "👩‍👩‍👧‍👦",
    ):
        assert word in text


def test_sample_has_a_compression_chain_of_three_and_a_branch() -> None:
    by_id = {session["id"]: session for session in corpus.sessions("sample")}
    children = {session["parent"]: session for session in by_id.values() if "parent" in session}
    assert set(children) <= set(by_id)
    assert sorted(by_id[parent]["end_reason"] for parent in children) == [
        "branched",
        "compression",
        "compression",
    ]
    for parent, child in children.items():
        last = by_id[parent]["messages"][-1]["timestamp"]
        assert corpus.epoch(child["started_at"]) >= corpus.epoch(last)


def test_every_tool_result_in_the_sample_answers_a_call_before_it() -> None:
    for session in corpus.sessions("sample"):
        open_calls: dict[str, str] = {}
        for message in session["messages"]:
            for call in message.get("tool_calls", ()):
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                open_calls[call["id"]] = call["function"]["name"]
            if message["role"] == "tool":
                assert open_calls.pop(message["tool_call_id"]) == message["tool_name"]
        assert not open_calls


@pytest.mark.parametrize("name", ["agent", "cjk", "odd", "all"])
def test_each_name_gives_sessions_whether_or_not_the_shared_data_are_here(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(list(corpus.sessions(name, limit=5))) == 5
    monkeypatch.setattr(corpus, "SHARED", TESTS / "nowhere")
    assert not corpus.has_shared(name)
    given = list(corpus.sessions(name))
    assert len(given) >= 6
    if name == "cjk":
        assert all(corpus.is_cjk(session["title"]) for session in given)


def test_message_arguments_are_those_that_append_message_takes() -> None:
    for session in corpus.sessions("all", limit=50):
        for message in session["messages"]:
            assert set(message) - {"timestamp"} == set(corpus.message_kwargs(message))
            if "timestamp" in message:
                assert corpus.replace_dict(message)["timestamp"] > 1e9


def test_a_time_without_a_zone_counts_as_utc() -> None:
    assert corpus.epoch("2026-03-02T09:15:00") == corpus.epoch("2026-03-02T09:15:00Z")
    assert corpus.epoch("2026-03-02T10:15:00+01:00") == corpus.epoch("2026-03-02T09:15:00Z")
