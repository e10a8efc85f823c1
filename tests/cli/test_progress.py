"""How far long work has come: real counts that only grow, and end where all is done."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from command_line import ROOT, age, process, run

from hermes_state import SessionDB, errors
from hermes_state.api import repairing
from hermes_state.cli import output
from hermes_state.engine import rewriting
from hermes_state.search import segments, tables

Counts = list[tuple[int, int]]
TEXT = "The health check of docker waits 30 seconds. 健康检查 {0} asks for {1}. " * 4


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counts]:
    """What the bars of a command were told, by their names."""
    seen: dict[str, Counts] = {}

    @contextmanager
    def progress(what: str, *, printing: bool = False) -> Iterator[output.Advance]:
        counts = seen.setdefault(what, [])
        yield lambda done, total: counts.append((done, total))

    monkeypatch.setattr(output, "progress", progress)
    return seen


def grow(path: Path, batches: int = 12) -> None:
    """Messages in several segments of the index."""
    with SessionDB(path) as db:
        db._engine._worker.stop()  # each search then indexes its batch in one step, which leaves a segment
        db.create_session("long", "cron")
        for batch in range(batches):
            rows = [{"role": "user", "content": TEXT.format(batch, n)} for n in range(60)]
            db.append_messages("long", rows)
            db.search_messages("docker", limit=1)


@pytest.mark.parametrize(
    ("arguments", "bar"),
    [
        (["optimize"], "merging"),
        (["optimize", "--trigram", "unspaced"], "trigram index: unspaced"),
        (["optimize", "--rebuild"], "rebuilding"),
        (["vacuum", "--yes"], "writing the file anew"),
        (["vacuum", "--yes", "--incremental"], "freeing pages"),
        (["prune", "--yes"], "deleting"),
        (["backup", "TARGET"], "copying"),
        (["restore", "BACKUP", "--yes"], "copying"),
        (["salvage", "TARGET"], "reading"),
        (["check"], "checking"),
        (["repair"], "repairing"),
        (["stats"], "measuring"),
        (["export", "-o", "TARGET"], "exporting"),
        (["export", "--format", "markdown", "-o", "TARGET"], "exporting"),
        (["import", "EXPORT"], "importing e.jsonl"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_long_work_tells_how_much_is_done_of_how_much(
    arguments: list[str], bar: str, store: Path, tmp_path: Path, told: dict[str, Counts]
) -> None:
    grow(store)
    age(store, "long", 100)
    backup, export = tmp_path / "b.db", tmp_path / "e.jsonl"
    run("backup", str(backup))
    run("export", "-o", str(export))
    if "--incremental" in arguments:
        run("vacuum", "--yes", "--incremental")
        run("prune", "--yes")
    told.clear()
    places = {"TARGET": str(tmp_path / "new"), "BACKUP": str(backup), "EXPORT": str(export)}
    run(*(places.get(argument, argument) for argument in arguments))
    counts = told[bar]
    assert counts, told
    assert all(0 <= done <= total for done, total in counts), counts
    assert [done for done, _ in counts] == sorted(done for done, _ in counts)
    assert counts[-1][0] == counts[-1][1] > 0


def test_an_upgrade_tells_how_many_messages_are_indexed(tmp_path: Path, told: dict[str, Counts]) -> None:
    path = tmp_path / "state.db"
    shutil.copy(ROOT / "tests" / "fixtures" / "v9.db", path)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
            " INSERT INTO messages(session_id, role, content, timestamp)"
            " SELECT (SELECT id FROM sessions LIMIT 1), 'user', 'word ' || i, i FROM n"
        )
    run("upgrade", "--db", str(path))
    assert told["indexing"][-1][0] == told["indexing"][-1][1] > 20_000


def test_a_merge_counts_the_pages_of_every_index_that_has_several_segments(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "MERGE_PAGES", 4)
    grow(store)
    with SessionDB(store) as db:
        several = {
            table: segments.to_read(
                db._read(lambda conn, name=table: segments.pages(conn, name), "test"), merging=False
            )
            for table in (tables.FTS, tables.TRIGRAM, tables.WORDS)
        }
        counts: Counts = []
        db.optimize(lambda done, total: counts.append((done, total)))
        assert {total for _, total in counts} == {sum(several.values())}
        assert counts[-1][0] == counts[-1][1]
        assert any(0 < done < total for done, total in counts)
        counts.clear()
        db.optimize(lambda done, total: counts.append((done, total)))
        assert not counts, "one segment each: there is nothing to merge"


def test_a_list_of_segments_that_cannot_be_read_is_no_list_and_no_error() -> None:
    conn = apsw.Connection(":memory:")
    conn.execute("CREATE VIRTUAL TABLE f USING fts5(c)")
    for number in range(3):
        conn.execute("INSERT INTO f(c) VALUES (?)", (f"word {number}",))
    assert segments.pages(conn, "f") == [1, 1, 1]
    conn.execute("UPDATE f_data SET block = substr(block, 1, 9) WHERE id = 10")
    assert segments.pages(conn, "f") == []
    conn.execute("DELETE FROM f_data WHERE id = 10")
    assert segments.pages(conn, "f") == []


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_vacuum_is_watched_without_being_touched(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(rewriting, "STEPS", 10)
    path = tmp_path / "x.db"
    conn = apsw.Connection(str(path))
    conn.pragma("journal_mode", mode)
    conn.execute("CREATE TABLE t(x)")
    conn.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 3000)"
                 " INSERT INTO t SELECT randomblob(3000) FROM n")  # fmt: skip
    conn.execute("DELETE FROM t WHERE rowid % 3 = 0")
    counts: Counts = []
    looked = rewriting._Watch._look
    looks, told = itertools.count(), threading.Event()

    def look(watch: Any) -> bool:
        """Now and then wait for the thread that tells, which would else run when the machine lets it."""
        if next(looks) % 50 == 0:
            told.clear()
            assert told.wait(300)
        return looked(watch)

    def tell(done: int, total: int) -> None:
        counts.append((done, total))
        told.set()

    monkeypatch.setattr(rewriting._Watch, "_look", look)
    rewriting.rewrite(conn, path, tell)
    assert conn.pragma("freelist_count") == 0
    assert len({total for _, total in counts}) == 1
    assert [done for done, _ in counts] == sorted(done for done, _ in counts)
    assert counts[-1][0] == counts[-1][1]
    assert len({done for done, _ in counts}) > 2, "it is told of the way, not of the end alone"


def test_an_error_of_the_caller_comes_out_of_a_vacuum_and_leaves_the_store_whole(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(done: int, total: int) -> None:
        raise RuntimeError("the caller's own")

    with SessionDB(store) as db:
        for incremental in (False, True):
            db.replace_messages("other", [{"role": "user", "content": TEXT * 200}])
            db.clear_messages("other")
            with pytest.raises(RuntimeError, match="the caller's own"):
                db.vacuum(incremental=incremental, progress=broken)
            assert db.check()["ok"]
            db.append_message("other", "user", "goes on")


def test_a_restore_that_is_stopped_by_its_caller_changes_nothing(store: Path, tmp_path: Path) -> None:
    from hermes_state import restore

    run("backup", str(tmp_path / "b.db"))
    before = store.read_bytes()

    def broken(done: int, total: int) -> None:
        raise errors.StoreInterruptedError("stop")

    with pytest.raises(errors.StoreInterruptedError):
        restore(tmp_path / "b.db", store, broken)
    assert store.read_bytes() == before
    assert not [path.name for path in store.parent.iterdir() if "before" in path.name or "unfin" in path.name]


def on_terminal(store: Path, *arguments: str, both: bool = False) -> tuple[str, str]:
    """Standard output of a command and what its terminal shows: its errors, and with ``both`` all of it."""
    master, slave = os.openpty()
    command = [sys.executable, "-m", "hermes_state", *arguments, "--db", str(store)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    out = slave if both else subprocess.PIPE
    with subprocess.Popen(command, stdout=out, stderr=slave, stdin=slave, env=environment) as running:
        os.close(slave)
        shown = []
        reader = threading.Thread(target=lambda: shown.extend(iter(lambda: read_terminal(master), b"")))
        reader.start()
        said = running.stdout.read() if running.stdout else b""
        reader.join()
    os.close(master)
    assert running.returncode == 0
    return said.decode(), b"".join(shown).decode("utf-8", "replace")


def read_terminal(master: int) -> bytes:
    """The next that was written; nothing once nobody can write any more (on Linux that is an error)."""
    try:
        return os.read(master, 65536)
    except OSError:
        return b""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
@pytest.mark.parametrize("form", ["records", "sessions", "markdown"])
def test_data_for_a_file_goes_there_whole_while_the_bar_is_on_the_terminal(form: str, store: Path) -> None:
    piped = process("export", "--format", form, "--db", str(store)).stdout
    said, shown = on_terminal(store, "export", "--format", form)
    assert said == piped
    assert len(said) > 1000
    assert "100 %" in shown
    assert "Guilin" not in shown
    _, shown = on_terminal(store, "export", "--format", form, both=True)
    assert "100 %" not in shown, "data on the terminal, and a bar in the midst of it"
    assert "Guilin" in shown


@pytest.mark.parametrize("arguments", [["optimize"], ["vacuum", "--yes"]])
def test_bars_are_quiet_in_a_pipe(arguments: list[str], store: Path) -> None:
    done = process(*arguments, "--db", str(store))
    assert done.returncode == 0
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    done = process(*arguments, "--db", str(store), "--json")
    assert done.stdout.startswith("{")
    assert done.stderr == ""
