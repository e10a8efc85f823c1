"""No statement of the package reads through all messages or sessions where an index can serve.

Every public call is made once, in the ways that lead to other statements; each statement that names
one of the two tables is explained. ``pytest -s`` prints them all with their plans.
"""

from __future__ import annotations

import inspect
import io
import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state import SessionDB
from hermes_state.engine import opening
from hermes_state.search import recent, run, tables
from hermes_state.store import listing

NAMED = re.compile(r"\b(messages|sessions)\b(?:\s+AS\b)?(?:\s+(?!INDEXED\b|NOT\b)([a-z_]\w*))?", re.I)
CHANGES_SCHEMA = re.compile(r"(?i)CREATE|DROP|ALTER|PRAGMA|ANALYZE|VACUUM")
KEYWORDS = {
    "where", "order", "on", "join", "left", "cross", "group", "limit", "set", "union", "indexed", "values",
    "as", "using", "select", "returning", "having", "natural", "inner", "default",
}  # fmt: skip

ALLOWED = {
    r"SELECT 1 FROM messages LIMIT 1 \|": "the first entry alone is read",
    r"^SELECT (COUNT|count)\(\*\) FROM (messages|sessions) \|": "SQLite keeps no counts; the smallest index",
    r"INDEXED BY hs_idx_messages_time WHERE 1 ORDER BY timestamp( DESC)?, id( DESC)? LIMIT": "one end of it",
    r"INDEXED BY hs_idx_messages_time ORDER BY timestamp DESC LIMIT 1 OFFSET": "one end of it",
    r"SELECT \* FROM sessions WHERE handoff_state = 'pending'": "an index of the pending ones alone",
    r"^SELECT s.id FROM sessions s WHERE .* ORDER BY s.started_at DESC, s.id LIMIT": "in the page's order",
    r"^SELECT s.id FROM sessions s WHERE .* AND s.end_reason = 'compression' \|": "a page that is not near",
    r"^SELECT started_at, CAST\(id AS BLOB\) FROM sessions": "in the page's order",
    r"^WITH active\(id, at\) AS": "the last activity of all, where a walk through the last messages is long",
    r"^WITH page AS MATERIALIZED \( SELECT s.id, s.started_at": "the same, for search_sessions",
    r"^WITH tips\(root, tip\) AS": "the same, for a page that is not near the newest",
    r"^SELECT s.id FROM sessions s WHERE \?1 IS NULL .* ORDER BY COALESCE": "an export of all, by activity",
    r"^WITH RECURSIVE old\(id\) AS": "a prune looks at every session",
    r"^SELECT m.id, 0.0 FROM messages m INDEXED BY idx_messages_session": "the sessions to walk through",
    r"^SELECT id, rank FROM \(SELECT m.id AS id, 0.0 AS rank, m.timestamp AS stamp": "the same, per session",
    r"COALESCE\(output_tokens, 0\) AS total_tokens": "the highest of a sum need every row",
    r"^SELECT (model|source), COUNT\(\*\) AS session_count": "totals need every row",
}
"""Pattern in "statement | step of its plan" -> why it may read all of a table or index."""


class Statements:
    """What the connections of one store execute, each text once with its first bindings."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, Any] = {}
        plain = opening.connect

        def connect(*args: Any, **kwargs: Any) -> apsw.Connection:
            conn = plain(*args, **kwargs)
            conn.set_exec_trace(self._note)
            return conn

        patch.setattr(opening, "connect", connect)

    def _note(self, cursor: Any, sql: str, bindings: Any) -> bool:
        self.seen.setdefault(sql.strip(), bindings)
        return True

    def on_the_tables(self) -> dict[str, Any]:
        return {
            sql: given
            for sql, given in self.seen.items()
            if NAMED.search(sql) and not CHANGES_SCHEMA.match(sql)
        }


def names(sql: str) -> set[str]:
    """The names under which a statement's plan shows the two tables."""
    out = set()
    for table, alias in NAMED.findall(sql):
        out.add(table)
        if alias and alias.lower() not in KEYWORDS:
            out.add(alias)
    return out


