"""The command line: what the demo stores, checks, reports and refuses."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_state import SessionDB, __version__
from hermes_state.cli import demo, loading, queries, records
from hermes_state.cli.commands import root
from hermes_state.cli.screen import clean, marked

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
INPUTS = [demo.SAMPLE, *sorted(SHARED.glob("cjk*.jsonl.gz")), *sorted(SHARED.glob("odd*.jsonl.gz"))]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes_state", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        encoding=environment.setdefault("PYTHONIOENCODING", "utf-8"), env={**os.environ, **environment},
    )  # fmt: skip


def line(session_id: str, *messages: dict[str, Any], **more: Any) -> str:
    return json.dumps({"id": session_id, "source": "cli", "messages": list(messages), **more})


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(*lines: str | bytes, name: str = "input.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join((x if isinstance(x, bytes) else x.encode()) + b"\n" for x in lines))
        return path

    return written


def report_of(path: Path, *more: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The JSON report of a demo on a file, and what went to standard error."""
    done = run("demo", "--json", "--input", str(path), *more)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


# -- the whole run --


def test_the_demo_runs_without_set_up_and_says_that_all_of_it_passed(tmp_path: Path) -> None:
    done = run("demo", TMPDIR=str(tmp_path), HERMES_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Every check of this run passed." in done.stdout
    assert "\x1b" not in done.stdout
    shown = " ".join(done.stdout.split())  # lines are broken where they are full
    for text in (">>>广西<<<", ">>>ｶﾀｶﾅ<<<", ">>>서울역<<<", ">>>youer<<<", ">>>50<<<% >>>of<<< $>>>5<<<"):
        assert text in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_a_file_is_stored_whole_and_reads_back_equal(path: Path) -> None:
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    sizes = [len(json.loads(text)["messages"]) for text in lines]
    report, stderr = report_of(path)
    assert stderr == ""
    assert report["ok"] is True
    assert report["loaded"]["sessions"] == report["verified"]["sessions"] == len(sizes)
    assert report["loaded"]["messages"] == report["verified"]["equal"] == sum(sizes)
    assert report["verified"]["exact"] is True
    assert report["totals"]["messages"] == sum(sizes) + report["live"]["messages"]
    assert len(report["searches"]) > 8


@pytest.mark.parametrize("indexing", ["background", "inline"])
@pytest.mark.parametrize("trigram", ["all", "unspaced"])
def test_every_mode_passes_every_check_of_the_demo(indexing: str, trigram: str) -> None:
    done = run("demo", "--json", "--indexing", indexing, "--trigram", trigram)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["store"]["indexing"], report["store"]["trigram"]) == (indexing, trigram)
    found = {search["query"]: search["hits"] for search in report["searches"]}
    assert all(found[query.text] for query in (*queries.SAMPLE, *queries.LIVE) if query.must_hit)


def test_a_compressed_conversation_is_one_entry_under_its_tip() -> None:
    report = json.loads(run("demo", "--json").stdout)
    lineage = report["lineage"]
    assert [link["end_reason"] for link in lineage["chain"]] == ["compression", "compression", None]
    assert lineage["tip"] == lineage["resume"] == lineage["chain"][-1]["id"]
    (listed,) = lineage["listed"]
    assert (listed["id"], listed["_lineage_root_id"]) == (lineage["tip"], lineage["chain"][0]["id"])
    assert lineage["replayed_messages"] == sum(link["message_count"] for link in lineage["chain"])


