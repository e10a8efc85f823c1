"""Whatever call below SQLite fails, and whenever: a typed error, nothing acknowledged lost, all whole after.

A scripted run is repeated, each time with another call failing. By default some of the calls are tried,
spread over the run; ``HERMES_STATE_FAULTS=all`` tries every one, a number that many of each kind.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import vfs_shim

import hermes_state
from hermes_state import SessionDB, errors

ASKED = os.environ.get("HERMES_STATE_FAULTS", "7")
EVERY = ASKED == "all"
TRIES = 7 if EVERY else int(ASKED)
"""Numbers that are tried of a kind of call when not all are."""


class Run:
    """The script, what it was told was done, and what failed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: dict[str, list[str]] = {}
        self.doubtful: set[str] = set()
        self.gone: set[str] = set()
        self.errors: list[BaseException] = []

    def attempt(self, work: Callable[[], Any]) -> bool:
        """Whether ``work()`` was done; its error must be a typed one."""
        try:
            work()
        except (errors.HermesStateError, sqlite3.OperationalError) as error:
            self.errors.append(error)
            return False
        return True

    def go(self) -> None:
        """Open, write and read in every way, close."""
        try:
            db = SessionDB(self.path)
        except (errors.HermesStateError, sqlite3.OperationalError) as error:
            self.errors.append(error)
            return
        try:
            self.use(db)
        finally:
            self.attempt(db.close)

    def use(self, db: Any) -> None:
        for name in ("a", "b"):
            if self.attempt(lambda name=name: db.create_session(name, "cli")):
                self.messages[name] = []
        for number in range(4):
            self.append(db, "a", [f"one {number} 中文"])
        self.append(db, "b", [f"batch {number} " + "long text " * 300 for number in range(10)])
        self.attempt(lambda: db.search_messages("batch"))
        self.replace(db)
        self.attempt(lambda: db._conn.execute("UPDATE sessions SET model = 'm' WHERE id = 'a'"))
        self.append(db, "a", ["after"])
        self.attempt(lambda: db.get_messages("a"))
        self.attempt(lambda: db.search_messages("中文"))
        if "b" in self.messages:
            if self.attempt(lambda: db.delete_session("b")):
                del self.messages["b"]
                self.gone.add("b")
            else:
                self.doubtful.add("b")  # deleting goes in steps, of which some may be done

    def append(self, db: Any, name: str, texts: list[str]) -> None:
        if name not in self.messages:
            return
        rows = [{"role": "user", "content": text} for text in texts]
        if self.attempt(lambda: db.append_messages(name, rows)):
            self.messages[name] += texts

    def replace(self, db: Any) -> None:
        texts = ["one 0 中文", "replaced"]
        rows = [{"role": "user", "content": text} for text in texts]
        if "a" in self.messages and self.attempt(lambda: db.replace_messages("a", rows)):
            self.messages["a"] = texts

    def hold(self) -> None:
        """The file, opened without faults, is whole and has what was acknowledged, no more and no less."""
        with SessionDB(self.path) as db:
            report = db.check()
            assert report["ok"], (report["problems"], self.errors)
            assert not [name for name in self.gone if db.get_session(name) is not None]
            for name, texts in self.messages.items():
                if name in self.doubtful:
                    continue
                assert [m["content"] for m in db.get_messages(name)] == texts, self.errors
                session = db.get_session(name)
                assert session is not None
                assert session["message_count"] == len(texts)
                assert {
                    h["id"] for h in db.search_messages("one OR replaced OR batch OR after", limit=-1)
                } <= {m["id"] for s in self.messages for m in db.get_messages(s)}
            db.ensure_session("later", "cli")
            db.append_message("later", "user", "works again")
            assert len(db.search_messages("works again")) == 1


def numbers(count: int) -> list[int]:
    """Which calls of ``count`` are made to fail."""
    if EVERY or count <= TRIES:
        return list(range(1, count + 1))
    return sorted({1 + (count - 1) * step // (TRIES - 1) for step in range(TRIES)})


def refuse_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store work in DELETE mode."""

    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> Any:
            if "journal_mode=WAL" in sql:
                raise sqlite3.OperationalError("locking protocol")
            return super().execute(sql, *parameters)

    real = sqlite3.connect
    monkeypatch.setattr(hermes_state.sqlite3, "connect", lambda *a, **k: real(*a, factory=Refusing, **k))


def test_the_script_meets_every_kind_of_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vfs_shim.installed() as plan:
        run = Run(tmp_path / "wal.db")
        run.go()
        assert run.errors == []
        run.hold()
        refuse_wal(monkeypatch)
        run = Run(tmp_path / "delete.db")
        run.go()
        assert run.errors == []
        run.hold()
        assert set(plan.calls) == set(vfs_shim.KINDS)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("kind", vfs_shim.KINDS)
def test_the_nth_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str, lasting: bool, record_property: Any
) -> None:
    if mode == "delete":
        refuse_wal(monkeypatch)
    injected = 0
    with vfs_shim.installed() as plan:
        plan.arm(kind, 0)
        Run(tmp_path / "count.db").go()
        for number in numbers(plan.calls[kind]):
            plan.arm(kind, number, lasting=lasting, full=kind == "xWrite" and number % 2 == 0)
            run = Run(tmp_path / f"{number}.db")
            run.go()
            injected += plan.failed > 0
            plan.disarm()
            run.hold()
    record_property("injected", injected)
    print(f"injected {mode} {kind} {'lasting' if lasting else 'once'}: {injected}")


@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_a_write_of_the_index_that_failed_leaves_nothing_in_the_next(
    tmp_path: Path, indexing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FTS5 keeps a wrong number of rows of a statement in which SQLite ended the transaction by itself."""
    from hermes_state.engine import worker

    monkeypatch.setattr(worker.Worker, "_start", lambda self: None)
    reads = 40
    for number in range(1, reads):
        path = tmp_path / f"{number}.db"
        with SessionDB(path) as db:
            db.create_session("s", "cli")
        with vfs_shim.installed() as plan, SessionDB(path, indexing=indexing) as db:
            plan.arm("xRead", number)
            stored = 0
            for i in range(3):
                try:
                    db.append_message("s", "user", f"word{i} 中文")
                    stored += 1
                    db.search_messages("word0")
                except (errors.HermesStateError, sqlite3.OperationalError):
                    continue
            plan.disarm()
            assert len(db.search_messages("中文")) == stored
        report = hermes_state.check_file(path)
        assert report["ok"], (number, report["problems"])
        assert report["messages"] == stored
