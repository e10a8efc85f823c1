"""AsyncSessionDB has every method of SessionDB, under its name, signature and docstring."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hermes_state
from hermes_state import AsyncSessionDB, SessionDB, errors
from hermes_state.aio.methods import is_stream, public_methods

METHODS = public_methods(SessionDB)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_is_there_with_its_signature_and_docstring(name: str) -> None:
    theirs, ours = getattr(SessionDB, name), getattr(AsyncSessionDB, name)
    assert inspect.signature(ours) == inspect.signature(theirs)
    if name != "close":
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    if isinstance(METHODS[name], staticmethod):
        assert ours is theirs
    elif is_stream(name):
        assert not inspect.iscoroutinefunction(ours)
    else:
        assert inspect.iscoroutinefunction(ours)


def test_constants_are_there_too() -> None:
    assert AsyncSessionDB.MAX_TITLE_LENGTH == SessionDB.MAX_TITLE_LENGTH


def test_the_name_is_imported_at_its_first_use(tmp_path: Path) -> None:
    code = (
        "import sys, hermes_state; assert 'asyncio' not in sys.modules; "
        "assert 'AsyncSessionDB' in hermes_state.__all__; hermes_state.AsyncSessionDB; "
        "assert 'asyncio' in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=300)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        hermes_state.Nothing  # noqa: B018


def test_a_conversation_through_the_coroutines(db_path: Path) -> None:
    async def main() -> None:
        async with AsyncSessionDB(db_path) as db:
            await db.create_session("s", "cli", model="m")
            first = await db.append_message("s", "user", "hello docker", idempotency_key="k")
            assert await db.append_message("s", "user", "again", idempotency_key="k") == first
            ids = await db.append_messages("s", [{"role": "user", "content": ["a", 1]}, {"role": "tool"}])
            assert ids == [first + 1, first + 2]
            assert await db.append_messages("s", []) == []
            found = await db.search_messages("docker")
            assert [hit["id"] for hit in found] == [first]
            assert await db.set_session_title("s", "t")
            assert db.sanitize_title("  a   b ") == "a b"
            assert [m["id"] async for m in db.iter_messages("s", batch=2)] == [first, *ids]
            assert [s["id"] async for s in db.iter_export()] == ["s"]
            assert "hello docker" in "".join([piece async for piece in db.export_markdown("s")])
            records = [record async for record in db.iter_export_records()]
            assert json.loads(json.dumps(records)) == records
            assert await db.run(lambda store: store.message_count("s")) == 3
            assert await db.prune_sessions(90) == 0
            assert db.db.get_session("s")["message_count"] == 3

    asyncio.run(main())
    with SessionDB(db_path) as db:
        assert db.message_count("s") == 3


def test_errors_are_those_of_the_store(db_path: Path) -> None:
    async def main() -> None:
        db = AsyncSessionDB(db_path)
        with pytest.raises(RuntimeError, match="not open yet"):
            db.db  # noqa: B018
        with pytest.raises(errors.UnknownSessionError):
            await db.append_message("nobody", "user", "x")
        await db.create_session("s", "cli")
        with pytest.raises(TypeError):
            await db.append_message("s", 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"messages\[1\]"):
            await db.append_messages("s", [{"role": "user"}, 5])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="idempotency_key"):
            await db.append_messages("s", [{"role": "user"}], idempotency_key=5)  # type: ignore[arg-type]
        with pytest.raises(LookupError):
            async for _ in db.export_markdown("nobody"):
                pass
        with pytest.raises(ValueError, match="0 or more"):
            await db.prune_sessions(-1)
        assert await db.message_count() == 0
        await db.close()

    asyncio.run(main())
    with pytest.raises(ValueError, match="1 or more"):
        AsyncSessionDB(db_path, threads=0)


def test_a_store_that_cannot_be_opened_says_so_at_each_call(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"this is no database" * 100)

    async def main() -> None:
        db = AsyncSessionDB(tmp_path / "bad.db")
        for _ in range(2):
            with pytest.raises(errors.NotADatabaseError):
                await db.get_session("s")
        await db.close()

    asyncio.run(main())


def test_a_programs_own_encoder_is_called_as_in_the_store(db_path: Path) -> None:
    class Loud(SessionDB):
        @classmethod
        def _encode_content(cls, content: Any) -> str | None:
            return super()._encode_content(str(content).upper())

    async def main() -> None:
        db = AsyncSessionDB(db_path)
        db._db = Loud(db_path)
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "hi")
        await db.append_messages("s", [{"role": "user", "content": "ho"}])
        assert [m["content"] for m in await db.get_messages("s")] == ["HI", "HO"]
        await db.close()

    asyncio.run(main())
