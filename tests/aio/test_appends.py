"""Appends of many tasks: one transaction for many, each alone in its outcome, whole or not at all."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import sound, threads_of_the_store

from hermes_state import AsyncSessionDB, SessionDB, errors


@contextmanager
def held_up(db: AsyncSessionDB) -> Iterator[None]:
    """The storing thread waits, as behind another process's transaction, while the block runs.

    The worker is stopped, so that nobody else comes to stand in the line.
    """
    db.db._engine._worker.stop()
    inside, release = threading.Event(), threading.Event()

    def hold() -> None:
        with db.db._engine.exclusive("test"):
            inside.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(300)
    try:
        yield
    finally:
        release.set()
        thread.join()


async def standing(db: AsyncSessionDB) -> None:
    """Wait until the storing thread stands in the writer's line."""
    while not db.db._engine._writer.waiting:
        await asyncio.sleep(0)


def test_ten_thousand_appends_share_a_few_transactions_and_keep_their_order(db_path: Path) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")
            calls = [db.append_message("s", "user", f"message {number}") for number in range(10_000)]
            ids = await asyncio.gather(*calls)
            assert ids == sorted(ids)
            assert db._appends is not None
            print(f"10,000 appends in {db._appends.transactions} transactions")
            assert db._appends.transactions < 1_000
            contents = [m["content"] async for m in db.iter_messages("s")]
            assert contents == [f"message {number}" for number in range(10_000)]

    asyncio.run(main())
    assert len(sound(db_path)) == 10_000


def test_a_bad_append_fails_alone(db_path: Path) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")
            with held_up(db):
                calls = [
                    asyncio.ensure_future(
                        db.append_message(("s", "nobody")[number % 3 == 0], "user", str(number))
                    )
                    for number in range(30)
                ]
                calls.append(asyncio.ensure_future(db.append_messages("s", [{"role": "user"}, {"role": 5}])))
                await standing(db)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            for number, outcome in enumerate(outcomes[:30]):
                assert isinstance(outcome, errors.UnknownSessionError if number % 3 == 0 else int)
            assert isinstance(outcomes[30], TypeError)
            assert await db.message_count("s") == 20

    asyncio.run(main())


class Foreign(dict[str, Any]):
    """A message of a program's own kind, whose reading raises what it is given."""

    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def get(self, key: str, default: Any = None) -> Any:
        raise self.raised


@pytest.mark.parametrize("raised", [KeyError("k"), StopIteration(), SystemExit(3)])
def test_whatever_a_message_raises_the_other_appends_go_on(db_path: Path, raised: BaseException) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")
            calls = [db.append_message("s", "user", "a"), db.append_messages("s", [Foreign(raised)])]
            calls.append(db.append_message("s", "user", "b"))
            # A task that raises SystemExit would end the loop: the coroutine's own step catches it.
            outcomes = await asyncio.gather(*map(caught, calls))
            assert type(outcomes[1]) is (RuntimeError if isinstance(raised, StopIteration) else type(raised))
            assert await db.append_message("s", "user", "c") == 3

    async def caught(call: Any) -> Any:
        try:
            return await call
        except BaseException as error:
            return error

    asyncio.run(main())


def test_an_append_that_is_cancelled_while_it_waits_is_not_stored(db_path: Path) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")
            with held_up(db):
                taken = asyncio.ensure_future(db.append_message("s", "user", "taken"))
                await standing(db)
                waiting = [asyncio.ensure_future(db.append_message("s", "user", str(n))) for n in range(5)]
                await asyncio.sleep(0)
                for task in (taken, waiting[1], waiting[3]):
                    task.cancel()
                done = await asyncio.gather(taken, waiting[1], waiting[3], return_exceptions=True)
                assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done)
            await asyncio.gather(waiting[0], waiting[2], waiting[4])
            # The first was in its transaction already: stored, whole, though nobody waited for it.
            assert [m["content"] for m in await db.get_messages("s")] == ["taken", "0", "2", "4"]

    asyncio.run(main())


