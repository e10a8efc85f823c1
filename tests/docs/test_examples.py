"""The programs in examples/ run, and what they say of the file is so."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FIXTURES = ROOT / "tests" / "fixtures"
TOPICS = json.loads((EXAMPLES / "datasette.json").read_text(encoding="utf-8"))
CANNED = TOPICS["databases"]["state"]["queries"]


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with words, letters without spaces, tool calls and a chain, closed."""
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("first", "cli", model="a")
        db.append_message("first", "user", "docker in 桂林山水 has a topic")
        db.append_message("first", "assistant", [{"type": "text", "text": "a list"}])
        db.append_message("first", "assistant", tool_calls=[{"id": "1", "function": {"name": "terminal"}}])
        db.update_token_counts("first", 10, 5, estimated_cost_usd=0.5)
        db.create_session("second", "cli", parent_session_id="first")
    return path


def test_every_example_is_listed_and_run_here() -> None:
    listed = re.findall(r"^\| `(.+?)` \|", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    there = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert set(listed) == there
    mine = Path(__file__).read_text(encoding="utf-8")
    for name in there:
        assert f'"{name}"' in mine, name


def test_a_threaded_gateway_stores_and_finds_everything(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shown = run("threaded_gateway.py", str(path)).stdout
    assert "8 chats stored 800 messages; searches found them" in shown
    assert "telegram: 40000 tokens in, 4000 out" in shown
    with SessionDB(path) as db:
        assert db.check()["ok"]


def test_an_asyncio_gateway_stores_each_message_once(tmp_path: Path) -> None:
    shown = run("asyncio_gateway.py", str(tmp_path / "state.db")).stdout
    assert shown == "400 messages of 40 channels stored\nchannel-7 has 10 messages\n"


def test_two_processes_lose_nothing_when_one_is_killed(tmp_path: Path) -> None:
    assert "every acknowledged message" in run("two_processes.py", str(tmp_path / "state.db")).stdout


@pytest.mark.parametrize("version", [1, 5, 9, 10, 11])
def test_a_file_of_any_version_moves(version: int, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes((FIXTURES / f"v{version}.db").read_bytes())
    before = path.read_bytes()
    shown = run("moving_from_v11.py", str(path)).stdout
    assert f"version {version}, " in shown
    assert ", 1 hit for" in shown
    assert shown.endswith("after: ok\n")
    with closing(sqlite3.connect(tmp_path / "state.db.before-the-move")) as kept:
        assert kept.execute("SELECT max(version) FROM schema_version").fetchone() == (version,)
    assert before != path.read_bytes()


def test_the_file_is_read_without_this_package(store: Path) -> None:
    shown = run("read_with_sqlite3.py", str(store)).stdout
    assert "桂林山水" in shown
    assert "[{'type': 'text', 'text': 'a list'}]" in shown
    assert "hermes_state" not in re.sub(
        r'""".*?"""', "", (EXAMPLES / "read_with_sqlite3.py").read_text(), flags=re.S
    )


def stock(path: Path, sql: str, values: dict[str, str] | None = None) -> list[Any]:
    """A query through the stdlib's SQLite, read only."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as conn:
        return conn.execute(sql, values or {}).fetchall()


def test_the_queries_for_the_shell_answer(store: Path) -> None:
    text = (EXAMPLES / "queries.sql").read_text(encoding="utf-8")
    statements = [part for part in text.split(";\n") if re.sub(r"--.*", "", part).strip()]
    answers = [stock(store, statement) for statement in statements]
    assert all(answers)
    assert answers[2][0][2].strip() == ">>>docker<<< in 桂林山水 has a >>>topic<<<"
    assert answers[4] == [("terminal", 1)]
    assert answers[5] == [("first", "second", 1)]
    assert answers[6] == [(0,)]


def test_the_shell_itself_takes_the_queries(store: Path) -> None:
    shell = shutil.which("sqlite3")
    if shell is None:
        # Where no shell is installed the queries above have still been run by the stdlib's SQLite.
        return
    done = subprocess.run(
        [shell, "-readonly", "-bail", str(store)], input=(EXAMPLES / "queries.sql").read_text("utf-8"),
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "terminal|1" in done.stdout


@pytest.mark.parametrize("name", CANNED)
def test_the_pages_for_datasette_answer(name: str, store: Path) -> None:
    values = {"words": "docker", "letters": "桂林山", "session_id": "first"}
    sql = CANNED[name]["sql"]
    wanted = {key: value for key, value in values.items() if f":{key}" in sql}
    assert stock(store, sql, wanted)


def test_the_tables_that_datasette_is_told_of_exist(store: Path) -> None:
    there = {name for (name,) in stock(store, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert set(TOPICS["databases"]["state"]["tables"]) <= there
