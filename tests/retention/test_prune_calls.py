"""prune_sessions: ages by source, stopping, progress, dry run; prune_report: what is kept, and why."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from processes import sound

DAY = 86400.0


def aged(
    db: Any, session_id: str, days: float, *, source: str = "cli", texts: int = 1, live: bool = False
) -> str:
    """A session begun, and last active, so many days ago."""
    at = time.time() - days * DAY
    db.create_session(session_id, source)
    message = {"role": "user", "content": f"text of {session_id}", "timestamp": at}
    db.replace_messages(session_id, [message] * texts)
    ended = None if live else at
    db._conn.execute("UPDATE sessions SET started_at = ?, ended_at = ? WHERE id = ?", (at, ended, session_id))
    return session_id


def continues(db: Any, parent: str, child: str) -> None:
    """Make ``child`` the continuation of ``parent`` by compression."""
    db._conn.execute("UPDATE sessions SET end_reason = 'compression' WHERE id = ?", (parent,))
    db._conn.execute("UPDATE sessions SET parent_session_id = ? WHERE id = ?", (parent, child))


def left(db: Any) -> set[str]:
    return {row[0] for row in db._conn.execute("SELECT id FROM sessions")}


def test_each_source_has_its_own_age_and_none_is_never(db: Any) -> None:
    for source in ("cli", "telegram", "cron", "web"):
        aged(db, f"{source}-40", 40, source=source)
        aged(db, f"{source}-200", 200, source=source)
    ages = {"cron": 7, "telegram": None, "cli": 365, 'no "such" source': 1}
    assert db.prune_sessions(90, per_source=ages, dry_run=True) == 3
    assert db.prune_sessions(90, per_source=ages) == 3
    assert left(db) == {"cli-40", "cli-200", "telegram-40", "telegram-200", "web-40"}
    assert db.prune_sessions(90, "telegram", per_source={"telegram": 30}) == 2
    assert left(db) == {"cli-40", "cli-200", "web-40"}


def test_a_conversation_over_two_sources_stays_as_long_as_one_link_of_it_does(db: Any) -> None:
    aged(db, "first", 200, source="cli")
    aged(db, "next", 190, source="telegram")
    continues(db, "first", "next")
    assert db.prune_sessions(90, per_source={"telegram": None}) == 0
    assert db.prune_sessions(90, per_source={"telegram": 180}) == 2


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"per_source": {"cli": -1}}, ValueError),
        ({"per_source": {"cli": float("nan")}}, ValueError),
        ({"per_source": {"cli": "many"}}, TypeError),
        ({"per_source": {1: 5}}, TypeError),
        ({"stop": 5}, TypeError),
    ],
)
def test_arguments_that_say_nothing_are_refused_and_nothing_goes(db: Any, options: Any, kind: type) -> None:
    aged(db, "old", 200)
    with pytest.raises(kind):
        db.prune_sessions(90, **options)
    assert left(db) == {"old"}


def test_a_dry_run_counts_and_deletes_nothing(db: Any, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    aged(db, "old", 200)
    aged(db, "young", 1)
    assert db.prune_sessions(90, sessions_dir=tmp_path, dry_run=True) == 1
    assert left(db) == {"old", "young"}
    assert (tmp_path / "old.json").exists()


def test_progress_grows_to_the_number_of_sessions(db: Any) -> None:
    for number in range(30):
        aged(db, f"s{number:02}", 200, texts=100)
    seen: list[tuple[int, int]] = []
    assert db.prune_sessions(90, progress=lambda done, total: seen.append((done, total))) == 30
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == (30, 30)
    assert {total for _, total in seen} == {30}


@pytest.mark.parametrize("kind", ["event", "function"])
def test_a_prune_that_is_stopped_leaves_a_sound_store_and_goes_on_later(
    make_db: Any, db_path: Path, tmp_path: Path, kind: str
) -> None:
    db = make_db()
    for number in range(40):
        aged(db, f"s{number:02}", 200, texts=30)
        (tmp_path / f"s{number:02}.json").write_text("{}")
    event = threading.Event()
    stop = event if kind == "event" else event.is_set
    first = db.prune_sessions(90, sessions_dir=tmp_path, stop=stop, progress=lambda *_: event.set())
    assert 0 < first < 40
    assert len(left(db)) == 40 - first
    assert {path.stem for path in tmp_path.glob("s*.json")} == left(db)
    assert db.check()["ok"]
    assert db.prune_sessions(90, stop=event) == 0
    assert db.prune_sessions(90, sessions_dir=tmp_path) == 40 - first
    assert list(tmp_path.glob("s*.json")) == []
    db.close()
    assert sound(db_path) == set()


def test_a_stop_inside_a_long_session_leaves_its_newest_messages_and_right_counters(db: Any) -> None:
    aged(db, "long", 200, texts=2000)
    event = threading.Event()
    assert db.prune_sessions(90, stop=event, progress=lambda *_: event.set()) == 0
    rows = db.get_messages("long")
    assert 0 < len(rows) < 2000
    assert db.get_session("long")["message_count"] == len(rows)
    assert rows[-1]["id"] == 2000
    assert len(db.search_messages("text", limit=-1)) == len(rows)


def test_files_of_what_went_are_removed_even_where_the_prune_ends_by_an_error(
    db: Any, tmp_path: Path
) -> None:
    for number in range(40):
        aged(db, f"s{number:02}", 200, texts=30)
        (tmp_path / f"s{number:02}.json").write_text("{}")

    def fail(done: int, _total: int) -> None:
        raise RuntimeError(f"after {done}")

    with pytest.raises(RuntimeError, match="after"):
        db.prune_sessions(90, sessions_dir=tmp_path, progress=fail)
    assert 0 < len(left(db)) < 40
    assert {path.stem for path in tmp_path.glob("s*.json")} == left(db)


def test_the_report_says_what_goes_and_why_the_rest_is_kept(db: Any) -> None:
    aged(db, "old", 200, texts=3)
    aged(db, "older", 300, texts=2)
    aged(db, "live", 200, live=True)
    aged(db, "young", 2)
    aged(db, "used", 200)
    db.append_message("used", "user", "today")
    aged(db, "chain0", 250)
    aged(db, "chain1", 3)
    continues(db, "chain0", "chain1")
    aged(db, "pinned", 200, source="telegram")
    report = db.prune_report(90, per_source={"telegram": None})
    assert (report["sessions"], report["messages"], report["sample"]) == (2, 5, ["older", "old"])
    kept = {reason: (found["sessions"], set(found["sample"])) for reason, found in report["kept"].items()}
    assert kept == {
        "live": (1, {"live"}),
        "active_since": (3, {"young", "used", "chain1"}),
        "never": (1, {"pinned"}),
        "continued": (1, {"chain0"}),
        "other_source": (0, set()),
    }
    report = db.prune_report(90, "telegram")
    assert report["sample"] == ["pinned"]
    assert report["kept"]["other_source"]["sessions"] == 7
    assert len(left(db)) == 8


def test_the_report_agrees_with_the_prune_and_names_a_bounded_number_of_ids(db: Any) -> None:
    db._conn.executemany(
        "INSERT INTO sessions(id, source, started_at, ended_at) VALUES (?, ?, ?, ?)",
        ((f"s{n:05}", ("cli", "web")[n % 2], float(n), None if n % 3 == 0 else 6.0) for n in range(3000)),
    )
    report = db.prune_report(90)
    assert report["sessions"] == 2000
    assert report["sample"] == db.prune_candidates(90)[:20]
    assert report["kept"]["live"] == {"sessions": 1000, "sample": [f"s{n:05}" for n in range(0, 60, 3)]}
    total = report["sessions"] + sum(found["sessions"] for found in report["kept"].values())
    assert total == db.session_count() == 3000
    assert db.prune_sessions(90) == 2000


def test_a_report_of_an_empty_store_has_every_reason(db: Any) -> None:
    report = db.prune_report()
    assert (report["sessions"], report["messages"], report["sample"]) == (0, 0, [])
    assert set(report["kept"]) == {"live", "active_since", "never", "continued", "other_source"}
    with pytest.raises(ValueError):
        db.prune_report(-1)
