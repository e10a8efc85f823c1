"""The size of a file has no part in the memory that its import takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from processes import program

MEGABYTE = 1_000_000
# Mostly reasoning, which is stored and not indexed: so the time goes into reading and storing.
REASONING = "the path moved, so the check that asks for it fails; " * 800
IMPORT = """
import re
from pathlib import Path

with SessionDB(path, trigram="unspaced") as db:
    report = db.import_jsonl(args[0])
    stored_again = db.import_jsonl(args[0]).messages if args[1] == "twice" else 0
# VmHWM is the most that this process ever held, in kB (proc(5), status).
most = int(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) / 1e3
say(most=most, messages=report.messages, problems=report.problem_count, stored_again=stored_again)
"""


def message(number: int) -> dict[str, Any]:
    role = ("user", "assistant")[number % 2]
    return {"role": role, "content": f"message {number} of many", "reasoning": f"{number} {REASONING}"}


def records(file: IO[str], count: int) -> None:
    """Our own export of one session."""
    file.write('{"hermes_state_export": {"format": 1, "schema_version": 11}}\n')
    file.write('{"session": {"id": "long", "source": "cli", "started_at": 1.0}}\n')
    for number in range(count):
        row = {"id": number + 1, "session_id": "long", "timestamp": float(number), **message(number)}
        file.write(json.dumps({"message": row}) + "\n")
    file.write(json.dumps({"end": {"sessions": 1, "messages": count}}) + "\n")


def transcript(file: IO[str], count: int) -> None:
    """A session of one message a line."""
    for number in range(count):
        file.write(json.dumps(message(number)) + "\n")


def chat(file: IO[str], count: int) -> None:
    """OpenAI's form, ten messages a conversation."""
    for first in range(0, count, 10):
        file.write(json.dumps({"messages": [message(first + n) for n in range(10)]}) + "\n")


def peak(write: Callable[[IO[str], int], None], size: int, folder: Path, runs: str) -> float:
    """Megabytes that the process of an import of about ``size`` bytes held at most."""
    folder.mkdir()
    count = size // len(json.dumps(message(1))) // 10 * 10
    source = folder / "in.jsonl"
    with source.open("w") as file:
        write(file, count)
    assert source.stat().st_size > 0.95 * size
    with program(IMPORT, folder / "state.db", source, runs) as running:
        answer = running.answer()
        running.finish()
    assert (answer["messages"], answer["problems"], answer["stored_again"]) == (count, 0, 0)
    for path in folder.iterdir():
        path.unlink()
    return float(answer["most"])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("write", "small", "large", "runs"),
    [(records, 20, 400, "once"), (transcript, 10, 100, "twice"), (chat, 10, 100, "twice")],
    ids=["our-export", "transcript", "chat"],
)
def test_a_file_twenty_times_as_long_takes_no_more_memory(
    write: Callable[[IO[str], int], None], small: int, large: int, runs: str, tmp_path: Path
) -> None:
    few = peak(write, small * MEGABYTE, tmp_path / "small", runs)
    many = peak(write, large * MEGABYTE, tmp_path / "large", runs)
    print(f"peak memory: {few:.1f} MB for {small} MB, {many:.1f} MB for {large} MB: {many / few:.2f}")
    # What varies is how long a checkpoint keeps memory; a tenth of the text would be far more.
    assert many < 1.25 * few + 15
