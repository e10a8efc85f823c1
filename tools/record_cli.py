"""Run every command of ``hermes-state`` on a store of 50,000 messages, and write down what it did.

The store is made in a temporary folder from the conversations of the benchmarks. Each command is a
process of its own with 80 columns and its bars on a terminal; its time, peak memory, exit code and the
percentages that its bar showed are kept, and the beginning of what it printed. Beside every command that
allows it a gateway lives: a process that appends to the same store every 20 ms. Its worst append says
what the command cost others.

    python tools/record_cli.py --write docs/cli-record.md

The table stands at the end of the output. Exit status: 0 when every command ended as it should and no message
of the gateway was lost, 1 otherwise.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import apsw
from rich.cells import cell_len

ROOT = Path(__file__).resolve().parent.parent
BUILDER = Path(__file__).with_name("record_stores.py")
COLUMNS = 80
SHOWN_LINES = 10
PAUSE_S = 0.02
"""Between two appends of the gateway, seconds."""

GATEWAY = """
import sys, threading, time
from hermes_state import SessionDB
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
with SessionDB(sys.argv[1]) as db:
    db.ensure_session("gateway", "telegram")
    number = 0
    while not over.is_set():
        begun = time.monotonic()
        db.append_message("gateway", "user", f"live message {number} while commands run")
        print(begun, time.monotonic() - begun, flush=True)
        number += 1
        over.wait(float(sys.argv[2]))
"""

COMMAND = """
import atexit, sys
from pathlib import Path
where, status = Path(sys.argv.pop(1)), Path("/proc/self/status")
atexit.register(lambda: where.write_text(status.read_text() if status.exists() else ""))
from hermes_state.cli import main
main()
"""


@dataclass(frozen=True)
class Step:
    """A command to run.

    Attributes:
        command: its words; ``$TMP`` in one is the folder.
        code: the exit code that it must have.
        live: the gateway goes on beside it.
        stdin: a file that is given to it.
    """

    command: str
    code: int = 0
    live: bool = True
    stdin: str = ""

    @property
    def words(self) -> list[str]:
        return re.findall(r"'[^']*'|\S+", self.command)


@dataclass
class Run:
    """What a command did: seconds, peak memory in MB, and the gateway's appends meanwhile, in seconds."""

    step: Step
    code: int
    seconds: float
    memory_mb: float
    output: str
    notes: str
    percentages: list[int]
    appends: list[float] = field(default_factory=list)


