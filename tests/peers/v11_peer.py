"""A program on the older, pure-stdlib store: opens, writes and reads state.db its own way.

Run as a subprocess beside the store under test:

    python v11_peer.py DB COMMAND [--session S] [--count N] ... [--start-barrier]

Every command first opens the file as that program did (WAL, one second of
patience, tables made if missing, missing columns added, versions 10 and 11
migrated in autocommit), unless ``--no-init`` is given. Answers are JSON, one
object a line, on stdout. Two lines are not JSON: ``READY`` after
``--start-barrier`` (the work begins when a line arrives on stdin) and ``READY``
once ``hold-lock`` or ``hold-read`` hold what they hold (they let go when a line
arrives, when stdin closes, or after ``--seconds``).

Writes are ``BEGIN IMMEDIATE``, tried up to 15 times with pauses of 20 to
150 ms, with a PASSIVE checkpoint every 50. An error is printed as
``{"error": type name, "message": text}`` and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from v11_schema import INDEXES, connect, init_schema

Result = TypeVar("Result")

WRITE_MAX_RETRIES = 15
WRITE_RETRY_MIN_S = 0.020
WRITE_RETRY_MAX_S = 0.150
CHECKPOINT_EVERY_N_WRITES = 50
CONTENT_JSON_PREFIX = "\x00json:"


# Writing


class Writer:
    """Transactions with retries, and a PASSIVE checkpoint every 50 of them."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn
        self.writes = 0
        self.retries = 0
        self.worst = 0.0  # seconds that the slowest write took, waits included

    def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run ``work`` in a transaction; raises the last error when 15 tries were not enough."""
        began = time.monotonic()
        for attempt in range(WRITE_MAX_RETRIES):
            try:
                result = self._once(work)
            except sqlite3.OperationalError as error:
                told = str(error).lower()
                if attempt == WRITE_MAX_RETRIES - 1 or ("locked" not in told and "busy" not in told):
                    raise
                self.retries += 1
                time.sleep(random.uniform(WRITE_RETRY_MIN_S, WRITE_RETRY_MAX_S))
                continue
            self.worst = max(self.worst, time.monotonic() - began)
            self.writes += 1
            if self.writes % CHECKPOINT_EVERY_N_WRITES == 0:
                checkpoint(self.conn)
            return result
        raise AssertionError("the last try returns or raises")

    def _once(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            result = work(self.conn)
            self.conn.execute("COMMIT")
        except BaseException:
            if self.conn.in_transaction:
                self.conn.execute("ROLLBACK")
            raise
        return result


def checkpoint(conn: sqlite3.Connection) -> dict[str, int]:
    """A PASSIVE checkpoint: frames in the WAL, and how many of them are in the file now."""
    busy, frames, done = conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return {"busy": busy, "frames": frames, "checkpointed": done}


def encode_content(content: Any) -> Any:
    """A list or dict as the marked JSON text; anything else as it is."""
    if isinstance(content, (list, dict)):
        return CONTENT_JSON_PREFIX + json.dumps(content)
    return content


def create_session(writer: Writer, session: str, source: str) -> None:
    """Make the session unless it is there."""
    sql = "INSERT OR IGNORE INTO sessions (id, source, started_at) VALUES (?, ?, ?)"
    writer.run(lambda conn: conn.execute(sql, (session, source, time.time())))


def insert_message(conn: sqlite3.Connection, session: str, message: dict[str, Any]) -> int:
    """One row of ``messages``, without the counters; returns its id."""
    calls = message.get("tool_calls")
    cursor = conn.execute(
        "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp,"
        " token_count, finish_reason, reasoning) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session,
            message.get("role", "user"),
            encode_content(message.get("content")),
            message.get("tool_call_id"),
            json.dumps(calls) if calls else None,
            message.get("tool_name"),
            message.get("timestamp", time.time()),
            message.get("token_count"),
            message.get("finish_reason"),
            message.get("reasoning"),
        ),
    )
    return int(cursor.lastrowid or 0)


def count_calls(message: dict[str, Any]) -> int:
    """How many tool calls the message adds to its session's counter."""
    calls = message.get("tool_calls")
    return 0 if not calls else len(calls) if isinstance(calls, list) else 1


def append(writer: Writer, session: str, message: dict[str, Any]) -> int:
    """Insert a message and count it, in one transaction; returns its id."""

    def work(conn: sqlite3.Connection) -> int:
        message_id = insert_message(conn, session, message)
        conn.execute(
            "UPDATE sessions SET message_count = message_count + 1, tool_call_count = tool_call_count + ?"
            " WHERE id = ?",
            (count_calls(message), session),
        )
        return message_id

    return writer.run(work)


