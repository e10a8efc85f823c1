"""What the case tests share: asking a store which messages a query hits, and writing from elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Hits = Callable[..., set[int]]
Stored = Callable[..., list[int]]
Elsewhere = Callable[..., None]

_STATEMENTS = """
import json, sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=30)
with conn:
    for sql, params in json.load(sys.stdin):
        conn.execute(sql, params)
conn.close()
"""


@pytest.fixture
def hits() -> Hits:
    """``hits(db, query, **filters)``: the ids of all messages that the query hits."""

    def ask(db: Any, query: str, **filters: Any) -> set[int]:
        return {hit["id"] for hit in db.search_messages(query, limit=-1, **filters)}

    return ask


@pytest.fixture
def stored(any_db: Any) -> Stored:
    """``stored("one text", "another")``: user messages with these contents in session ``s``; their ids."""
    any_db.create_session("s", "cli")

    def add(*contents: Any) -> list[int]:
        return [any_db.append_message("s", "user", content) for content in contents]

    return add


@pytest.fixture
def elsewhere() -> Elsewhere:
    """``elsewhere(path, (sql, params), ...)``: one transaction of a stdlib program in another process."""

    def run(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
        subprocess.run(
            [sys.executable, "-c", _STATEMENTS, str(path)],
            input=json.dumps(statements), text=True, check=True, timeout=60,
        )  # fmt: skip

    return run
