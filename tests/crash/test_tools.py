"""The tools that kill and that contend: bounded, one table, and a status that tells of losses."""

from __future__ import annotations

import importlib.util
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from processes import ROOT

from hermes_state import SessionDB


def _run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), *arguments], capture_output=True, text=True, timeout=60
    )


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("tool", ["crash.py", "contention.py"])
def test_help_says_what_the_exit_status_means(tool: str) -> None:
    shown = _run(tool, "--help")
    assert shown.returncode == 0
    assert "Exit status 1" in shown.stdout


def test_a_round_of_kills_prints_a_row_a_kind_and_finds_no_fault() -> None:
    done = _run("crash.py", "--kinds", "append,batch", "--rounds", "1", "--kills", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["kind", "append", "batch"]
    assert [line[-1] for line in lines[1:]] == ["0", "0"]


def test_contention_prints_a_row_a_writer_and_loses_nothing() -> None:
    done = _run("contention.py", "--processes", "2", "--threads", "2", "--messages", "20", "--peers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:4]] == ["writer", "p0", "p1", "v11"]
    assert "rows lost 0" in done.stdout


def test_a_number_beyond_the_bounds_is_refused() -> None:
    refused = _run("contention.py", "--processes", "5000")
    assert refused.returncode == 2
    assert "must be 0 to" in refused.stderr


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store from which a message and an index entry went missing."""
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        ids = [db.append_message("s", "user", f"crash {n} 广西") for n in range(5)]
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("DELETE FROM messages WHERE id = ?", (ids[0],))
        conn.execute("DELETE FROM messages_fts WHERE rowid = ?", (ids[3],))
    return path, ids


def test_the_crash_tool_sees_what_is_missing(damaged: tuple[Path, list[int]]) -> None:
    path, ids = damaged
    _, faults = _load("crash").faults_of(path, set(ids), 0)
    told = "\n".join(faults)
    assert "2 acknowledged rows not found by 'crash'" in told
    assert "counters differ" in told
    assert "messages_fts lacks: 1" in told


def test_the_contention_tool_sees_what_is_missing(damaged: tuple[Path, list[int]]) -> None:
    path, ids = damaged
    contention = _load("contention")
    lost = contention.losses(path, [contention.Part("p0", [], ids, [], 1.0)])
    assert lost["rows lost"] == 1
    assert lost["rows messages_fts lacks"] == 1
    assert lost["counters that differ"] == 1
