"""Other processes for tests: programs on our store, programs on the older one, and a look at what is left.

A program is a few lines of Python run by ``python -c`` after ``PREAMBLE``. It
meets the test at ``barrier()``, answers with ``say(...)`` (one JSON object a
line), and is waited for, or killed, by the test. Nothing here opens a database
while a store of the test's own process has it open, but ``sound`` and ``value``:
call those after ``close()``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "tests" / "peers" / "v11_peer.py"
TIMEOUT = 300.0
"""Seconds after which a program hangs, on a busy machine, too."""
PEER_ENV = {"V11_TIMEOUT": "60"}
"""The older program has a second of patience; whoever holds the lock may stand still for longer here."""
INDEXES = ("messages_fts", "messages_fts_trigram")

PREAMBLE = (
    f"TESTS = {str(ROOT / 'tests')!r}"
    + """
import faulthandler, json, os, signal, sys, threading, time, warnings
from hermes_state import SessionDB, errors
sys.path.append(TESTS)
import limits
limits.stretch()
faulthandler.enable()
path, *args = sys.argv[1:]

def say(**answer):
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()

def barrier():
    print("READY", flush=True)
    sys.stdin.readline()
"""
)


class Program:
    """A running program. As a context manager it is killed at the end if it still runs."""

    def __init__(self, arguments: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def line(self) -> str:
        """The next line of its output, without the newline; empty at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ready(self) -> Program:
        """Wait until it stands at its barrier."""
        line = self.line()
        assert line == "READY", line or self._error()
        return self

    def go(self) -> Program:
        """Let it pass the barrier."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def answer(self) -> Any:
        """The next line of its output, from JSON."""
        line = self.line()
        assert line, self._error()
        return json.loads(line)

    def finish(self, status: int | None = 0) -> list[Any]:
        """Wait for its end; what it still said. Fails on another exit status than ``status``."""
        try:
            out, err = self.process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler then tells where it hangs
            out, err = self.process.communicate(timeout=TIMEOUT)
            raise AssertionError(f"it did not end: {out[-1000:]} {err[-4000:]}") from None
        assert status is None or self.process.returncode == status, (
            self.process.returncode,
            out[-2000:],
            err,
        )
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def kill(self) -> list[Any]:
        """SIGKILL, and what it had said by then (a torn last line is left out)."""
        self.process.kill()
        out, _ = self.process.communicate(timeout=TIMEOUT)
        whole = out[: out.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def signal(self, number: int = signal.SIGINT) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def _error(self) -> str:
        out, err = self.process.communicate(timeout=TIMEOUT)
        return f"status {self.process.returncode}: {out[-1000:]} {err}"

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # it ended before it read what was written
        self.process.wait(timeout=TIMEOUT)


def program(code: str, path: Path | str, *args: object, options: tuple[str, ...] = (), **env: str) -> Program:
    """Start ``code`` as a program of its own on ``path``; it finds ``args`` as strings in ``args``."""
    return Program([sys.executable, *options, "-c", PREAMBLE + code, str(path), *map(str, args)], env)


def peer(path: Path | str, command: str, *arguments: object) -> Program:
    """Start the v11-style program with a command and its options."""
    return Program([sys.executable, str(PEER), str(path), command, *map(str, arguments)], PEER_ENV)


def peer_says(path: Path | str, command: str, *arguments: object) -> Any:
    """Run the v11-style program to its end; the last thing that it said."""
    with peer(path, command, *arguments) as running:
        return running.finish()[-1]


_ELSEWHERE = """
import ast, sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=300)
for sql, rows in ast.literal_eval(sys.stdin.read()):
    found = conn.execute(sql).fetchall() if rows is None else conn.executemany(sql, rows).fetchall()
conn.commit()
conn.close()
print(repr(found))
"""


def elsewhere(
    path: Path | str, *statements: str | tuple[str, list[tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    """Run SQL through the stdlib in another process, in one transaction; the last statement's rows.

    A statement with a list of rows is run once for each.
    """
    given = [(each, None) if isinstance(each, str) else each for each in statements]
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, str(path)],
        input=repr(given), capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[tuple[Any, ...]] = ast.literal_eval(done.stdout)
    return found


def fixtures() -> ModuleType:
    """tools/make_fixtures.py as a module."""
    name = "make_fixtures"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "make_fixtures.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def value(path: Path | str, sql: str, *params: Any) -> Any:
    """The first column of the first row, through the stdlib."""
    with closing(sqlite3.connect(path, timeout=300)) as conn:
        row = conn.execute(sql, params).fetchone()
        return None if row is None else row[0]


def sound(path: Path | str) -> set[int]:
    """Fail unless file, both indexes, counters and stamp agree with the rows; returns the message ids."""
    with closing(sqlite3.connect(path, timeout=300)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
        assert conn.execute("SELECT version FROM schema_version").fetchall() == [(11,)]
        ids = {row[0] for row in conn.execute("SELECT id FROM messages")}
        for name in INDEXES:
            conn.execute(f"INSERT INTO {name}({name}) VALUES ('integrity-check')")
            indexed = {row[0] for row in conn.execute(f"SELECT id FROM {name}_docsize")}
            assert ids - indexed == set(), f"rows that {name} lacks"
            assert indexed - ids == set(), f"rows that {name} has too many"
        words = {row[0] for row in conn.execute("SELECT id FROM hs_fts_words_docsize")}
        assert words - ids == set(), "rows that hs_fts_words has too many"
        wrong = conn.execute(
            "SELECT id, message_count FROM sessions s WHERE message_count IS NOT NULL AND message_count <>"
            " (SELECT count(*) FROM messages m WHERE m.session_id = s.id)"
        ).fetchall()
        assert wrong == [], "sessions whose counter is not the number of their rows"
        return ids


def wait_until_released() -> None:
    """Wait for the threads that close what a garbage collector found, and fail if a store stays open.

    They have no name to be found by and still index when the worker has gone, so the engine is waited for.
    """
    from hermes_state.engine import registry

    until(lambda: not registry.open_engines(), "no store is open any more")


def until(true: Callable[[], object], what: str) -> None:
    """Wait until ``true()`` is: looked at 10,000 times, however long the machine stands still in between."""
    for _ in range(10_000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError(f"it never came: {what}")


def threads_of_the_store() -> list[str]:
    """Names of the live threads that the store started in this process."""
    import threading

    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hermes_state")]
