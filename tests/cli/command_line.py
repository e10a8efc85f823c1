"""What the tests of the command line share: a small store, and running commands on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from hermes_state import SessionDB
from hermes_state.cli.commands import root

ROOT = Path(__file__).resolve().parents[2]
DAY_S = 86_400.0


def fill(path: Path) -> None:
    """A store with a compressed conversation, a sub-agent, a branch, tool calls, and costs."""
    with SessionDB(path) as db:
        db.create_session("20260301_root", "cli", model="model-a")
        db.set_session_title("20260301_root", "Trip to Guilin")
        db.append_messages(
            "20260301_root",
            [
                {"role": "user", "content": "五月想去桂林玩, what does the docker health check say?"},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning": "look it up",
                    "tool_calls": [
                        {"id": "c1", "function": {"name": "terminal", "arguments": '{"cmd": "ls"}'}}
                    ],
                },
                {
                    "role": "tool",
                    "tool_call_id": "c1",
                    "tool_name": "terminal",
                    "content": "line one\n" * 200,
                },
                {"role": "assistant", "content": [{"type": "text", "text": "Docker is healthy."}]},
            ],
        )
        db.update_token_counts("20260301_root", 1000, 200, estimated_cost_usd=0.25)
        db.create_session("20260302_agent", "subagent", parent_session_id="20260301_root")
        db.append_message("20260302_agent", "user", "read main.py")
        # Begun while its parent ran, and not by the parent's compression.
        db._conn.execute("UPDATE sessions SET started_at = started_at - 60 WHERE id = '20260302_agent'")
        db.end_session("20260301_root", "compression")
        db.create_session("20260303_tip", "cli", model="model-b", parent_session_id="20260301_root")
        db.append_message("20260303_tip", "user", "and the weather in 桂林?")
        db.update_token_counts("20260303_tip", 10, 5)
        db.create_session("other", "telegram")
        db.append_message("other", "user", "hello there")


def age(path: Path, session_id: str, days: float) -> None:
    """End a session, and let it and its messages be so many days old."""
    with SessionDB(path) as db:
        db.end_session(session_id, "done")
        for table, column, key in (("sessions", "started_at", "id"), ("messages", "timestamp", "session_id")):
            db._conn.execute(
                f"UPDATE {table} SET {column} = {column} - ? WHERE {key} = ?", (days * DAY_S, session_id)
            )


def run(*arguments: str, given: str | bytes | None = None, code: int = 0) -> Result:
    """A command in this process; it must end with ``code``, and never by an exception of its own."""
    result = CliRunner().invoke(root, list(arguments), input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, (arguments, result.output, result.stderr)
    return result


def answer(*arguments: str, code: int = 0) -> Any:
    """What a command prints with ``--json``."""
    return json.loads(run(*arguments, "--json", code=code).stdout)


def process(
    *arguments: str, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, its output piped."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "hermes_state", *arguments],
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False, input=given,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )  # fmt: skip