def test_a_kept_store_is_an_ordinary_store(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    done = run("demo", "--json", "--db", str(path))
    assert done.returncode == 0, done.stderr
    with SessionDB(path) as db:
        assert db.session_count() == json.loads(done.stdout)["totals"]["sessions"]
        assert db.search_messages("桂林")


def test_a_store_that_exists_is_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("mine", "cli")
    before = path.read_bytes()
    done = run("demo", "--db", str(path))
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert path.read_bytes() == before


def test_a_store_that_cannot_be_made_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("demo", "--db", str(tmp_path / "file" / "state.db"))
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


# -- lines that are no sessions --

BAD = {
    "not JSON": b"{'id': 1}",
    "NaN is no JSON value": b'{"id": "a", "source": "cli", "messages": [], "x": NaN}',
    "not UTF-8": b'{"id": "\xff"}',
    "not a JSON object": b"[1]",
    "no 'messages': one session a line is read": b'{"id": "a", "source": "cli"}',
    "'messages' is not a list": b'{"id": "a", "source": "cli", "messages": {}}',
    "'id' is missing": b'{"source": "cli", "messages": []}',
    "'source' is missing": b'{"id": "a", "messages": []}',
    "'id' holds half a surrogate pair": b'{"id": "\\ud83d", "source": "cli", "messages": []}',
    "'title' is not text": b'{"id": "a", "source": "cli", "messages": [], "title": 1}',
    "message 0 is not an object": b'{"id": "a", "source": "cli", "messages": [1]}',
    "message 0: 'role' is missing": line("a", {"content": "x"}).encode(),
    "message 1: 'content' is neither": line("a", user("x"), user(5)).encode(),
    "message 0: 'tool_calls' is not a list": line("a", user("x", tool_calls="[]")).encode(),
    "message 0: 'reasoning' is not text": line("a", user("x", reasoning=[1])).encode(),
    "message 0: 'timestamp' is not a time": line("a", user("x", timestamp="yesterday")).encode(),
    "message 0: 'timestamp' is neither": line("a", user("x", timestamp=True)).encode(),
    "message 0: 'token_count' is not a whole number": line("a", user("x", token_count=2**63)).encode(),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_line_that_is_no_session_says_why(reason: str) -> None:
    with pytest.raises(records.BadRecord) as caught:
        records.parse(BAD[reason], 1)
    assert reason in str(caught.value)


def test_bad_lines_are_named_by_file_and_line_and_the_rest_goes_on(write: Callable[..., Path]) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    path = write(
        line("a", user("first words")),
        *BAD.values(),
        "",
        line("a", user("the same id")),
        line("child", user("x"), parent="nobody"),
        line("deep", user("stays out"), user(deep)),
        line("z", user("last words")),
    )
    report, stderr = report_of(path, code=1)
    refused = len(BAD) + 3
    assert report["loaded"]["refused"] == refused == len(stderr.splitlines())
    assert report["loaded"]["sessions"] == 2
    assert report["verified"] == {**report["verified"], "exact": True, "equal": 2}
    assert report["totals"]["sessions"] == 4
    assert [p["line"] for p in report["problems"]] == [
        *range(2, refused - 1),
        refused,
        refused + 1,
        refused + 2,
    ]
    for text, problem in zip(stderr.splitlines(), report["problems"], strict=True):
        assert text.startswith(f"{path}:{problem['line']}: ")
    assert report["failures"] == [f"{refused} lines of the file were not stored"]


def test_a_gzip_file_cut_short_keeps_what_was_whole(tmp_path: Path) -> None:
    whole = gzip.compress(
        "".join(f"{line(f's{i}', user(os.urandom(900).hex()))}\n" for i in range(200)).encode()
    )
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    report, stderr = report_of(path, code=1)
    assert 0 < report["loaded"]["sessions"] < 200
    assert report["verified"]["exact"] is True
    assert "cut short" in stderr


def test_gzip_is_known_by_its_first_bytes_and_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "no_suffix"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + line("a", user("x")).encode()))
    (record,) = records.Reader(path)
    assert isinstance(record, records.Record)
    assert record.id == "a"


def test_an_empty_file_is_an_empty_store(write: Callable[..., Path]) -> None:
    report, _ = report_of(write(b"", name="empty.jsonl"))
    assert report["loaded"]["sessions"] == 0
    assert report["totals"]["sessions"] == 2


# -- exactness --


def test_what_utf8_cannot_hold_is_mended_counted_and_said(write: Callable[..., Path]) -> None:
    path = write(line("a", user("hi \ud83d there"), user([{"type": "text", "text": "\ud83d"}])))
    report, _ = report_of(path)
    assert (report["verified"]["equal"], report["verified"]["mended"]) == (1, 1)
    assert "U+FFFD" in run("demo", "--input", str(path)).stdout


def test_every_column_is_compared_by_value_type_and_order(tmp_path: Path) -> None:
    given = {"role": "user", "content": [{"a": 1, "b": True}], "timestamp": 5.0, "token_count": 1}
    with SessionDB(tmp_path / "state.db") as db:
        db.create_session("s", "cli")
        db.append_messages("s", [given])
        (got,) = db.get_messages("s")
    assert loading.different_columns(given, got) == []
    for column, value in {
        "content": [{"b": True, "a": 1}],
        "role": "tool",
        "tool_calls": [{"id": "x"}],
        "reasoning": "",
        "reasoning_details": [1],
        "token_count": True,
        "timestamp": 6.0,
    }.items():
        assert loading.different_columns({**given, column: value}, got) == [column]
    assert loading.different_columns({**given, "content": [{"a": 1.0, "b": True}]}, got) == ["content"]


