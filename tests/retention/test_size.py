"""What the index costs on the disk, and that other columns are no business of its."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import corpus
import pytest

MESSAGES = 2000
MOST = 0.40
"""Of what the index of ``trigram="all"`` adds to the bare messages."""


def english() -> Iterator[dict[str, Any]]:
    """Messages without any letter of an unspaced script, again and again."""
    while True:
        for session in corpus.sessions("agent"):
            for message in session["messages"]:
                if isinstance(message.get("content"), str) and message["content"].isascii():
                    yield {"role": message["role"], "content": message["content"]}


def filled(db: Any, path: Path, messages: list[dict[str, Any]]) -> int:
    """Bytes of the file with these messages, each in the index, and no free page."""
    db.create_session("s", "cli")
    for at in range(0, len(messages), 500):
        db.append_messages("s", messages[at : at + 500])
    db.search_messages("the")
    db.optimize()
    db.vacuum()
    db.close()
    return path.stat().st_size


def bare(path: Path, copy: Path) -> int:
    """Bytes of the file without any full-text table."""
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy, isolation_level=None)) as conn:
        names = conn.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%USING fts5%'").fetchall()
        assert len(names) == 3
        for (name,) in names:
            conn.execute(f'DROP TABLE "{name}"')
        conn.execute("VACUUM")
    return copy.stat().st_size


@pytest.mark.slow
def test_unspaced_costs_at_most_two_fifths_of_what_all_costs_on_english_text(
    make_db: Any, tmp_path: Path
) -> None:
    messages = list(islice(english(), MESSAGES))
    sizes = {}
    for mode in ("all", "unspaced"):
        path = tmp_path / f"{mode}.db"
        sizes[mode] = filled(make_db(path, trigram=mode), path, messages)
    without = bare(tmp_path / "all.db", tmp_path / "bare.db")
    share = (sizes["unspaced"] - without) / (sizes["all"] - without)
    assert share <= MOST, (share, sizes, without)


def test_a_column_of_ours_on_five_thousand_messages_does_not_touch_the_index(db: Any) -> None:
    db.create_session("s", "cli")
    db.append_messages("s", [{"role": "user", "content": f"word{number} 广西"} for number in range(5000)])
    assert len(db.search_messages("word*", limit=-1)) == 5000
    # Nothing is left that the worker would index or merge meanwhile; a search may scan what waits.
    db._engine.upkeep.catch_up()
    db.optimize()
    before = index_data(db)
    db._engine.write(
        lambda conn: conn.execute("UPDATE messages SET token_count = 7, finish_reason = 'x'"), "t"
    )
    assert (
        db._read(lambda conn: conn.execute("SELECT SUM(token_count) FROM messages").fetchone()[0], "t")
        == 35000
    )
    assert index_data(db) == before
    assert len(db.search_messages("word*", limit=-1)) == 5000
    assert len(db.search_messages("广西", limit=-1)) == 5000


def index_data(db: Any) -> list[list[tuple[Any, ...]]]:
    """Every segment of the full-text tables: written anew by any change to a row of theirs."""
    return [
        db._read(
            lambda conn, t=table: conn.execute(f"SELECT id, block FROM {t}_data ORDER BY id").fetchall(), "t"
        )
        for table in ("messages_fts", "messages_fts_trigram", "hs_fts_words")
    ]
