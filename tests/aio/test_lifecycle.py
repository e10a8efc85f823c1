"""Opening, closing, cancelling and forking an AsyncSessionDB; the event loop beside heavy work."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from processes import program, sound, threads_of_the_store, until, wait_until_released

from hermes_state import AsyncSessionDB, SessionDB, errors


def test_close_stores_what_waits_and_then_refuses(db_path: Path) -> None:
    async def main() -> None:
        db = AsyncSessionDB(db_path)
        await db.create_session("s", "cli")
        calls = [asyncio.ensure_future(db.append_message("s", "user", str(n))) for n in range(500)]
        reads = [asyncio.ensure_future(db.message_count()) for _ in range(50)]
        await asyncio.sleep(0)
        closing = [asyncio.ensure_future(db.close()) for _ in range(3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        counts = await asyncio.gather(*reads, return_exceptions=True)
        await asyncio.gather(*closing)
        assert outcomes == sorted(outcomes)
        assert all(isinstance(outcome, int | errors.StoreClosedError) for outcome in counts)
        with pytest.raises(errors.StoreClosedError):
            await db.append_message("s", "user", "late")
        with pytest.raises(errors.StoreClosedError):
            await db.get_session("s")
        with pytest.raises(errors.StoreClosedError):
            _ = [m async for m in db.iter_messages("s")]
        await db.close()

    asyncio.run(main())
    assert threads_of_the_store() == []
    assert len(sound(db_path)) == 500


def test_closing_while_tasks_append_loses_nothing_acknowledged(db_path: Path) -> None:
    async def main() -> list[int]:
        db = AsyncSessionDB(db_path)
        await db.create_session("s", "cli")
        stored: list[int] = []

        async def work() -> None:
            try:
                while True:
                    stored.append(await db.append_message("s", "user", "x"))
            except errors.StoreClosedError:
                return

        tasks = [asyncio.ensure_future(work()) for _ in range(200)]
        while len(stored) < 1000:
            await asyncio.sleep(0)
        await db.close()
        await asyncio.gather(*tasks)
        return stored

    assert set(asyncio.run(main())) == sound(db_path)


def test_a_close_whose_wait_is_cancelled_goes_on(db_path: Path) -> None:
    async def main() -> None:
        db = AsyncSessionDB(db_path)
        await db.create_session("s", "cli")
        task = asyncio.ensure_future(db.close())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await db.close()

    asyncio.run(main())
    assert threads_of_the_store() == []


def test_a_stream_ends_with_the_typed_error_when_the_store_is_closed(db_path: Path) -> None:
    async def main() -> None:
        db = AsyncSessionDB(db_path)
        await db.create_session("s", "cli")
        await db.append_messages("s", [{"role": "user"}] * 500)
        stream = db.iter_messages("s", batch=10)
        assert (await anext(stream))["id"] == 1
        await db.close()
        with pytest.raises(errors.StoreClosedError):
            _ = [m async for m in stream]

    asyncio.run(main())


def test_a_call_that_is_cancelled_before_its_turn_does_not_run(db_path: Path) -> None:
    async def main() -> None:
        db = AsyncSessionDB(db_path, threads=1)
        await db.create_session("s", "cli")
        inside, release = threading.Event(), threading.Event()

        def hold(_: SessionDB) -> None:
            inside.set()
            assert release.wait(300)

        holding = asyncio.ensure_future(db.run(hold))
        while not inside.is_set():
            await asyncio.sleep(0)
        waiting = asyncio.ensure_future(db.end_session("s", "never"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        release.set()
        await holding
        assert (await db.get_session("s"))["end_reason"] is None
        await db.close()

    asyncio.run(main())


def test_no_more_calls_run_at_a_time_than_threads(db_path: Path) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path, threads=3) as db:
            running = most = 0
            counting = threading.Lock()
            together = threading.Barrier(3)

            def work(_: SessionDB) -> None:
                nonlocal running, most
                with counting:
                    running += 1
                    most = max(most, running)
                together.wait(300)
                with counting:
                    running -= 1

            await asyncio.gather(*(db.run(work) for _ in range(30)))
            assert most == 3

    asyncio.run(main())


def test_a_store_that_nobody_closed_leaves_no_thread(db_path: Path) -> None:
    async def main() -> None:
        db = AsyncSessionDB(db_path)
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "kept")

    asyncio.run(main())
    gc.collect()
    wait_until_released()
    until(lambda: not threads_of_the_store(), "no thread is left")
    assert len(sound(db_path)) == 1


def test_a_process_that_ends_without_closing_has_stored_what_was_acknowledged(db_path: Path) -> None:
    code = """
import asyncio
from hermes_state import AsyncSessionDB

async def main():
    db = AsyncSessionDB(path)
    await db.create_session("s", "cli")
    ids = await asyncio.gather(*(db.append_message("s", "user", "x") for _ in range(100)))
    say(ids=len(ids))

asyncio.run(main())
"""
    with program(code, db_path) as running:
        assert running.finish()[-1] == {"ids": 100}
    assert len(sound(db_path)) == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_goes_on_with_a_loop_of_its_own(db_path: Path) -> None:
    code = """
import asyncio
from hermes_state import AsyncSessionDB

db = AsyncSessionDB(path)

async def work(name):
    await db.ensure_session(name, "cli")
    return await asyncio.gather(*(db.append_message(name, "user", "x") for _ in range(50)))

asyncio.run(work("parent"))
child = os.fork()
if child == 0:
    asyncio.run(work("child"))
    asyncio.run(db.close())
    os._exit(0)
asyncio.run(work("parent"))
_, status = os.waitpid(child, 0)
say(status=status, parent=db.db.message_count("parent"), child=db.db.message_count("child"))
asyncio.run(db.close())
"""
    with program(code, db_path, options=("-W", "ignore::DeprecationWarning")) as running:
        assert running.finish()[-1] == {"status": 0, "parent": 100, "child": 50}
    assert len(sound(db_path)) == 150


@pytest.mark.slow
def test_the_loop_beats_on_while_the_store_is_busy(db_path: Path) -> None:
    """A heartbeat every 5 ms beside 10,000 appends, searches and a prune; prints its longest gap."""
    with SessionDB(db_path) as store:
        for number in range(60):
            store.create_session(f"old{number}", "cli")
            store.append_messages(
                f"old{number}", [{"role": "user", "content": f"old {n}"} for n in range(50)]
            )
            store.end_session(f"old{number}", "done")
        store._conn.execute("UPDATE sessions SET started_at = 1, ended_at = 1")
        store._conn.execute("UPDATE messages SET timestamp = 1")

    async def main() -> dict[str, Any]:
        gaps: list[float] = []

        async def beat() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.005)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")
            heart = asyncio.ensure_future(beat())

            async def talk(number: int) -> None:
                for turn in range(100):
                    await db.append_message("s", "user", f"task {number} turn {turn} docker 广西")

            pruned, *_ = await asyncio.gather(
                db.prune_sessions(90),
                *(talk(number) for number in range(100)),
                *(db.search_messages("docker", limit=5) for _ in range(20)),
            )
            count = await db.message_count("s")
            heart.cancel()
            return {"pruned": pruned, "count": count, "beats": len(gaps), "worst": max(gaps)}

    seen = asyncio.run(main())
    print(f"{seen['beats']} heartbeats, longest gap {seen['worst'] * 1000:.1f} ms (5 ms asked for)")
    assert (seen["pruned"], seen["count"]) == (60, 10_000)
    assert seen["beats"] >= 20
