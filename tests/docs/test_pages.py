"""What the pages say of the file, of the command line and of one another."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from hermes_state import SessionDB
from hermes_state.schema import ddl
from hermes_state.store.retention import AUTO_PRUNE_KEY
from hermes_state.store.telegram_schema import VERSION_KEY

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OWN_KEYS = (ddl.META_WATERMARK, ddl.META_TRIGRAM, ddl.META_UPGRADE, AUTO_PRUNE_KEY, VERSION_KEY)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def objects(path: Path) -> dict[str, str]:
    """Name -> type of all tables, indexes and triggers but those that SQLite and FTS5 make for themselves."""
    with closing(sqlite3.connect(path)) as conn:
        found = dict(conn.execute("SELECT name, type FROM sqlite_master"))
    shadow = re.compile(r"_(data|idx|content|docsize|config)$|^sqlite_")
    return {name: kind for name, kind in found.items() if not shadow.search(name)}


def test_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in [*DOCS.glob("*.md"), ROOT / "benchmarks" / "README.md", ROOT / "examples" / "README.md"]:
        assert f"]({path.relative_to(ROOT).as_posix()})" in readme, path.name


def test_the_page_of_the_file_names_every_column_key_table_index_and_trigger(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.apply_telegram_topic_migration()
    text = page("file-format.md")
    for name, kind in objects(path).items():
        if kind == "trigger":
            table, _, event = name.rpartition("_")
            assert table in text
            assert f"_{event}`" in text
        elif not name.startswith("idx_telegram"):
            assert name in text, name
    with closing(sqlite3.connect(path)) as conn:
        for table in ("sessions", "messages", "hs_idempotency"):
            for row in conn.execute(f"PRAGMA table_info({table})"):
                assert re.search(rf"\b{row[1]}\b", text), f"{table}.{row[1]}"
    for key in OWN_KEYS:
        assert f"`{key}`" in text


def test_the_way_back_leaves_what_version_11_has_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", "修改youer服务端", idempotency_key="k")
    (sql,) = re.findall(r"```sql\n(.*?)```", page("migration-from-v11.md"), re.DOTALL)
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(sql)
        assert conn.execute("SELECT count(*) FROM state_meta").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM messages_fts").fetchone() == (1,)
    assert objects(path) == objects(ROOT / "tests" / "fixtures" / "v11.db")
    with SessionDB(path) as db:
        assert len(db.search_messages("youer")) == 1
        assert db.check()["ok"]


def test_the_text_that_the_triggers_index_is_as_the_page_says() -> None:
    (said,) = re.findall(r"```sql\n(.*?)```", page("file-format.md"), re.DOTALL)
    assert said.strip() in ddl.FTS_SQL.replace("new.", "")
    assert said.strip() in ddl.FTS_TRIGRAM_SQL.replace("new.", "")
