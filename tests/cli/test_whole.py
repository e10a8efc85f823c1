"""What holds for every command: help, documents, errors of one line, pipes, live programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_line import ROOT, answer, process, run

from hermes_state import SessionDB, errors
from hermes_state.cli import diagnosis_file, failures, stores
from hermes_state.cli.commands import COMMANDS, root

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
NAMES = [command.name for command in COMMANDS]
NEEDS_NO_STORE = {"demo", "doctor", "import", "restore"}
ARGUMENTS = {"show": ["x"], "lineage": ["x"], "search": ["x"], "backup": ["x.db"], "salvage": ["x.db"]}


def section(name: str) -> str:
    found = re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/cli.md has no section ### `{name}`"
    return found.group(1)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_command_has_help_and_stands_in_the_documents_with_every_option(command: click.Command) -> None:
    assert command.name
    shown = run(command.name, "--help").output
    text = section(command.name)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    for option in options:
        long = next(name for name in option.opts if name.startswith("--"))
        assert long in shown
        assert option.help, (command.name, long)
        if long not in ("--db", "--json"):
            assert f"`{long}" in text, f"{command.name}: {long}"
    for name in {"--db", "--json"} - {opt for option in options for opt in option.opts}:
        raise AssertionError(f"{command.name} lacks {name}")


def test_the_documents_name_no_command_and_no_option_that_is_not_there() -> None:
    assert re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE) == NAMES
    for command in COMMANDS:
        known = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {"--help"}
        assert set(re.findall(r"(?<=`)--[a-z-]+", section(str(command.name)))) <= known, command.name


def test_the_store_may_be_named_before_the_command_too(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with SessionDB(other) as db:
        db.create_session("elsewhere", "cli")
    assert [row["id"] for row in answer("--db", str(other), "list")] == ["elsewhere"]
    ids = [row["id"] for row in answer("--db", str(other), "list", "--db", str(store))]
    assert "other" in ids, "the nearer one counts"
    assert "there is no store" in run("--db", str(tmp_path / "none.db"), "stats", code=1).stderr
    made = tmp_path / "demo.db"
    run("--db", str(made), "demo", "--json")
    assert made.exists()


def test_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert re.search(rf"`(hermes-state )?{name}\b", readme), name


def test_a_store_that_is_not_there_is_one_line_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "state.db"
    for name in sorted(set(map(str, NAMES)) - NEEDS_NO_STORE):
        result = run(name, *ARGUMENTS.get(name, []), "--db", str(path), code=1)
        assert (
            result.stderr == f"Error: there is no store at {path} (--db PATH or HERMES_HOME names another)\n"
        )
        assert result.stdout == ""
    assert not path.parent.exists()


def test_a_wrong_command_line_ends_with_two(home: Path) -> None:
    for arguments in (["nothing"], ["list", "--no-such"], ["show"], ["search"], ["list", "--by", "size"]):
        done = process(*arguments, HERMES_HOME=str(home))
        assert done.returncode == 2
        assert "Usage:" in done.stderr


def test_errors_of_the_store_are_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        errors.make(errors.StoreBusyError, "database is locked\nreally", "x", "search", waited=20.0),
        PermissionError(13, "Permission denied", "x"),
    ):

        def refuse(*arguments: object, error: BaseException = error, **more: object) -> None:
            raise error

        monkeypatch.setattr(SessionDB, "list_sessions_rich", refuse)
        result = run("list", code=1)
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1


def test_an_interrupt_ends_with_130_and_a_word(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SessionDB, "list_sessions_rich", interrupt)
    assert "what was committed before stays" in run("list", code=failures.INTERRUPTED).stderr


def test_a_reader_that_goes_away_ends_the_command_without_a_word(home: Path) -> None:
    with SessionDB(home / "state.db") as db:
        db.append_messages("other", [{"role": "user", "content": "word " * 500} for _ in range(500)])
    for arguments in (["export"], ["show", "other"], ["show", "other", "--json"], ["list", "--json"]):
        with subprocess.Popen(
            [sys.executable, "-m", "hermes_state", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "HERMES_HOME": str(home)},
        ) as command:  # fmt: skip
            assert command.stdout is not None
            assert command.stderr is not None
            command.stdout.readline()
            command.stdout.close()
            assert command.stderr.read() == "", arguments


def test_a_gateway_goes_on_while_every_command_runs(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis_file, "LOCK_WAIT_MS", 300_000)  # the gateway's disk may be slow
    program = (
        "import sys; from hermes_state import SessionDB\n"
        "db = SessionDB(sys.argv[1], patience=600); db.ensure_session('live', 'gateway')\n"
        "print('READY', flush=True)\n"
        "for line in sys.stdin: print(db.append_message('live', 'user', 'live words'), flush=True)\n"
        "db.close()"
    )
    commands = [
        ["list"], ["show", "live"], ["search", "live"], ["lineage", "live"], ["stats"], ["check"], ["repair"],
        ["export", "-o", str(tmp_path / "out.jsonl")], ["import", str(tmp_path / "out.jsonl")],
        ["backup", str(tmp_path / "b.db")], ["doctor"], ["optimize"], ["prune", "--yes"], ["upgrade"],
        ["vacuum", "--yes"],
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", program, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as gateway:
        assert gateway.stdin is not None
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == "READY\n"
        for command in commands:
            gateway.stdin.write("go\n")
            gateway.stdin.flush()
            answer(*command)
            assert int(gateway.stdout.readline()) > 0
        gateway.stdin.close()
    assert gateway.returncode == 0
    assert answer("show", "live")["session"]["message_count"] == len(commands)
    assert answer("check")["ok"] is True


def test_completion_gives_commands_and_sessions(home: Path) -> None:
    def complete(words: str) -> list[str]:
        done = process(
            HERMES_HOME=str(home), _HERMES_STATE_COMPLETE="bash_complete", COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1),
        )  # fmt: skip
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    assert complete("hermes-state sto") == []
    assert sorted(complete("hermes-state li")) == ["lineage", "list"]
    assert complete("hermes-state show 20260302") == ["20260302_agent"]


def test_completion_is_silent_where_there_is_no_store(tmp_path: Path) -> None:
    for content in (None, b"no database " * 500):
        path = tmp_path / "state.db"
        if content is not None:
            path.write_bytes(content)
        with click.Context(root) as context:
            context.params["db"] = path
            assert stores.complete_session(context, click.Argument(["session"]), "x") == []


def test_a_terminal_gets_colours_and_bars(home: Path) -> None:
    done = process("list", HERMES_HOME=str(home), FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="")
    assert "\x1b[" in done.stdout


def test_progress_is_shown_on_a_terminal_only(home: Path) -> None:
    main, child = os.openpty()
    environment = {**os.environ, "HERMES_HOME": str(home), "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_state", "check", "--json"],
        stdout=subprocess.PIPE, stderr=child, env=environment,
    ) as command:  # fmt: skip
        os.close(child)
        assert command.stdout is not None
        assert json.loads(command.stdout.read())["ok"] is True
    assert b"checking" in os.read(main, 10_000)
    os.close(main)
    assert process("check", HERMES_HOME=str(home)).stderr == ""


def test_ctrl_c_stops_a_command(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_state", "import", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "HERMES_HOME": str(home), "PYTHONUNBUFFERED": "1"},
    ) as command:  # fmt: skip
        assert command.stdin is not None
        assert command.stderr is not None
        # A bad line is told at once: now the import runs, and waits for more.
        command.stdin.write("bad\n")
        command.stdin.flush()
        assert ":1: not JSON" in command.stderr.readline()
        command.send_signal(signal.SIGINT)
        assert command.stderr.read() == "Error: interrupted; what was committed before stays\n"
    assert command.returncode == 130
