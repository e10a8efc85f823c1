"""A gateway on asyncio: AsyncSessionDB has the same methods as coroutines.

    python examples/asyncio_gateway.py [STORE]

An append that waits for its commit takes no thread. A stream gives one page at
a time. Leaving the block stores what still waits, and closes the file.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from hermes_state import AsyncSessionDB

CHANNELS = 40
MESSAGES = 10


async def channel(db: AsyncSessionDB, number: int) -> None:
    """One Discord channel: messages arrive, each is acknowledged once it is stored."""
    session_id = f"channel-{number}"
    await db.create_session(session_id, "discord")
    for count in range(MESSAGES):
        # The key makes it safe to send a message again after a cancellation or a timeout.
        await db.append_message(
            session_id, "user", f"message {count} of channel {number}", idempotency_key=f"event-{count}"
        )
    again = await db.append_message(session_id, "user", "sent twice", idempotency_key="event-0")
    first = (await db.get_messages(session_id, limit=1))[0]
    assert again == first["id"], "the second call with a key gives the id of the first"


async def heartbeat(stop: asyncio.Event) -> float:
    """The longest time for which the event loop was not free, in seconds."""
    loop, worst = asyncio.get_running_loop(), 0.0
    while not stop.is_set():
        before = loop.time()
        await asyncio.sleep(0.01)
        worst = max(worst, loop.time() - before - 0.01)
    return worst


async def main(path: Path) -> None:
    """Run the gateway on the store at ``path``."""
    stop = asyncio.Event()
    pulse = asyncio.create_task(heartbeat(stop))
    async with AsyncSessionDB(path) as db:
        await asyncio.gather(*(channel(db, number) for number in range(CHANNELS)))
        hits = await db.search_messages("channel 7", limit=3)
        assert all(">>>" in hit["snippet"] for hit in hits)
        streamed = 0
        async for _message in db.iter_messages("channel-7"):
            streamed += 1
        print(f"{await db.message_count()} messages of {await db.session_count()} channels stored")
        print(f"channel-7 has {streamed} messages")
    stop.set()
    print(f"the loop was never held up for more than {await pulse:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(Path(folder) / "state.db"))
