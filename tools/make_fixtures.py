"""Make database files of schema versions 1 to 11, as older programs left them.

Stdlib ``sqlite3`` only: the files stand for what other programs wrote, so
nothing of the package may have a hand in them. The version table followed is
the one of the user's document: columns and indexes appear in the version that
brought them in, the full-text tables are external-content up to 10 and inline
in 11. The ``handoff_*`` columns and ``state_meta`` came without a version of
their own; they are put into 11 and into 10 and 11.

Run ``python tools/make_fixtures.py --version all --out tests/fixtures``, or
import ``make`` and read the returned ``Facts``.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

LATEST = 11
DEFAULT_MESSAGES = 120
EPOCH = 1_735_689_600.0  # 2025-01-01T00:00:00Z, the start of the first session

# (name, declaration, version that brought it in), in the order of a fresh file.
SESSION_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("id", "TEXT PRIMARY KEY", 1),
    ("source", "TEXT NOT NULL", 1),
    ("user_id", "TEXT", 1),
    ("model", "TEXT", 1),
    ("model_config", "TEXT", 1),
    ("system_prompt", "TEXT", 1),
    ("parent_session_id", "TEXT", 1),
    ("started_at", "REAL NOT NULL", 1),
    ("ended_at", "REAL", 1),
    ("end_reason", "TEXT", 1),
    ("message_count", "INTEGER DEFAULT 0", 1),
    ("tool_call_count", "INTEGER DEFAULT 0", 1),
    ("input_tokens", "INTEGER DEFAULT 0", 1),
    ("output_tokens", "INTEGER DEFAULT 0", 1),
    ("cache_read_tokens", "INTEGER DEFAULT 0", 5),
    ("cache_write_tokens", "INTEGER DEFAULT 0", 5),
    ("reasoning_tokens", "INTEGER DEFAULT 0", 5),
    ("billing_provider", "TEXT", 5),
    ("billing_base_url", "TEXT", 5),
    ("billing_mode", "TEXT", 5),
    ("estimated_cost_usd", "REAL", 5),
    ("actual_cost_usd", "REAL", 5),
    ("cost_status", "TEXT", 5),
    ("cost_source", "TEXT", 5),
    ("pricing_version", "TEXT", 5),
    ("title", "TEXT", 3),
    ("api_call_count", "INTEGER DEFAULT 0", 8),
    ("handoff_state", "TEXT", 11),
    ("handoff_platform", "TEXT", 11),
    ("handoff_error", "TEXT", 11),
)
MESSAGE_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("id", "INTEGER PRIMARY KEY AUTOINCREMENT", 1),
    ("session_id", "TEXT NOT NULL REFERENCES sessions(id)", 1),
    ("role", "TEXT NOT NULL", 1),
    ("content", "TEXT", 1),
    ("tool_call_id", "TEXT", 1),
    ("tool_calls", "TEXT", 1),
    ("tool_name", "TEXT", 1),
    ("timestamp", "REAL NOT NULL", 1),
    ("token_count", "INTEGER", 1),
    ("finish_reason", "TEXT", 2),
    ("reasoning", "TEXT", 6),
    ("reasoning_content", "TEXT", 7),
    ("reasoning_details", "TEXT", 6),
    ("codex_reasoning_items", "TEXT", 6),
    ("codex_message_items", "TEXT", 9),
)
INDEXES = (
    "CREATE INDEX idx_sessions_source ON sessions(source)",
    "CREATE INDEX idx_sessions_parent ON sessions(parent_session_id)",
    "CREATE INDEX idx_sessions_started ON sessions(started_at DESC)",
    "CREATE INDEX idx_messages_session ON messages(session_id, timestamp)",
)
TITLE_INDEX = "CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL"

SPECIAL_SESSIONS = ("fx_chain_1", "fx_chain_2", "fx_chain_3", "fx_trunk", "fx_branch", "fx_agent", "fx_empty")
#: A conversation compressed twice: each link ended with ``compression``, the last one is live.
CHAIN = ("fx_chain_1", "fx_chain_2", "fx_chain_3")
#: Titles that several sessions of a file with ``duplicate_titles`` bear; sessions newest first.
TITLE_DUPLICATES: dict[str, tuple[str, ...]] = {
    "weekly report": ("fx_0011", "fx_0007", "fx_0003"),
    "考勤 报告": ("fx_0010", "fx_0002"),
}
#: Sessions whose counters are NULL in every version.
NULL_COUNTERS = ("fx_0004", "fx_0009")

_SOURCES = ("cli", "telegram", "discord", "cron")
_MODELS = ("anthropic/claude-sonnet-4.6", "openai/gpt-5", None)
_TEXTS: dict[str, tuple[str, ...]] = {
    "english": (
        "The docker build stops at the step that copies the lock file.",
        "Can you read src/main.py and tell me why the retry loop never ends?",
        "I renamed the helper and moved the tests; the deployment is green again.",
        "Please compare kubernetes and plain containers for three small services.",
        "The report for March is late because two tables were joined twice.",
    ),
    "chinese": (
        "我们下周去广西,先到桂林,再坐船看漓江。",
        "这份考勤报告的初版还缺三个人的记录。",
        "请把错题本里的数学题按章节整理一下。",
        "数据库的备份每天凌晨两点开始,大约要二十分钟。",
    ),
    "japanese": (
        "京都のホテルを二泊で予約したいのですが、駅に近い所はありますか。",
        "会議の資料を明日までに準備してください。",
        "ﾊﾝｶｸのカタカナも検索できるようにしたい。",
        "この関数はリストを受け取り、合計を返します。",
    ),
    "korean": (
        "서울역에서 부산까지 가는 기차표를 알아봐 주세요.",
        "회의록을 요약하고 할 일을 목록으로 정리해 줘.",
        "배포 스크립트가 왜 두 번 실행되는지 확인해 주세요.",
        "오늘 날씨에 맞는 옷차림을 추천해 줘.",
    ),
    "mixed": (
        "修改youer服务端的计划:先升级 API,再迁移数据。",
        "PPT 里大别山项目的数字和考勤表对不上 😀",
        "React コンポーネントの state が更新されません。",
        "docker 컨테이너 로그에 error 42 가 반복됩니다.",
    ),
}
_LANGUAGES = tuple(_TEXTS)
# One word a language that stands in that language's first message and nowhere else.
_MARKERS = ("quokkabridge", "龘靐寺院", "蛸壺ホテル", "쀼쀼역", "改造zyxo后台")
_TOOL_CALL_MARKER = "vellumargument"
_TOOL_NAME_MARKER = "fx_terminal"


@dataclass(frozen=True)
class Facts:
    """What a made file holds, so that tests need not read it to know.

    ``markers`` maps a word of the content to the only message id that has it;
    ``late_markers`` does so for words of ``tool_calls`` and ``tool_name``, which
    are in the indexes only from version 11 on (names: every id that has it).
    """

    version: int
    stamp: int | None
    sessions: tuple[str, ...]
    messages: int
    per_session: dict[str, int]
    tool_calls: dict[str, int]
    live: tuple[str, ...]
    markers: dict[str, int]
    late_markers: dict[str, tuple[int, ...]]
    chain: tuple[str, ...] = CHAIN
    duplicates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    null_counters: tuple[str, ...] = NULL_COUNTERS


@dataclass
class _Session:
    id: str
    language: str
    started_at: float
    source: str
    model: str | None
    parent: str | None = None
    ended_at: float | None = None
    end_reason: str | None = None
    title: str | None = None
    length: int = 0
    calls: int = 0


def columns(version: int, table: str) -> tuple[str, ...]:
    """The column names of ``sessions`` or ``messages`` in a fresh file of ``version``."""
    listed = SESSION_COLUMNS if table == "sessions" else MESSAGE_COLUMNS
    return tuple(name for name, _, since in listed if since <= version)


def make(
    path: str | Path,
    version: int,
    messages: int = DEFAULT_MESSAGES,
    seed: int = 0,
    *,
    drop_columns: Sequence[str] = (),
    extra_columns: Sequence[str] = (),
    no_version_row: bool = False,
    stamp: int | None = None,
    duplicate_titles: bool | None = None,
    hollow_trigram: bool = False,
    upgraded: bool = False,
    page_size: int = 4096,
) -> Facts:
    """Write a file of schema ``version`` (1 to 11) at ``path``, which is replaced, and say what is in it.

    ``drop_columns`` leaves out columns named ``table.column`` that the stamp
    promises. ``extra_columns`` adds ``table.column DECLARATION`` that no
    version knows; with ``stamp=99`` the file is of a newer program.
    ``no_version_row`` leaves ``schema_version`` empty. ``duplicate_titles``
    (default: in version 3 only, which had titles and no unique index yet)
    writes `TITLE_DUPLICATES` and leaves the unique index out.
    ``hollow_trigram`` leaves the trigram table empty, with its triggers in
    place. ``upgraded`` orders the columns as in a file that began at version 1
    and got each column by ALTER TABLE. The journal mode is WAL. Same arguments, same content.

    Raises ValueError for a version outside 1 to 11.
    """
    if not 1 <= version <= LATEST:
        raise ValueError(f"no such schema version: {version}")
    path = Path(path)
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    doubled = version == 3 if duplicate_titles is None else duplicate_titles
    written = None if no_version_row else version if stamp is None else stamp
    conn = sqlite3.connect(path, isolation_level=None)
    try:
        conn.execute(f"PRAGMA page_size={page_size}")
        conn.execute("PRAGMA journal_mode=wal")
        conn.execute("BEGIN")
        _tables(conn, version, drop_columns, extra_columns, upgraded)
        if version >= 4 and not doubled and "sessions.title" not in drop_columns:
            conn.execute(TITLE_INDEX)
        _full_text(conn, version)
        facts = _fill(conn, version, messages, random.Random(seed), doubled, written)
        if hollow_trigram and version >= 10:
            _empty_trigram(conn, version)
        if written is not None:
            conn.execute("INSERT INTO schema_version VALUES (?)", (written,))
        conn.execute("COMMIT")
        conn.execute("VACUUM")
    finally:
        conn.close()
    return facts


def _tables(
    conn: sqlite3.Connection, version: int, dropped: Sequence[str], extra: Sequence[str], upgraded: bool
) -> None:
    conn.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
    for table, listed in (("sessions", SESSION_COLUMNS), ("messages", MESSAGE_COLUMNS)):
        ordered = sorted(listed, key=lambda column: column[2]) if upgraded else listed
        lines = [
            f"{name} {declaration}"
            for name, declaration, since in ordered
            if since <= version and f"{table}.{name}" not in dropped
        ]
        lines += [text.split(".", 1)[1] for text in extra if text.startswith(f"{table}.")]
        if table == "sessions":
            lines.append("FOREIGN KEY (parent_session_id) REFERENCES sessions(id)")
        conn.execute(f"CREATE TABLE {table} ({', '.join(lines)})")
    if version >= 10:
        conn.execute("CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)")
    for statement in INDEXES:
        conn.execute(statement)


def _full_text(conn: sqlite3.Connection, version: int) -> None:
    """The full-text tables and triggers of ``version``."""
    names = ["messages_fts"] + (["messages_fts_trigram"] if version >= 10 else [])
    for name in names:
        tokenizer = ", tokenize='trigram'" if name.endswith("trigram") else ""
        if version >= 11:
            conn.execute(f"CREATE VIRTUAL TABLE {name} USING fts5(content{tokenizer})")
            _inline_triggers(conn, name)
        else:
            conn.execute(
                f"CREATE VIRTUAL TABLE {name} USING "
                f"fts5(content, content=messages, content_rowid=id{tokenizer})"
            )
            _external_triggers(conn, name)


def _external_triggers(conn: sqlite3.Connection, name: str) -> None:
    insert = f"INSERT INTO {name}(rowid, content) VALUES (new.id, new.content);"
    delete = f"INSERT INTO {name}({name}, rowid, content) VALUES('delete', old.id, old.content);"
    _triggers(conn, name, insert, delete)


def _inline_triggers(conn: sqlite3.Connection, name: str) -> None:
    parts = [f"COALESCE(new.{column},'')" for column in ("content", "tool_name", "tool_calls")]
    text = " || ' ' || ".join(parts)
    insert = f"INSERT INTO {name}(rowid, content) VALUES (new.id, {text});"
    delete = f"DELETE FROM {name} WHERE rowid = old.id;"
    _triggers(conn, name, insert, delete)


def _triggers(conn: sqlite3.Connection, name: str, insert: str, delete: str) -> None:
    conn.execute(f"CREATE TRIGGER {name}_insert AFTER INSERT ON messages BEGIN {insert} END")
    conn.execute(f"CREATE TRIGGER {name}_delete AFTER DELETE ON messages BEGIN {delete} END")
    conn.execute(f"CREATE TRIGGER {name}_update AFTER UPDATE ON messages BEGIN {delete} {insert} END")


def _empty_trigram(conn: sqlite3.Connection, version: int) -> None:
    if version >= 11:
        conn.execute("DELETE FROM messages_fts_trigram")
    else:  # an external-content table forgets everything by this command only
        conn.execute("INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('delete-all')")


def _fill(
    conn: sqlite3.Connection,
    version: int,
    total: int,
    chance: random.Random,
    doubled: bool,
    stamp: int | None,
) -> Facts:
    sessions = _plan(total, chance, doubled)
    rows = list(_message_rows(sessions, total, chance, version))
    for session in sessions:
        _insert(conn, "sessions", _session_row(session, chance, version))
    for row in rows:
        _insert(conn, "messages", row)
    if version >= 10:
        conn.execute("INSERT INTO state_meta VALUES ('last_auto_prune', '1735689600.0')")
    late: dict[str, list[int]] = {}
    for row in rows:
        for word in (_TOOL_CALL_MARKER, _TOOL_NAME_MARKER):
            if word in (row["tool_calls"] or "") or word == row["tool_name"]:
                late.setdefault(word, []).append(row["id"])
    return Facts(
        version=version,
        stamp=stamp,
        sessions=tuple(session.id for session in sessions),
        messages=len(rows),
        per_session={session.id: session.length for session in sessions},
        tool_calls={session.id: session.calls for session in sessions},
        live=tuple(session.id for session in sessions if session.ended_at is None),
        markers={word: row["id"] for row in rows for word in _MARKERS if word in str(row["content"])},
        late_markers={word: tuple(ids) for word, ids in late.items()},
        duplicates=dict(TITLE_DUPLICATES) if doubled else {},
    )


def _plan(total: int, chance: random.Random, doubled: bool) -> list[_Session]:
    """The sessions: about 150 messages each in a large file, never fewer than 13 ordinary ones."""
    ordinary = [f"fx_{number:04d}" for number in range(max(13, total // 150))]
    sessions = []
    for place, name in enumerate((*ordinary, *SPECIAL_SESSIONS)):
        sessions.append(
            _Session(
                id=name,
                language=_LANGUAGES[place % len(_LANGUAGES)],
                started_at=EPOCH + place * 21_600.0,
                source=_SOURCES[place % len(_SOURCES)],
                model=_MODELS[chance.randrange(len(_MODELS))],
                title=None if place % 4 == 3 else f"Topic {place}",
            )
        )
    speaking = [session for session in sessions if session.id != "fx_empty"]
    for place in range(total):
        speaking[place % len(speaking)].length += 1
    by_id = {session.id: session for session in sessions}
    _lineage(by_id)
    for place, session in enumerate(sessions):
        if place % 3 and session.end_reason is None and session.id not in ("fx_chain_3", "fx_branch"):
            session.ended_at = session.started_at + 2.0 * session.length + 60.0
            session.end_reason = "user_exit"
    by_id["fx_0000"].title, by_id["fx_0001"].title = "Fix build", "Fix build #2"
    if doubled:
        for title, owners in TITLE_DUPLICATES.items():
            for owner in owners:
                by_id[owner].title = title
    return sessions


def _lineage(by_id: dict[str, _Session]) -> None:
    """A compression chain, a branch and a sub-agent, with times that follow from each other."""
    for parent_id, child_id in pairwise(CHAIN):
        parent, child = by_id[parent_id], by_id[child_id]
        parent.ended_at = parent.started_at + 2.0 * parent.length + 1.0
        parent.end_reason = "compression"
        child.parent, child.started_at, child.source = parent.id, parent.ended_at + 0.05, parent.source
    trunk, branch, agent = by_id["fx_trunk"], by_id["fx_branch"], by_id["fx_agent"]
    trunk.ended_at, trunk.end_reason = trunk.started_at + 2.0 * trunk.length + 1.0, "branched"
    branch.parent, branch.started_at = trunk.id, trunk.ended_at + 0.5
    host = by_id["fx_chain_3"]
    agent.parent, agent.started_at = host.id, host.started_at + 1.0
    agent.ended_at, agent.end_reason = agent.started_at + 2.0 * agent.length, "completed"


def _session_row(session: _Session, chance: random.Random, version: int) -> dict[str, Any]:
    unknown = session.id in NULL_COUNTERS
    spent = 40 * session.length + chance.randrange(100)
    return {
        "id": session.id,
        "source": session.source,
        "user_id": f"user_{chance.randrange(3)}",
        "model": session.model,
        "model_config": json.dumps({"temperature": 0.2, "max_iterations": 60}),
        "system_prompt": "You are a careful assistant.",
        "parent_session_id": session.parent,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
        "message_count": None if unknown else session.length,
        "tool_call_count": None if unknown else session.calls,
        "input_tokens": None if unknown else 3 * spent,
        "output_tokens": None if unknown else spent,
        "cache_read_tokens": None if unknown else spent // 2,
        "cache_write_tokens": None if unknown else spent // 4,
        "reasoning_tokens": None if unknown else spent // 8,
        "billing_provider": "anthropic" if session.model else None,
        "estimated_cost_usd": round(spent * 3e-6, 8),
        "cost_status": "estimated",
        "title": session.title,
        "api_call_count": None if unknown else (session.length + 1) // 2,
    }


def _message_rows(
    sessions: list[_Session], total: int, chance: random.Random, version: int
) -> Iterable[dict[str, Any]]:
    """Messages of all sessions in turn, as a gateway with many chats writes them; ids from 1."""
    speaking = [session for session in sessions if session.length]
    for place in range(total):
        session = speaking[place % len(speaking)]
        step = place // len(speaking)
        row = _message(session, step, chance, version)
        if place < len(_MARKERS):
            row["content"] = f"{row['content']} {_MARKERS[place]}{' ' if place == 0 else '。'}"
        row.update(id=place + 1, session_id=session.id, timestamp=session.started_at + 2.0 * step)
        yield row


def _message(session: _Session, step: int, chance: random.Random, version: int) -> dict[str, Any]:
    """Step ``step`` of a conversation: question, call, result, answer, question, two calls, two results."""
    text = chance.choice(_TEXTS[session.language])
    row: dict[str, Any] = dict.fromkeys(columns(LATEST, "messages"))
    row.update(role="assistant", content=text, token_count=len(text) // 2 + 1)
    turn = step % 8
    if turn in (0, 4):
        row["role"] = "user"
        if turn == 4 and version >= 9 and session.language == "mixed":
            row["content"] = "\x00json:" + json.dumps([{"type": "text", "text": text}])
    elif turn in (1, 5):
        count = 1 if turn == 1 else 2
        session.calls += count
        row.update(content=None, finish_reason="tool_calls")
        row["tool_calls"] = json.dumps([_call(session, step, number, text) for number in range(count)])
    elif turn in (2, 6, 7):
        row.update(role="tool", content=f'{{"exit_code": 0, "output": "{step} ok"}}', token_count=None)
        row["tool_name"] = _TOOL_NAME_MARKER
        row["tool_call_id"] = _call_id(session, step - 1 - (turn == 7), turn == 7)
    else:
        row.update(finish_reason="stop", reasoning=f"Think: {text}", reasoning_content=text[:20])
        row["reasoning_details"] = json.dumps([{"type": "reasoning.text", "text": text}])
        row["codex_reasoning_items"] = json.dumps([{"type": "reasoning", "id": f"rs_{session.id}_{step}"}])
        row["codex_message_items"] = json.dumps([{"type": "message", "id": f"msg_{step}", "phase": "final"}])
    return row


def _call(session: _Session, step: int, number: int, text: str) -> dict[str, Any]:
    marker = f" {_TOOL_CALL_MARKER}" if session.id == "fx_0000" and step == 1 else ""
    arguments = json.dumps({"query": text[:14] + marker}, ensure_ascii=False)
    function = {"name": _TOOL_NAME_MARKER, "arguments": arguments}
    return {"id": _call_id(session, step, number), "type": "function", "function": function}


def _call_id(session: _Session, step: int, number: int) -> str:
    return f"call_{session.id}_{step}_{int(number)}"


def _insert(conn: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    present = [name for _, name, *_ in conn.execute(f"PRAGMA table_info({table})") if name in row]
    marks = ", ".join("?" for _ in present)
    conn.execute(
        f"INSERT INTO {table} ({', '.join(present)}) VALUES ({marks})", [row[name] for name in present]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``v{N}.db`` for the versions asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make state.db files of old schema versions.")
    parser.add_argument("--version", default="all", help="1 to 11, or all")
    parser.add_argument("--messages", type=int, default=DEFAULT_MESSAGES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page-size", type=int, default=1024, help="bytes; 1024 keeps small files small")
    parser.add_argument("--out", type=Path, required=True, help="folder for v{N}.db")
    chosen = parser.parse_args(arguments)
    versions = range(1, LATEST + 1) if chosen.version == "all" else [int(chosen.version)]
    for version in versions:
        path = chosen.out / f"v{version}.db"
        facts = make(path, version, chosen.messages, chosen.seed, page_size=chosen.page_size)
        size = path.stat().st_size
        print(f"{path}: {len(facts.sessions)} sessions, {facts.messages} messages, {size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
