"""A gateway with threads: one SessionDB serves all of them.

    python examples/threaded_gateway.py [STORE]

Each chat has a thread that stores what is said. Appends that wait at the same
moment share one transaction and one fsync, so more threads mean more messages
a second. Another thread searches meanwhile, as a web page would, and sees every
message that has been acknowledged.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hermes_state import SessionDB, errors

CHATS = 8
TURNS = 25


def chat(db: SessionDB, number: int) -> str:
    """One conversation: the user asks, the agent calls a tool and answers. Its session's id."""
    session_id = f"chat-{number}"
    db.create_session(session_id, "telegram", model="example/model", user_id=f"user-{number}")
    for turn in range(TURNS):
        db.append_message(session_id, "user", f"What is the weather in 京都, question {turn}?")
        # What belongs together goes in at once, all or nothing.
        db.append_messages(
            session_id,
            [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": f"call-{turn}", "function": {"name": "weather", "arguments": "{}"}}
                    ],
                },
                {
                    "role": "tool",
                    "tool_call_id": f"call-{turn}",
                    "tool_name": "weather",
                    "content": "18 degrees",
                },
                {"role": "assistant", "content": f"It is 18 degrees, answer {turn}."},
            ],
        )
        db.update_token_counts(session_id, input_tokens=200, output_tokens=20, api_call_count=1)
    db.end_session(session_id, "user_exit")
    return session_id


def web_page(db: SessionDB, stop: threading.Event) -> int:
    """Searches and lists until it is told to stop; how often it found something."""
    found = 0
    while not stop.wait(0.02):
        found += bool(db.search_messages("京都", limit=5))
        db.list_sessions_rich(limit=10, order_by_last_active=True)
    return found


def main(path: Path) -> None:
    """Run the gateway on the store at ``path``."""
    stop = threading.Event()
    with SessionDB(path) as db, ThreadPoolExecutor(CHATS + 1) as pool:
        try:
            page = pool.submit(web_page, db, stop)
            sessions = list(pool.map(lambda number: chat(db, number), range(CHATS)))
        except errors.StoreBusyError as error:
            # Another process held the write lock longer than `patience`: nothing of that append was stored.
            raise SystemExit(f"the store is busy: {error}") from error
        finally:
            stop.set()
        searches = page.result()
        messages = sum(db.message_count(session_id) for session_id in sessions)
        print(f"{len(sessions)} chats stored {messages} messages; {searches > 0 and 'searches found them'}")
        for row in db.token_usage_by_source():
            print(f"{row['source']}: {row['total_input']} tokens in, {row['total_output']} out")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "state.db")