def update(writer: Writer, message_id: int, content: str) -> int:
    """Give a message other content; the number of rows changed."""
    sql = "UPDATE messages SET content = ? WHERE id = ?"
    return writer.run(lambda conn: conn.execute(sql, (content, message_id)).rowcount)


def delete_message(writer: Writer, message_id: int) -> int:
    """Delete one message, counters untouched; the number of rows deleted."""
    return writer.run(lambda conn: conn.execute("DELETE FROM messages WHERE id = ?", (message_id,)).rowcount)


def delete_session(writer: Writer, session: str) -> int:
    """Delete a session with its messages, its children orphaned; the number of sessions deleted."""

    def work(conn: sqlite3.Connection) -> int:
        conn.execute("UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?", (session,))
        conn.execute("DELETE FROM messages WHERE session_id = ?", (session,))
        return conn.execute("DELETE FROM sessions WHERE id = ?", (session,)).rowcount

    return writer.run(work)


def replace(writer: Writer, session: str, messages: list[dict[str, Any]]) -> int:
    """Delete the session's messages and insert these, in one transaction."""

    def work(conn: sqlite3.Connection) -> int:
        conn.execute("DELETE FROM messages WHERE session_id = ?", (session,))
        for message in messages:
            insert_message(conn, session, message)
        conn.execute(
            "UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE id = ?",
            (len(messages), sum(map(count_calls, messages)), session),
        )
        return len(messages)

    return writer.run(work)


# Reading


def search(conn: sqlite3.Connection, query: str, route: str) -> list[dict[str, Any]]:
    """Message ids and snippets by ``fts`` or ``trigram`` MATCH (FTS5 syntax) or ``like`` scan, by id."""
    if route == "like":
        escaped = query.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        sql = (
            "SELECT id, substr(content, 1, 120) AS snippet FROM messages WHERE content LIKE :text ESCAPE '\\'"
            " OR tool_name LIKE :text ESCAPE '\\' OR tool_calls LIKE :text ESCAPE '\\' ORDER BY id"
        )
        return [dict(row) for row in conn.execute(sql, {"text": f"%{escaped}%"})]
    name = "messages_fts_trigram" if route == "trigram" else "messages_fts"
    sql = (
        f"SELECT m.id, snippet({name}, 0, '>>>', '<<<', '...', 40) AS snippet FROM {name}"
        f" JOIN messages m ON m.id = {name}.rowid WHERE {name} MATCH ? ORDER BY m.id"
    )
    return [dict(row) for row in conn.execute(sql, (query,))]


def check(conn: sqlite3.Connection) -> dict[str, Any]:
    """Integrity of the file and of both indexes, counts, and rows that an index lacks or has too many.

    ``ok`` is true when everything agrees; ``missing`` and ``strangers`` list at
    most 20 ids an index; ``miscounted`` lists sessions whose counter is not the number of
    their rows (a NULL counter tells nothing).
    """
    report: dict[str, Any] = {"integrity": conn.execute("PRAGMA quick_check").fetchone()[0]}
    for table in ("sessions", "messages"):
        report[table] = conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    row = conn.execute("SELECT version FROM schema_version LIMIT 1").fetchone()
    report["version"] = None if row is None else row[0]
    good = report["integrity"] == "ok"
    for name in INDEXES:
        report[name] = state = _check_index(conn, name)
        good = good and state["integrity"] == "ok" and not state["missing_count"] + state["stranger_count"]
    sql = (
        "SELECT id FROM sessions s WHERE message_count <>"
        " (SELECT count(*) FROM messages m WHERE m.session_id = s.id)"
    )
    report["miscounted"] = [row[0] for row in conn.execute(sql)]
    report["ok"] = good and not report["miscounted"]
    return report


def _check_index(conn: sqlite3.Connection, name: str) -> dict[str, Any]:
    try:
        conn.execute(f"INSERT INTO {name}({name}) VALUES ('integrity-check')")
        integrity = "ok"
    except sqlite3.DatabaseError as error:
        integrity = str(error)
    missing = [
        row[0]
        for row in conn.execute(
            f"SELECT id FROM messages WHERE id NOT IN (SELECT id FROM {name}_docsize) ORDER BY id"
        )
    ]
    strangers = [
        row[0]
        for row in conn.execute(
            f"SELECT id FROM {name}_docsize WHERE id NOT IN (SELECT id FROM messages) ORDER BY id"
        )
    ]
    return {
        "integrity": integrity,
        "rows": conn.execute(f"SELECT count(*) FROM {name}_docsize").fetchone()[0],
        "missing_count": len(missing),
        "missing": missing[:20],
        "stranger_count": len(strangers),
        "strangers": strangers[:20],
    }