LOOKING = (
    Step("doctor"),
    Step("stats"),
    Step("stats --json"),
    Step("list --limit 6"),
    Step("list --source cron --limit 1 --json"),
    Step("show plan --last 3"),
    Step("show plan --json"),
    Step("search docker --limit 2"),
    Step("search 酒店 --limit 2"),
    Step("search 予約 --limit 2 --no-context"),
    Step("search 예약 --limit 1 --sort newest"),
    Step("search 'docker OR 酒店' --limit 1 --json"),
    Step("search the --limit 1 --explain --no-context"),
    Step("search --substring ocke --limit 1 --no-context"),
    Step("lineage 20260301_plan_2"),
    Step("lineage 20260301_plan_2 --json"),
)
MOVING = (
    Step("export 20260301_plan_2 --format markdown"),
    Step("export 20260301_plan_2"),
    Step("export -o $TMP/all.jsonl"),
    Step("export -o $TMP/all.jsonl.gz"),
    Step("export --format sessions -o $TMP/sessions.jsonl --json"),
    Step("export --format markdown -o $TMP/all.md"),
    Step("import $TMP/all.jsonl --db $TMP/new.db"),
    Step("import $TMP/all.jsonl --db $TMP/new.db"),
    Step("import $TMP/transcripts --db $TMP/transcripts.db"),
    Step("import $TMP/transcripts --db $TMP/transcripts.db"),
    Step("import $TMP/chat.jsonl --db $TMP/chat.db"),
    Step("import $TMP/chat.jsonl --db $TMP/chat.db --json"),
    Step("import - --db $TMP/new.db", stdin="$TMP/bad.jsonl", code=1),
    Step("backup $TMP/backup.db"),
    Step("backup $TMP/backup.db --force --json"),
)
KEEPING = (
    Step("check --quick"),
    Step("check"),
    Step("optimize"),
    Step("optimize --trigram unspaced"),
    Step("optimize --trigram all --json"),
    Step("optimize --rebuild"),
    Step("prune --older-than 10 --dry-run"),
    Step("prune --older-than 10 --yes"),
    Step("vacuum --yes"),
    Step("vacuum --incremental --yes"),
    Step("prune --older-than 5 --yes --json"),
    Step("vacuum --incremental --yes --json"),
    Step("repair"),
    Step("upgrade --db $TMP/v10.db --dry-run"),
    Step("list --db $TMP/v10.db", code=1),
    Step("upgrade --db $TMP/v10.db"),
    Step("check --db $TMP/index.db", code=1),
    Step("repair --db $TMP/index.db"),
    Step("check --db $TMP/pages.db", code=1),
    Step("salvage $TMP/salvaged.db --db $TMP/pages.db", code=1),
    Step("restore $TMP/backup.db --yes", code=1),
    Step("restore $TMP/backup.db --yes", live=False),
    Step("doctor --json", live=False),
    Step("demo --input $TMP/conversations.jsonl", live=False),
    Step("demo --json", live=False),
    Step("show nothing", code=1, live=False),
    Step("list --limit many", code=2, live=False),
)


class Gateway:
    """The process that appends beside the commands."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "gateway.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", GATEWAY, str(store_of(folder)), str(PAUSE_S)],
                stdin=subprocess.PIPE, stdout=log, text=True,
            )  # fmt: skip
        while not self.appends(0.0):
            if self._process.poll() is not None:
                raise RuntimeError("the gateway did not start")
            time.sleep(0.05)

    def appends(self, since: float, until: float = float("inf")) -> list[float]:
        """Seconds of each append that overlaps the span (of ``time.monotonic``)."""
        lines = self._log.read_text().splitlines()
        spans = [tuple(map(float, line.split())) for line in lines if len(line.split()) == 2]
        return [took for begun, took in spans if begun < until and begun + took > since]

    def wait_for(self, moment: float) -> None:
        """Return once an append has ended that began after the moment: earlier ones are then in the log."""
        while self._process.poll() is None and not self.appends(moment):
            time.sleep(PAUSE_S)

    def stop(self) -> int:
        """End it; how many messages it stored."""
        if self._process.poll() is None:
            self._process.communicate("", timeout=120)
        return len(self.appends(0.0))


def store_of(folder: Path) -> Path:
    """The store that commands find without ``--db``."""
    return folder / "home" / "state.db"


def run(step: Step, folder: Path, longest_s: float) -> Run:
    """Run one command with its errors on a terminal of 80 columns, its output in a pipe."""
    words = [word.strip("'").replace("$TMP", str(folder)) for word in step.words]
    environment = {
        **os.environ, "HERMES_HOME": str(folder / "home"), "COLUMNS": str(COLUMNS), "TERM": "xterm",
        "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "TZ": "UTC",
    }  # fmt: skip
    master, slave = os.openpty()
    heard: list[bytes] = []
    with tempfile.TemporaryFile() as output:
        given = open(step.stdin.replace("$TMP", str(folder)) or os.devnull, "rb")  # noqa: SIM115
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(folder / "status"), *words],
            stdin=given, stdout=output, stderr=slave, env=environment, cwd=folder,
        )  # fmt: skip
        given.close()
        os.close(slave)
        listener = threading.Thread(target=_listen, args=(master, heard))
        listener.start()
        alarm = threading.Timer(longest_s, process.kill)
        alarm.start()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        alarm.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        listener.join()
        output.seek(0)
        said = output.read().decode("utf-8")
    frames = b"".join(heard).decode("utf-8", "replace")
    return Run(
        step, process.returncode, seconds, _peak(folder / "status", used.ru_maxrss), said, _notes(frames),
        [int(number) for number in re.findall(r"(\d+) %", frames)],
    )  # fmt: skip


def _peak(status: Path, most: int) -> float:
    """Megabytes that the command held at most.

    VmHWM of proc(5), which it left in a file; where there is none getrusage(2)'s maximum, in which a process
    inherits what its parent held.
    """
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status.read_text()) if status.exists() else None
    if found is None:
        return most * (1 if sys.platform == "darwin" else 1024) / 1e6
    status.unlink()
    return int(found[1]) * 1024 / 1e6


def _listen(master: int, heard: list[bytes]) -> None:
    """What comes out of the terminal, until its other end is closed (Linux then gives an error)."""
    try:
        while piece := os.read(master, 65536):
            heard.append(piece)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(master)


def _notes(frames: str) -> str:
    """The lines on the terminal that are no bar, and hold no control sequences."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames)
    lines = [line.strip() for line in re.split(r"[\r\n]+", plain)]
    return "\n".join(line for line in lines if line and not re.search(r"[━╸╺]|\d %", line))