def test_verification_notices_a_message_that_changed_or_went(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    path = write(line("a", user("one"), user("two")), line("b", user("three")))
    reader = records.Reader(path)
    with SessionDB(tmp_path / "state.db") as db:
        loaded = loading.load(db, reader, lambda problem: None, lambda record: None)
        assert loading.verify(db, reader, loaded).exact
        db.replace_messages("a", [user("one"), user("other")])
        db.clear_messages("b")
        found = loading.verify(db, reader, loaded)
    assert not found.exact
    text = "\n".join(found.differences)
    assert "line 1, message 1: content" in text
    assert "line 2: 0 messages, not 1" in text
    assert "the store counts 2 messages, the file 3" in text


def test_times_are_kept_and_one_without_a_zone_counts_as_utc(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    stamps = ["2026-03-02T09:15:00Z", "2026-03-02T10:15:00+01:00", "2026-03-02T09:15:00", 1772442900]
    path = write(line("a", *(user("x", timestamp=stamp) for stamp in stamps)))
    with SessionDB(tmp_path / "state.db") as db:
        loading.load(db, records.Reader(path), lambda problem: None, lambda record: None)
        assert {message["timestamp"] for message in db.get_messages("a")} == {1772442900.0}


def test_titles_are_numbered_and_cut_and_a_session_keeps_its_parent_and_end(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    path = write(
        line("a", user("x"), title="same", end_reason="branched"),
        line("b", user("x"), title="same", parent="a"),
        line("c", user("x"), title="t" * 150),
    )
    with SessionDB(tmp_path / "state.db") as db:
        loaded = loading.load(db, records.Reader(path), lambda problem: None, lambda record: None)
        assert loaded.titles_changed == 2
        assert [db.get_session_title(i) for i in "abc"] == ["same", "same #2", "t" * 100]
        child = db.get_session("b")
        parent = db.get_session("a")
    assert child is not None
    assert parent is not None
    assert (child["parent_session_id"], parent["end_reason"]) == ("a", "branched")


def test_which_lines_were_stored_is_one_bit_each() -> None:
    accepted = loading.Accepted()
    for number in (1, 8, 9, 100_000):
        accepted.add(number)
    assert [number for number in range(200_000) if number in accepted] == [1, 8, 9, 100_000]
    assert 10**12 not in accepted


def test_a_file_is_read_one_session_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl.gz"
    text = line("a", user("word " * 20_000)).encode() + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as out:
        for _ in range(200):
            out.write(text)
    tracemalloc.start()
    try:
        assert sum(1 for _ in records.Reader(path)) == 200
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text), f"{peak} bytes for lines of {len(text)}"


# -- queries that are picked --


def test_the_picked_queries_come_from_the_file_and_each_finds_something(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    path = write(
        line("a", user("please check src/main.py for the winter timetable"), user("五月想去桂林玩 please")),
        line("b", user("京都のホテルを探す"), user("서울역에서 부산역까지"), user("cafés naïve łódź xcafés")),
        line("c", {"role": "tool", "content": None, "tool_name": "read_file"}, user("x" * 5000 + " tail")),
    )
    picker = queries.Picker()
    with SessionDB(tmp_path / "state.db") as db:
        loading.load(db, records.Reader(path), lambda problem: None, picker.see)
        picked = picker.queries()
        for query in picked:
            assert db.search_messages(query.text), query
    texts = [query.text for query in picked]
    assert {"please", "read_file", "src/main.py"} <= set(texts)
    assert any(" AND " in text for text in texts)
    assert any(text.startswith('"') for text in texts)


def test_a_file_without_text_gives_no_queries() -> None:
    picker = queries.Picker()
    picker.see(records.parse(line("a", user(None), user("")).encode(), 1))
    assert picker.queries() == []


def test_the_picker_stops_learning_new_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_WORDS", 3)
    picker = queries.Picker()
    picker.see(records.parse(line("a", user("aaaa bbbb cccc dddd eeee aaaa")).encode(), 1))
    assert picker.queries()[0].text == "aaaa"
    assert len(picker._words) == 3


# -- what a terminal is shown --


def test_text_of_messages_never_steers_the_terminal(write: Callable[..., Path]) -> None:
    hostile = "\x1b]0;title\x07 \x1b[2J red[/bold] [link=x]y[/link] \u202eevil \r over \x9b31m winter"
    done = run("demo", "--input", str(write(line("a", user(hostile), title=hostile, model="\x1b[1m"))))
    assert done.returncode == 0, done.stderr
    assert not {c for c in done.stdout if c in "\x1b\x07\x9b\u202e\r"}
    assert "[link=x]y[/link]" in done.stdout


def test_shown_text_is_one_bounded_line_and_keeps_joined_emoji() -> None:
    assert clean("a\n b\t c") == "a b c"
    assert clean("👩\u200d👩\u200d👧") == "👩\u200d👩\u200d👧"
    assert clean("\x00\u200e") == "\\x00\\u200e"
    assert len(clean("x" * 10_000)) == 220
    assert marked("a >>>b<<< c").plain == "a >>>b<<< c"


def test_output_that_cannot_show_a_character_shows_its_escape() -> None:
    done = run("demo", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "\\u5e7f\\u897f" in done.stdout


# -- the command itself --


def test_version_and_help_name_the_commands() -> None:
    assert CliRunner().invoke(root, ["--version"]).output == f"hermes-state, version {__version__}\n"
    assert "demo" in CliRunner().invoke(root, ["--help"]).output
    assert run("--version").stdout == f"hermes-state, version {__version__}\n"


def test_both_modules_are_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hermes_state.cli", "--version"], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"hermes-state, version {__version__}\n"


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from hermes_state.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'hermes-state[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_store_itself_needs_neither_click_nor_rich() -> None:
    code = "import sys, hermes_state; assert not {'click', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