# The commands


def say(**answer: Any) -> None:
    """One JSON line, at once."""
    print(json.dumps(answer), flush=True)


def wait_for_line(seconds: float | None) -> None:
    """Return when a line arrives on stdin, when it closes, or after ``seconds``."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if ready:
        sys.stdin.readline()


def a_message(options: argparse.Namespace, number: int) -> dict[str, Any]:
    """The ``number``-th message to write: ``--content`` with ``{n}`` filled in."""
    return {
        "role": options.role,
        "content": options.content.replace("{n}", str(number)),
        "tool_calls": json.loads(options.tool_calls) if options.tool_calls else None,
        "tool_name": options.tool_name,
    }


def run_append(writer: Writer, options: argparse.Namespace) -> None:
    create_session(writer, options.session, options.source)
    ids = []
    for number in range(options.count):
        ids.append(append(writer, options.session, a_message(options, number)))
        if options.each:
            say(id=ids[-1])
    say(done="append", ids=ids, retries=writer.retries, worst_seconds=round(writer.worst, 4))


def run_replace(writer: Writer, options: argparse.Namespace) -> None:
    create_session(writer, options.session, options.source)
    messages = [a_message(options, number) for number in range(options.count)]
    say(done="replace", messages=replace(writer, options.session, messages))


def run_change(writer: Writer, options: argparse.Namespace) -> None:
    """``update`` and ``delete``: by ``--id``, or ``--session`` to delete a session whole."""
    if options.command == "update":
        changed = update(writer, options.id, options.content)
    elif options.id is not None:
        changed = delete_message(writer, options.id)
    else:
        changed = delete_session(writer, options.session)
    say(done=options.command, changed=changed)


def run_hold(writer: Writer, options: argparse.Namespace) -> None:
    """Keep the write lock, or a snapshot, until told to let go."""
    conn = writer.conn
    locking = options.command == "hold-lock"
    conn.execute("BEGIN IMMEDIATE" if locking else "BEGIN")
    before = conn.execute("SELECT count(*) FROM messages").fetchone()[0]
    print("READY", flush=True)
    wait_for_line(options.seconds)
    after = conn.execute("SELECT count(*) FROM messages").fetchone()[0]
    conn.execute("ROLLBACK")
    say(done=options.command, before=before, after=after)


def run_read(writer: Writer, options: argparse.Namespace) -> None:
    """``search``, ``messages``, ``check``, ``checkpoint``: one line with what was found."""
    conn = writer.conn
    if options.command == "search":
        hits = search(conn, options.query, options.route)
        say(ids=[hit["id"] for hit in hits], snippets=[hit["snippet"] for hit in hits])
    elif options.command == "messages":
        sql = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
        say(messages=[dict(row) for row in conn.execute(sql, (options.session,))])
    elif options.command == "check":
        say(**check(conn))
    else:
        say(**checkpoint(conn))


COMMANDS: dict[str, Callable[[Writer, argparse.Namespace], None]] = {
    "append": run_append,
    "replace": run_replace,
    "update": run_change,
    "delete": run_change,
    "hold-lock": run_hold,
    "hold-read": run_hold,
    "search": run_read,
    "messages": run_read,
    "check": run_read,
    "checkpoint": run_read,
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("db")
    parser.add_argument("command", choices=["open", *COMMANDS])
    parser.add_argument("--session", default="v11_peer")
    parser.add_argument("--source", default="cli")
    parser.add_argument("--role", default="user")
    parser.add_argument("--content", default="peer message {n} with words")
    parser.add_argument("--tool-calls", help="a JSON list, written as json.dumps writes it")
    parser.add_argument("--tool-name")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--id", type=int, help="message id, for update and delete")
    parser.add_argument("--query", default="")
    parser.add_argument("--route", choices=("fts", "trigram", "like"), default="fts")
    parser.add_argument("--seconds", type=float, help="longest hold; without it, until a line arrives")
    parser.add_argument("--each", action="store_true", help="append: also a line a message, once committed")
    parser.add_argument("--no-init", action="store_true", help="do not touch the schema")
    parser.add_argument("--start-barrier", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0, or 1 after an SQLite error, which is printed."""
    options = parse(arguments)
    if options.start_barrier:
        print("READY", flush=True)
        wait_for_line(None)
    try:
        conn = connect(options.db)
        try:
            opened = {} if options.no_init else init_schema(conn)
            if options.command == "open":
                say(done="open", **opened)
            else:
                COMMANDS[options.command](Writer(conn), options)
        finally:
            conn.close()
    except sqlite3.Error as error:
        say(error=type(error).__name__, message=str(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