def all_runs(folder: Path, longest_s: float) -> Iterator[Run]:
    """Every command, one after the other, with the gateway's appends in it."""
    gateway: Gateway | None = Gateway(folder)
    quiet = time.monotonic()
    time.sleep(2.0)
    idle = Run(
        Step("(no command for 2 s)"), 0, 2.0, 0.0, "", "", [], gateway.appends(quiet) if gateway else []
    )
    yield idle
    try:
        for step in (*LOOKING, *MOVING, *KEEPING):
            if not step.live and gateway is not None:
                stored = gateway.stop()
                gateway = None
                _prove(folder, stored)
            begun = time.monotonic()
            done = run(step, folder, longest_s)
            if gateway is not None:
                ended = time.monotonic()
                gateway.wait_for(ended)
                done.appends = gateway.appends(begun, ended)
            print(f"{done.seconds:7.2f} s  exit {done.code}  {step.command}", file=sys.stderr)
            yield done
    finally:
        if gateway is not None:
            gateway.stop()


def _prove(folder: Path, stored: int) -> None:
    """Every message of the gateway is in the store, and is found."""
    words = ["search", "live message", "--role", "user", "--limit", "-1", "--no-context", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "hermes_state", *words, "--db", str(store_of(folder))],
        capture_output=True, check=True,
    )  # fmt: skip
    found = sum(hit["session_id"] == "gateway" for hit in json.loads(done.stdout)["hits"])
    if found != stored:
        raise RuntimeError(f"the gateway stored {stored} messages, and a search finds {found}")


# -- the record --


def milliseconds(values: Sequence[float]) -> str:
    """The longest of them; a dash where there are none."""
    return f"{1000 * max(values):,.1f}" if values else "-"


def row(done: Run) -> list[str]:
    """A line of the table."""
    bar = sorted(set(done.percentages))
    memory = f"{done.memory_mb:,.0f}" if done.memory_mb else "-"
    code = str(done.code) if done.code == done.step.code else f"{done.code}, not {done.step.code}"
    return [
        done.step.command, f"{done.seconds:,.2f}", memory, code,
        f"{len(bar)}" if len(bar) > 1 else "-", f"{len(done.appends):,}" if done.appends else "-",
        milliseconds(done.appends),
    ]  # fmt: skip


HEAD = ["command", "seconds", "peak MB", "exit", "bar", "appends beside it", "worst append, ms"]


