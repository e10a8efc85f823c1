"""A search finds what is stored also while the index cannot be brought up to date."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from processes import peer

from hermes_state import errors
from hermes_state.engine import upkeep


@pytest.fixture
def behind(db: Any, db_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store with indexed rows, and rows that cannot be indexed: another process holds the lock."""
    db.create_session("s", "cli")
    db.create_session("t", "telegram")
    for number in range(6):
        db.append_message("s" if number % 2 else "t", "user", f"docker indexed {number} 广西")
    assert len(db.search_messages("indexed")) == 6
    db._engine._worker.stop()
    db._engine.upkeep.catch_up()
    monkeypatch.setattr(upkeep, "SEARCH_WAIT_S", 0.05)
    for number in range(6, 10):
        db.append_message("s" if number % 2 else "t", "user", f"docker waiting {number} 桂林")
    assert db.store_info()["index_pending"]
    holder = peer(db_path, "hold-lock", "--no-init", "--seconds", "600")
    db.holder = holder
    with holder:
        holder.ready()
        yield db
        holder.kill()


def _ids(hits: list[dict[str, Any]]) -> list[int]:
    return [hit["id"] for hit in hits]


def test_what_waits_for_the_index_is_found_while_another_process_holds_the_lock(behind: Any) -> None:
    assert set(_ids(behind.search_messages("docker"))) == set(range(1, 11))
    assert set(_ids(behind.search_messages("waiting"))) == {7, 8, 9, 10}
    assert set(_ids(behind.search_messages("桂林"))) == {7, 8, 9, 10}
    assert set(_ids(behind.search_messages("广西 OR 桂林"))) == set(range(1, 11))
    assert set(_ids(behind.search_messages("docker NOT indexed"))) == {7, 8, 9, 10}


def test_filters_orders_and_pages_hold_over_both_parts(behind: Any) -> None:
    newest = _ids(behind.search_messages("docker", sort="newest"))
    assert newest == list(range(10, 0, -1))
    assert _ids(behind.search_messages("docker", sort="oldest")) == newest[::-1]
    assert _ids(behind.search_messages("docker", sort="newest", limit=3, offset=2)) == newest[2:5]
    assert {h["source"] for h in behind.search_messages("docker", source_filter=["telegram"])} == {"telegram"}
    pages = [_ids(behind.search_messages("docker", limit=4, offset=offset)) for offset in (0, 4, 8)]
    assert sorted(row for page in pages for row in page) == list(range(1, 11))
    assert len(behind.search_messages("docker", per_session=2)) == 4


def test_a_hit_that_waits_has_its_snippet_and_context(behind: Any) -> None:
    hit = next(hit for hit in behind.search_messages("waiting") if hit["id"] == 9)
    assert ">>>waiting<<<" in hit["snippet"]
    assert [neighbour["role"] for neighbour in hit["context"]] == ["user", "user"]


def test_a_search_does_not_wait_for_a_thread_that_waits_longer_for_the_lock(behind: Any) -> None:
    """Both would write the index on one connection; the other thread has the patience of a deletion."""
    engine = behind._engine
    outcome: list[Any] = []

    def other() -> None:
        try:
            outcome.append(engine.upkeep.index_now(8))
        except errors.StoreBusyError as error:
            outcome.append(error)

    engine.options = dataclasses.replace(engine.options, patience=600.0)
    thread = threading.Thread(target=other)
    thread.start()
    while not engine._writer._owned:
        threading.Event().wait(0.001)
    assert set(_ids(behind.search_messages("waiting"))) == {7, 8, 9, 10}
    assert outcome == [], "it waits still"
    behind.holder.kill()
    thread.join(300)
    assert outcome[0][0] == 4


def test_a_search_with_a_time_limit_scans_what_waits_too(behind: Any) -> None:
    assert set(_ids(behind.search_messages("waiting", time_limit=300.0))) == {7, 8, 9, 10}
    assert behind.holder.process.poll() is None, "the lock is held still"
