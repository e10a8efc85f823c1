"""Checkpoints: off the commit path, with a WAL that stays bounded and a main file that moves."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from processes import until

WAL_BOUND = 128 * 2**20
"""Without a fresh start it would be over 250 MB. The bound leaves room for a slow disk, not for growth."""


@pytest.mark.slow
def test_the_wal_stays_bounded_while_writes_and_reads_stream(db: Any, db_path: Path) -> None:
    """Readers all the time, and far more written than the bound: the WAL starts anew again and again.

    The text has words: FTS5 merges one of 150,000 letters, or a trigram that fills a message, in one piece.
    """
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(2000)]
    db.create_session("s", "cli")
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            db.get_messages("s", limit=3)
            db.search_messages("stream", limit=3)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    worst = 0
    for number in range(400):
        db.append_message("s", "tool", f"stream {number} " + " ".join(chance.choices(words, k=8000)))
        worst = max(worst, os.stat(f"{db_path}-wal").st_size)
    stop.set()
    for reader in readers:
        reader.join()
    assert worst < WAL_BOUND, worst
    assert db.message_count("s") == 400


def test_the_main_file_moves_soon_after_a_write(db: Any, db_path: Path) -> None:
    """Programs poll its modification time to learn of new messages."""
    db.create_session("s", "cli")
    for number in range(3):
        os.utime(db_path, (1, 1))
        before = db_path.stat().st_mtime_ns
        db.append_message("s", "user", f"message {number}")
        until(lambda before=before: db_path.stat().st_mtime_ns != before, "the file's time moves")


def test_a_write_through_conn_moves_the_main_file_too(db: Any, db_path: Path) -> None:
    db.create_session("s", "cli")
    db._engine.upkeep.checkpoint()
    os.utime(db_path, (1, 1))  # the clock of the file system may be a coarse one
    before = db_path.stat().st_mtime_ns
    db._conn.execute("UPDATE sessions SET model = 'm' WHERE id = 's'")
    until(lambda: db_path.stat().st_mtime_ns != before, "the file's time moves")
