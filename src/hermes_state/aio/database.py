"""AsyncSessionDB: a SessionDB for asyncio. See docs/async.md for what it promises."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from hermes_state import errors
from hermes_state._fastpath import encode
from hermes_state.aio.appends import AppendQueue
from hermes_state.aio.methods import add_methods
from hermes_state.api.messages import MessageCalls
from hermes_state.session_db import SessionDB
from hermes_state.store.idempotency import KeyedRows

T = TypeVar("T")

THREADS = 8
"""Calls that run at a time by default; further ones wait in line."""
STREAM_ITEMS = 100
"""Items that a stream takes from its thread at a time (messages and records)."""


@add_methods(SessionDB)
class AsyncSessionDB:
    """The session store for asyncio: the methods of ``SessionDB`` as coroutines and async iterators.

    One object serves any number of tasks, event loops and threads. Appends
    share one storing thread and its transactions; other calls run in a pool of
    threads, ``threads`` at a time. Usable as an async context manager.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        threads: int = THREADS,
        **options: Any,
    ) -> None:
        """Nothing is opened yet: the first call does that, or ``async with``.

        Args:
            db_path: as for ``SessionDB``.
            threads: calls that run at a time.
            options: the keyword arguments of ``SessionDB``.

        Raises:
            TypeError, ValueError: ``threads`` is no whole number, or below 1.
        """
        if not isinstance(threads, int):
            raise TypeError(f"threads must be a whole number, not {threads!r}")
        if threads < 1:
            raise ValueError("threads must be 1 or more")
        self._arguments = (db_path, options)
        self._threads = threads
        self._db: SessionDB | None = None
        self._begin()

    def _begin(self) -> None:
        """Threads, locks and queue of this process; nothing runs yet."""
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._doors: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._closing: Future[None] | None = None
        self._closer: threading.Thread | None = None
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="hermes_state-aio")
        self._storing = ThreadPoolExecutor(1, thread_name_prefix="hermes_state-append")
        self._appends: AppendQueue | None = None

    if TYPE_CHECKING:
        # The methods that add_methods makes are not in the text: a checker takes them for Any.
        def __getattr__(self, name: str) -> Any: ...

    # -- opening and closing --

    async def __aenter__(self) -> AsyncSessionDB:
        await self._opened("open")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def db(self) -> SessionDB:
        """The store underneath, for synchronous code in other threads.

        Raises:
            RuntimeError: nothing has opened it yet.
        """
        if self._db is None:
            raise RuntimeError("The store is not open yet: await a call, or use 'async with'")
        return self._db

    async def _opened(self, operation: str) -> SessionDB:
        """The store, opened by whoever comes first."""
        if self._pid != os.getpid():
            # A forked child: threads and queue are the parent's. The store itself opens anew by itself.
            self._begin()
        if self._closing is not None:
            raise errors.closed(self._arguments[0], operation)
        # An asyncio.Lock is fair: calls go on in the order in which they came, opened or not.
        async with self._doors.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._db is None or self._appends is None:
                await self._in_pool(self._open)
        assert self._db is not None
        return self._db

    def _open(self) -> None:
        with self._opening:
            if self._db is None:
                path, options = self._arguments
                self._db = SessionDB(path, **options)
            if self._appends is None:
                self._appends = AppendQueue(self._db._engine, self._storing)

    async def close(self) -> None:
        """Let what was begun end (appends that wait are stored), then close the store.

        Calls made after it raise ``StoreClosedError``. A second ``close`` waits for the first.
        Cancelling the wait does not stop the closing.
        """
        if self._pid != os.getpid():
            self._begin()
        with self._opening:
            if self._closing is None:
                self._closing = Future()
                self._closer = threading.Thread(
                    target=self._close, args=(self._closing,), name="hermes_state-close"
                )
                self._closer.start()
        await asyncio.shield(asyncio.wrap_future(self._closing))
        if self._closer is not None:
            self._closer.join()  # it has told its outcome and is at its end

    def _close(self, closing: Future[None]) -> None:
        """In a thread of its own: wait for the others, then close."""
        try:
            self._pool.shutdown(wait=True)
            self._storing.shutdown(wait=True)
            if self._db is not None:
                self._db.close()
        except BaseException as error:  # noqa: BLE001 - raised by those who wait in close()
            closing.set_exception(error)
        else:
            closing.set_result(None)

    # -- calls --

    async def run(self, function: Callable[[SessionDB], T]) -> T:
        """``function(db)`` in one of the threads, for several calls that belong together."""
        db = await self._opened("run")
        return await self._in_pool(lambda: function(db))

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        db = await self._opened(name)
        return await self._in_pool(lambda: getattr(db, name)(*args, **kwargs))

    async def _in_pool(self, function: Callable[[], T]) -> T:
        """``function()`` in a thread; cancelled before it began, it does not run."""
        context = contextvars.copy_context()
        try:
            running = self._pool.submit(context.run, function)
        except RuntimeError as error:
            raise errors.closed(self._arguments[0]) from error
        return await asyncio.wrap_future(running)

    async def _stream(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """The items of a synchronous iterator, some at a time; sessions, which are large, one by one."""
        iterator = iter(await self._call(name, args, kwargs))
        number = 1 if name == "iter_export" else STREAM_ITEMS
        while items := await self._in_pool(lambda: list(itertools.islice(iterator, number))):
            for item in items:
                yield item

    # -- appends --

    async def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        *,
        idempotency_key: str | None = None,
    ) -> int:
        # The docstring is SessionDB's, see below.
        db = await self._opened("append_message")
        values = (
            content, tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning,
            reasoning_content, reasoning_details, codex_reasoning_items, codex_message_items,
        )  # fmt: skip
        if not _plain(db, "append_message") or self._appends is None:
            given = (session_id, role, *values)
            return await self._in_pool(lambda: db.append_message(*given, idempotency_key=idempotency_key))
        rows: Sequence[Any] = [encode.encode_message(session_id, role, *values, time.time(), None)]
        if idempotency_key is not None:
            rows = KeyedRows.of(rows, idempotency_key)
        return (await self._appends.store(rows, None, 1, "append_message"))[0]

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> list[int]:
        # The docstring is SessionDB's, see below.
        db = await self._opened("append_messages")
        given = list(messages)
        if not given or not _plain(db, "append_messages") or self._appends is None:
            return await self._in_pool(
                lambda: db.append_messages(session_id, given, idempotency_key=idempotency_key)
            )

        def rows() -> Sequence[Any]:
            # In the storing thread: encoding many messages would hold up the event loop.
            encoded = encode.encode_messages(session_id, given, time.time(), None)
            return encoded if idempotency_key is None else KeyedRows.of(encoded, idempotency_key)

        return await self._appends.store(None, rows, len(given), "append_messages")


AsyncSessionDB.append_message.__doc__ = SessionDB.append_message.__doc__
AsyncSessionDB.append_messages.__doc__ = SessionDB.append_messages.__doc__


def _plain(db: SessionDB, name: str) -> bool:
    """Whether the store's own method, with its own encoder, would run: what it does is done here."""
    return (
        getattr(getattr(db, name), "__func__", None) is MessageCalls.__dict__[name]
        and db._content_encoder() is None
    )
