"""The parts of the engine, each by itself."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state import errors
from hermes_state.engine.gate import Gate
from hermes_state.engine.patience import RETRY_MAX_S, Patience
from hermes_state.engine.readers import ReaderPool
from hermes_state.engine.worker import MAX_ROWS, MIN_ROWS, StepSize
from hermes_state.engine.writer import MAX_GROUP_ROWS, Writer

PATH = Path("state.db")


def _writer(apply: Callable[..., Any]) -> Writer:
    return Writer(apsw.Connection(":memory:"), PATH, apply)


def _in_threads(*functions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()


# -- patience --


def test_patience_gives_up_when_its_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    steps: list[float] = []

    def sleep(seconds: float) -> None:
        steps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    waiting = Patience(2.0)
    while waiting.pause():
        pass
    assert waiting.waited == pytest.approx(2.0)
    assert steps[0] < 0.001
    assert max(steps) <= RETRY_MAX_S
    assert len(set(steps)) == len(steps), "every pause is random"


def test_a_standstill_of_the_process_is_not_taken_off_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the lock may have stood still as well: the wait goes on when the process does."""
    now = [0.0]
    stops = iter([25.0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds + next(stops, 0.0)

    class Held:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            sleep(timeout)
            return False

    monkeypatch.setattr(time, "sleep", sleep)
    waiting = Patience(20.0)
    assert waiting.pause()
    assert waiting.left == pytest.approx(15.0, abs=0.1)  # its own length is the most that is given back
    while waiting.pause():
        pass
    assert waiting.waited == pytest.approx(40.0)

    stops = iter([7.0, 0.0, 6.0])
    waiting = Patience(20.0)
    assert not waiting.acquire(Held())
    assert waiting.waited == pytest.approx(33.0)


# -- the line and group commit --


def test_groups_that_wait_are_stored_in_the_owners_transaction() -> None:
    batches: list[int] = []
    first = threading.Event()
    all_in_line = threading.Event()

    def apply(conn: apsw.Connection, groups: Any) -> list[Any]:
        batches.append(len(groups))
        return [[len(batches)] for _ in groups]

    writer = _writer(apply)

    def hold() -> None:
        with writer.exclusive(Patience(30), "hold"):
            first.set()
            all_in_line.wait(300)

    def store() -> None:
        first.wait(300)
        writer.store((1,), Patience(30), "store")

    def watch() -> None:
        first.wait(300)
        while writer.waiting < 5:
            time.sleep(0)
        all_in_line.set()

    _in_threads(hold, watch, *[store] * 5)
    assert batches == [5]
    assert writer.commits == 1


def test_a_group_that_fails_leaves_the_others_stored() -> None:
    def apply(conn: apsw.Connection, groups: Any) -> list[Any]:
        return [ValueError("bad") if group == ("bad",) else [7] for group in groups]

    writer = _writer(apply)
    outcomes: dict[str, Any] = {}

    def store(name: str) -> Callable[[], None]:
        def run() -> None:
            try:
                outcomes[name] = writer.store((name,), Patience(30), "store")
            except ValueError as error:
                outcomes[name] = str(error)

        return run

    _in_threads(store("good"), store("bad"), store("fine"))
    assert outcomes == {"good": [7], "bad": "bad", "fine": [7]}


def test_a_transaction_that_breaks_is_done_again_group_by_group() -> None:
    """As when all rows together do not fit on the disk: what fits alone is stored."""
    held, go = threading.Event(), threading.Event()

    def apply(conn: apsw.Connection, groups: Any) -> list[Any]:
        if any(group == ("huge",) for group in groups):
            error = apsw.FullError("database or disk is full")
            error.result = error.extendedresult = apsw.SQLITE_FULL
            raise error
        return [[1] for _ in groups]

    writer = _writer(apply)
    outcomes: dict[str, Any] = {}

    def hold() -> None:
        with writer.exclusive(Patience(30), "hold"):
            held.set()
            go.wait(300)

    def store(name: str) -> Callable[[], None]:
        def run() -> None:
            held.wait(300)
            try:
                outcomes[name] = writer.store((name,), Patience(30), "store")
            except errors.StoreFullError:
                outcomes[name] = "full"

        return run

    def watch() -> None:
        held.wait(300)
        while writer.waiting < 3:
            time.sleep(0)
        go.set()

    _in_threads(hold, watch, store("a"), store("huge"), store("b"))
    assert outcomes == {"a": [1], "huge": "full", "b": [1]}
    assert not writer.conn.in_transaction


def test_a_shared_transaction_is_bounded_in_rows() -> None:
    sizes: list[int] = []
    held, go = threading.Event(), threading.Event()

    def apply(conn: apsw.Connection, groups: Any) -> list[Any]:
        sizes.append(sum(len(group) for group in groups))
        return [list(range(len(group))) for group in groups]

    writer = _writer(apply)
    half = MAX_GROUP_ROWS // 2

    def hold() -> None:
        with writer.exclusive(Patience(30), "hold"):
            held.set()
            go.wait(300)

    def store() -> None:
        held.wait(300)
        assert len(writer.store((0,) * half, Patience(30), "store")) == half

    def watch() -> None:
        held.wait(300)
        while writer.waiting < 5:
            time.sleep(0)
        go.set()

    _in_threads(hold, watch, *[store] * 5)
    assert sum(sizes) == 5 * half
    assert max(sizes) <= MAX_GROUP_ROWS


def test_a_thread_whose_patience_ends_leaves_the_line_and_the_next_one_is_served() -> None:
    writer = _writer(lambda conn, groups: [[1] for _ in groups])
    held, go = threading.Event(), threading.Event()
    seen: list[Any] = []

    def hold() -> None:
        with writer.exclusive(Patience(30), "hold"):
            held.set()
            go.wait(300)

    def impatient() -> None:
        held.wait(300)
        with pytest.raises(errors.StoreBusyError, match="database is locked") as caught:
            writer.store((1,), Patience(0.05), "append_message")
        seen.append(caught.value.waited)
        go.set()

    def patient() -> None:
        held.wait(300)
        seen.append(writer.run(lambda conn: "done", Patience(30), "run"))

    _in_threads(hold, impatient, patient)
    assert "done" in seen
    assert writer.waiting == 0
    assert writer.run(lambda conn: 1, Patience(1), "run") == 1


def test_the_line_is_fair() -> None:
    writer = _writer(lambda conn, groups: [[1] for _ in groups])
    order: list[int] = []
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with writer.exclusive(Patience(30), "hold"):
            held.set()
            go.wait(300)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(300)
    waiters = []
    for number in range(6):
        thread = threading.Thread(
            target=lambda n=number: writer.run(lambda conn: order.append(n), Patience(30), "run")
        )
        thread.start()
        waiters.append(thread)
        while writer.waiting < number + 1:
            time.sleep(0)
    go.set()
    for thread in [holder, *waiters]:
        thread.join(300)
    assert order == list(range(6))


def test_an_error_inside_run_undoes_all_of_it() -> None:
    writer = _writer(lambda conn, groups: [])
    writer.conn.execute("CREATE TABLE t(x)")

    def work(conn: apsw.Connection) -> None:
        conn.execute("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.run(work, Patience(1), "run")
    assert writer.conn.execute("SELECT COUNT(*) FROM t").fetchone() == (0,)
    assert not writer.conn.in_transaction


# -- the gate --


def test_the_gate_waits_for_those_inside_and_keeps_newcomers_out() -> None:
    gate = Gate()
    inside, leave, shut, tried = (threading.Event() for _ in range(4))
    events: list[str] = []

    def worker() -> None:
        with gate.enter(), gate.enter():
            inside.set()
            leave.wait(300)
            events.append("left")

    def closer() -> None:
        inside.wait(300)
        assert not gate.shut(0.01)
        gate.open()
        leave.set()
        assert gate.shut(30)
        events.append("shut")
        shut.set()
        tried.wait(300)
        events.append("opened")
        gate.open()

    def newcomer() -> None:
        shut.wait(300)
        with gate.enter():
            events.append("entered")

    def other() -> None:
        shut.wait(300)
        gate.open()  # who has not shut it does not open it
        tried.set()

    _in_threads(worker, closer, newcomer, other)
    assert events == ["left", "shut", "opened", "entered"]
    assert gate.depth == 0


# -- readers --


def test_readers_are_bounded_and_reused() -> None:
    made: list[apsw.Connection] = []

    def connect() -> apsw.Connection:
        made.append(apsw.Connection(":memory:"))
        return made[-1]

    pool = ReaderPool(connect, size=2)
    barrier = threading.Barrier(4)

    def read() -> None:
        barrier.wait(300)
        for _ in range(20):
            with pool.lend() as conn:
                conn.execute("SELECT 1").fetchall()

    _in_threads(*[read] * 4)
    assert len(made) <= 2
    with pool.lend() as one, pool.lend() as two:
        assert one is not two
    pool.close()
    assert pool.opened == 0


def test_a_reader_comes_back_without_its_transaction() -> None:
    pool = ReaderPool(lambda: apsw.Connection(":memory:"), size=1)
    with pool.lend() as conn:
        conn.execute("BEGIN")
    with pool.lend() as conn:
        assert not conn.in_transaction
    pool.close()


# -- steps and errors --


def test_the_step_size_follows_the_time_a_step_took() -> None:
    size = StepSize(0.020)
    for _ in range(30):
        size.learn(size.rows, size.rows * 0.0004)
    assert 45 <= size.rows <= 55
    size.learn(size.rows, 10.0)
    assert size.rows == MIN_ROWS
    for _ in range(30):
        size.learn(size.rows, 1e-6)
    assert size.rows == MAX_ROWS
    size.learn(0, 1.0)
    assert size.rows == MAX_ROWS


@pytest.mark.parametrize(
    ("code", "words", "kind", "base"),
    [
        (apsw.BusyError, "database is locked", errors.StoreBusyError, sqlite3.OperationalError),
        (apsw.FullError, "database or disk is full", errors.StoreFullError, sqlite3.OperationalError),
        (apsw.ReadOnlyError, "attempt to write", errors.StoreReadOnlyError, sqlite3.OperationalError),
        (apsw.CorruptError, "disk image is malformed", errors.StoreCorruptError, sqlite3.DatabaseError),
        (apsw.NotADBError, "file is not a database", errors.NotADatabaseError, sqlite3.DatabaseError),
        (apsw.ConstraintError, "UNIQUE constraint", errors.StoreIntegrityError, sqlite3.IntegrityError),
    ],
)  # fmt: skip
def test_apsw_errors_become_stdlib_ones_that_keep_sqlites_words(
    code: type[apsw.Error], words: str, kind: type[Exception], base: type[Exception]
) -> None:
    raised = code(words)
    raised.result = raised.extendedresult = {
        apsw.BusyError: apsw.SQLITE_BUSY,
        apsw.FullError: apsw.SQLITE_FULL,
        apsw.ReadOnlyError: apsw.SQLITE_READONLY,
        apsw.CorruptError: apsw.SQLITE_CORRUPT,
        apsw.NotADBError: apsw.SQLITE_NOTADB,
        apsw.ConstraintError: apsw.SQLITE_CONSTRAINT,
    }[code]
    made = errors.translate(raised, PATH, "append_message", 1.5)
    assert type(made) is kind
    assert isinstance(made, base)
    assert isinstance(made, errors.HermesStateError)
    assert str(made).startswith(words)
    assert "append_message" in str(made)
    assert "state.db" in str(made)


def test_a_closed_connection_and_a_stranger_are_told_apart() -> None:
    conn = apsw.Connection(":memory:")
    conn.close()
    with pytest.raises(apsw.ConnectionClosedError) as caught:
        conn.execute("SELECT 1")
    assert isinstance(errors.translate(caught.value), errors.StoreClosedError)
    stranger = KeyError("x")
    assert errors.translate(stranger) is stranger
