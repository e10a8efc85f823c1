"""The store for asyncio: ``AsyncSessionDB``, every method of ``SessionDB`` as a coroutine."""

from __future__ import annotations

from hermes_state.aio.database import AsyncSessionDB

__all__ = ["AsyncSessionDB"]