def explained(conn: apsw.Connection, sql: str, bindings: Any) -> list[str]:
    return [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


def public() -> set[str]:
    names = (name for name in dir(SessionDB) if not name.startswith("_"))
    return {name for name in names if callable(getattr(SessionDB, name))}


def everything(db: Any, folder: Path) -> set[str]:
    """Make every public call; the names of those made."""
    called: set[str] = set()

    class Spy:
        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return getattr(db, name)

    spy: Any = Spy()
    _write(spy)
    for name in sorted(public() - {"close"}):
        given = inspect.signature(getattr(db, name)).parameters.values()
        if all(p.default is not p.empty for p in given if p.kind is not p.VAR_KEYWORD):
            getattr(spy, name)()
    _read(spy)
    _search(spy)
    _keep(spy, folder)
    return called


def _write(db: Any) -> None:
    for n in range(8):
        db.create_session(f"s{n}", "cli" if n % 2 else "telegram", model="m", user_id="u")
        db.append_message(f"s{n}", "user", f"word 单词 {n} youer服务")
        many = [{"role": "assistant", "content": ["a", "word"]}] * 3
        db.append_messages(f"s{n}", many, idempotency_key="k")
    db.create_session("child", "cli", parent_session_id="s1")
    db.append_message("child", "user", "more words", idempotency_key="k")
    db.ensure_session("s0", "cli")
    db.end_session("s1", "compression")
    db.reopen_session("s1")
    db.end_session("s1", "compression")
    db.update_system_prompt("s0", "prompt")
    db.update_token_counts("s0", 1, 2, model="m")
    db.set_session_title("s0", "title")
    db.set_or_number_title("s2", "title")
    db.replace_messages("s3", [{"role": "user", "content": f"row {n}"} for n in range(5)])
    db.replace_messages("s3", [{"role": "user", "content": f"row {n}"} for n in range(4)])
    db.clear_messages("s4")
    db.set_meta("key", "value")
    db.request_handoff("s0", "discord")
    db.claim_handoff("s0")
    db.complete_handoff("s0")
    db.fail_handoff("s0", "error")
    db.apply_telegram_topic_migration()
    db.enable_telegram_topic_mode(chat_id="c", user_id="u")
    db.bind_telegram_topic(chat_id="c", thread_id="t", user_id="u", session_key="k", session_id="s0")


def _read(db: Any) -> None:
    first = db.get_messages("s0")[0]["id"]
    db.get_messages("s0", limit=2)
    db.get_messages("s0", before_id=first + 2, limit=1)
    db.get_messages("s0", after_id=first)
    db.get_messages_as_conversation("child", include_ancestors=True)
    db.get_messages_around("s0", first)
    db.get_anchored_view("s0", first)
    db.get_anchored_view("s0", first, keep_roles=None)
    for session_id in ("s0", "s1", "child", "nobody"):
        db.get_session(session_id), db.resolve_session_id(session_id[:4]), db.get_session_title(session_id)
        db.get_compression_tip(session_id), db.get_lineage(session_id), db.get_descendants(session_id)
        db.resolve_resume_session_id(session_id), db.message_count(session_id)
        db.export_session(session_id), list(db.iter_messages(session_id, batch=2))
    db.message_count(), db.session_count(), db.session_count("cli")
    db.sanitize_title("t"), db.get_session_by_title("title"), db.resolve_session_by_title("title")
    db.get_next_title_in_lineage("title")
    for limit in (3, 10_000, -1):
        for source in (None, "cli"):
            for given in ({}, {"include_children": True}, {"project_compression_tips": False}):
                db.list_sessions_rich(source, ["web"], limit, **given)
                db.list_sessions_rich(source, limit=limit, order_by_last_active=True, **given)
            db.search_sessions(source, limit, 1)
    db.recent_sessions(), db.token_usage_by_model(), db.token_usage_by_source(), db.top_sessions_by_tokens()
    db.export_all(), db.export_all("cli"), list(db.iter_export("cli")), list(db.iter_export_records())
    list(db.iter_export_records("cli")), list(db.iter_export_records(session_id="s0"))
    "".join(db.export_markdown("s0")), db.write_markdown(io.StringIO(), "s0")
    db.get_meta("key"), db.get_handoff_state("s0"), db.list_pending_handoffs()
    db.is_telegram_topic_mode_enabled(chat_id="c", user_id="u")
    db.get_telegram_topic_binding(chat_id="c", thread_id="t")
    db.get_telegram_topic_binding_by_session(session_id="s0")
    db.list_telegram_topic_bindings_for_chat(chat_id="c")
    db.is_telegram_session_linked_to_topic(session_id="s0")
    db.list_unlinked_telegram_sessions_for_user(chat_id="c", user_id="u")


def _search(db: Any) -> None:
    for query in ("word", "单词", "单词子", "word 单词", "word NOT 词", "more OR 词"):
        db.explain_search(query)
        for sort in (None, "newest", "oldest"):
            for given in (
                {}, {"source_filter": ["cli"]}, {"exclude_sources": ["cli"]}, {"role_filter": ["user"]},
                {"per_session": 1}, {"exclude_session_id": "s0"}, {"since": 1}, {"since": 1, "until": 2},
                {"match": "substring"}, {"limit": -1},
            ):  # fmt: skip
                at = db.search_page(query, sort=sort, **{"limit": 1, **given})["cursor"]
                if at:
                    db.search_messages(query, sort=sort, limit=1, cursor=at, **given)


def _keep(db: Any, folder: Path) -> None:
    db.store_info(), db.check(), db.repair(remove_orphans=True), db.rebuild_index(), db.optimize()
    db.set_trigram_mode("unspaced"), db.search_messages("ord", match="substring", time_limit=60)
    db.backup(folder / "backup.db"), db.export_jsonl(folder / "out.jsonl")
    db.import_jsonl(folder / "out.jsonl")
    other = SessionDB(folder / "other.db")
    other.import_jsonl(folder / "out.jsonl"), other.close()
    db.finalize_orphaned_compression_sessions(), db.prune_candidates(0), db.prune_empty_ghost_sessions()
    db.disable_telegram_topic_mode(chat_id="c"), db.vacuum(), db.maybe_auto_prune_and_vacuum(vacuum=False)
    db.delete_session("s5"), db.delete_conversation("child")
    db.prune_sessions(0), db.prune_sessions(0, "cli")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Statements, set[str], Path]:
    """The statements of every public call, those of small limits too, and the file they ran on."""
    statements = Statements(monkeypatch)
    for module, name, value in ((run, "WIDE", 1), (run, "NARROW", 2), (listing, "MAX_NEWEST", 100)):
        monkeypatch.setattr(module, name, value)
    path = tmp_path / "state.db"
    db = SessionDB(path)
    called = everything(db, tmp_path)
    monkeypatch.setattr(recent, "WINDOW", 0)
    _write(db), _search(db)
    db.close()
    return statements, called, path


def test_every_public_call_is_among_those_explained(ran: Any) -> None:
    assert public() - ran[1] == {"close"}, "call it in everything()"


def test_no_statement_scans_messages_or_sessions_where_an_index_can_serve(ran: Any) -> None:
    statements, _, path = ran
    conn = opening.connect_writer(path, durability="full", triggers=False)
    tables.prepare_connection(conn)
    wrong, used = [], set()
    for sql, bindings in statements.on_the_tables().items():
        plan = explained(conn, sql, bindings)
        print(sql, *plan, "", sep="\n    ")
        mine = names(sql)
        scans = [step for step in plan if (found := re.match(r"SCAN (\w+)", step)) and found.group(1) in mine]
        for step in scans:
            key = f"{' '.join(sql.split())} | {step}"
            reason = next((pattern for pattern in ALLOWED if re.search(pattern, key)), None)
            if reason is None:
                wrong.append(key)
            else:
                used.add(reason)
    conn.close()
    assert not wrong, "\n\n".join(wrong)
    assert used == set(ALLOWED), "an exception that nothing needs any more"