def table(runs: Sequence[Run]) -> str:
    """A Markdown table of all runs."""
    lines = [HEAD, [":--" if name == "command" else "--:" for name in HEAD]]
    for done in runs:
        first, *rest = row(done)
        lines.append([first if done.step.command.startswith("(") else f"`{first}`", *rest])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def shown(text: str, folder: Path, most: int) -> list[str]:
    """The first lines, with neutral paths, none longer than the terminal is wide."""
    text = text.replace(str(folder / "home"), "~/.hermes").replace(str(folder), "$TMP")
    text = re.sub(r"/[^\s\"]*/hermes_state_\w+/", "$TMP/", text)
    lines = text.rstrip().splitlines()
    more = len(lines) - most
    if more > 1:
        lines = [*lines[:most], f"... ({more:,} more lines)"]
    return [line if cell_len(line) <= COLUMNS else f"{chop(line, COLUMNS - 1)}…" for line in lines]


def chop(line: str, cells: int) -> str:
    """As much of a line as fits so many cells of a terminal."""
    line = line[:cells]  # a character has one or two cells, a few have none
    while cell_len(line) > cells:
        line = line[:-1]
    return line


def record(runs: Sequence[Run], folder: Path, size: str) -> str:
    """The whole page."""
    parts = [INTRODUCTION.format(
        size=size, python=platform.python_version(), sqlite=apsw.sqlite_lib_version(), columns=COLUMNS,
        pause=1000 * PAUSE_S, cores=os.cpu_count(),
    ), table(runs), "", "## What they print", ""]  # fmt: skip
    for done in runs[1:]:
        given = f" < {done.step.stdin}" if done.step.stdin else ""
        parts += ["```text", f"$ hermes-state {done.step.command}{given}"]
        parts += shown(done.output, folder, SHOWN_LINES)
        parts += shown(done.notes, folder, 3)
        parts += ["```", ""]
    return "\n".join(parts)


INTRODUCTION = """\
# The commands on a store of 50,000 messages

Every command of [the command line](cli.md), run one after the other, each in a process of its own. The store,
`~/.hermes/state.db`, began with {size};
`$TMP` is a folder for the rest. Made by

```sh
python tools/record_cli.py --write docs/cli-record.md
```

with Python {python} and SQLite {sqlite} on {cores} cores; output is cut to {columns} columns and a few
lines. The table has of each command its time from start to end (starting Python included), its peak
memory, its exit code, and how many different percentages its bar showed. Meanwhile a gateway, a process of
its own, appends a message to the same store every {pause:.0f} ms: how many appends fell into the command,
and the time of the slowest, fsync included; the first line is what an append takes beside no command.
`vacuum` is the one command that lets others wait; the first run with `--incremental` writes the file anew
too. A command on another file (`--db`) shares only the disk and the processors with the gateway.
"""


def main(arguments: Iterable[str] | None = None) -> int:
    """Build, run, tell; the exit status."""
    parser = argparse.ArgumentParser(
        description=str(__doc__).partition("\n\n    python")[0], formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=50_000, help="in the store (50,000: size M)")
    parser.add_argument("--longest", type=float, default=300.0, help="seconds that a command may take")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the record there, as Markdown")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work here, and leave everything there")
    options = parser.parse_args(None if arguments is None else list(arguments))
    folder = options.keep or Path(tempfile.mkdtemp(prefix="record_cli_"))
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    try:
        built = subprocess.run(
            [sys.executable, str(BUILDER), str(folder), str(options.messages)],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        runs = list(all_runs(folder, options.longest))
        status = tell(runs, sys.stdout)
        if options.write is not None:
            options.write.write_text(record(runs, folder, built.stdout.strip()), encoding="utf-8")
        return status
    finally:
        if options.keep is None:
            shutil.rmtree(folder)


def tell(runs: Sequence[Run], to: IO[str]) -> int:
    """Print the table; 1 where a command ended otherwise than it should."""
    lines: list[Any] = [HEAD, *map(row, runs)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEAD))]
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *cells]), file=to)
    return 1 if any(done.code != done.step.code for done in runs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