def test_appends_cancelled_at_random_are_stored_whole_or_not_at_all(db_path: Path) -> None:
    chance = random.Random(5)

    async def main() -> set[int]:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")

            async def batch(number: int) -> bool:
                await db.append_messages(
                    "s", [{"role": "user", "content": f"{number} {part}"} for part in range(5)]
                )
                return True

            tasks = [asyncio.ensure_future(batch(number)) for number in range(400)]
            while not all(task.done() for task in tasks):
                chance.choice(tasks).cancel()
                await asyncio.sleep(0)
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            return {number for number, outcome in enumerate(outcomes) if outcome is True}

    acknowledged = asyncio.run(main())
    with SessionDB(db_path) as db:
        contents = [m["content"].split() for m in db.get_messages("s")]
    parts: dict[int, list[int]] = {}
    for number, part in contents:
        parts.setdefault(int(number), []).append(int(part))
    assert all(found == [0, 1, 2, 3, 4] for found in parts.values())
    assert acknowledged <= set(parts)
    sound(db_path)


def test_appends_that_start_at_different_times_keep_the_order_of_their_calls(db_path: Path) -> None:
    """Late comers do not overtake those that wait, however many wait and whatever the thread is doing."""

    async def main() -> None:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli")
            tasks: list[asyncio.Future[Any]] = []
            with held_up(db):
                for number in range(12_000):
                    tasks.append(asyncio.ensure_future(db.append_message("s", "user", str(number))))
                await standing(db)
            for number in range(12_000, 15_000):
                tasks.append(asyncio.ensure_future(db.append_message("s", "user", str(number))))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            assert [m["content"] for m in await db.get_messages("s")] == [str(n) for n in range(15_000)]

    asyncio.run(main())


def test_appends_that_open_the_store_keep_the_order_of_their_calls(db_path: Path) -> None:
    with SessionDB(db_path) as store:
        store.create_session("s", "cli")

    async def main() -> None:
        db = AsyncSessionDB(db_path)
        tasks: list[asyncio.Future[Any]] = []
        for number in range(500):
            tasks.append(asyncio.ensure_future(db.append_message("s", "user", str(number))))
            if number > 100:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert [m["content"] for m in await db.get_messages("s")] == [str(n) for n in range(500)]
        await db.close()

    asyncio.run(main())


def test_many_loops_in_many_threads_use_one_store(db_path: Path) -> None:
    db = AsyncSessionDB(db_path)
    start = threading.Barrier(4)
    failed: list[BaseException] = []

    async def work(name: str) -> None:
        await db.ensure_session(name, "cli")
        ids = await asyncio.gather(*(db.append_message(name, "user", str(n)) for n in range(200)))
        assert ids == sorted(ids)
        assert [m["content"] for m in await db.get_messages(name)] == [str(n) for n in range(200)]

    def run(name: str) -> None:
        start.wait()
        try:
            asyncio.run(work(name))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(f"s{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    asyncio.run(db.close())
    assert len(sound(db_path)) == 800


def test_a_loop_that_ends_with_appends_in_it_harms_nobody(db_path: Path) -> None:
    db = AsyncSessionDB(db_path)
    asyncio.run(db.create_session("s", "cli"))
    loop = asyncio.new_event_loop()
    with held_up(db):
        task = loop.create_task(db.append_message("s", "user", "of a loop that is gone"))
        loop.run_until_complete(standing(db))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
    asyncio.run(db.append_message("s", "user", "after"))
    asyncio.run(db.close())
    with SessionDB(db_path) as store:
        assert [m["content"] for m in store.get_messages("s")] == ["of a loop that is gone", "after"]


def test_appends_wait_for_another_processs_lock_or_tell_how_long_they_waited(db_path: Path) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path, patience=0.2) as db:
            await db.create_session("s", "cli")
            with held_up(db):
                calls = [db.append_message("s", "user", str(n)) for n in range(3)]
                outcomes: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [errors.StoreBusyError] * 3
            assert outcomes[0].waited >= 0.2
            assert await db.append_message("s", "user", "free again") == 1

    asyncio.run(main())


@pytest.mark.parametrize("indexing", ["background", "inline"])
def test_what_is_appended_is_found_at_once(db_path: Path, indexing: str) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path, indexing=indexing) as db:
            await db.create_session("s", "cli")
            await asyncio.gather(*(db.append_message("s", "user", f"word{n}") for n in range(100)))
            found = await asyncio.gather(*(db.search_messages(f"word{n}") for n in range(0, 100, 10)))
            assert [len(hits) for hits in found] == [1] * 10

    asyncio.run(main())
    assert threads_of_the_store() == []
