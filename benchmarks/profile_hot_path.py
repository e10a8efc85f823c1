"""Where ``append_message`` and ``get_messages`` spend CPU time, on the pure twins and on the compiled.

Run: ``python -m benchmarks.profile_hot_path``. Each kind runs in processes of its own, in turn. Times are
CPU times of the calling thread, so that waits for the disk and for other programs do not count; those a
message, the least of ROUNDS runs, are taken without the profiler. A compiled kernel is no Python
function: its time is in its caller's own.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import corpus

KINDS = ("pure", "compiled")
KERNELS = ("decode", "encode", "json_parse", "json_text", "query_text", "scripts", "searchable", "text")
ROUNDS = 5
READS = 40
FIELDS = ("tool_name", "tool_calls", "tool_call_id", "finish_reason", "reasoning")


def sample(size: int) -> list[dict[str, Any]]:
    return [message for session in corpus.build(size) for message in session["messages"]][:size]


def appended(store: Any, messages: Iterable[dict[str, Any]]) -> None:
    for message in messages:
        given = {name: message.get(name) for name in FIELDS}
        store.append_message("s", message["role"], message["content"], **given)


def timed(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def profiled(call: Callable[[], Any]) -> list[tuple[float, str]]:
    """Shares of own time by function, largest first; all Python code of the kernels counts as one."""
    profile = cProfile.Profile(time.thread_time)
    profile.runcall(call)
    own: dict[str, float] = {}
    for (file, _, name), entry in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        path = Path(file)
        in_kernels = "_fastpath" in path.parts or path.parent.name == "json"
        where = "kernels, and json for them" if in_kernels else f"{path.stem}.{name}" if path.suffix else name
        own[where] = own.get(where, 0.0) + entry[2]
    total = sum(own.values())
    return sorted(((spent / total, name) for name, spent in own.items()), reverse=True)


def measured(size: int) -> dict[str, Any]:
    """One process: microseconds a message, and the profile of each call."""
    from hermes_state import SessionDB

    messages = sample(size)
    half = len(messages) // 2
    with tempfile.TemporaryDirectory() as folder, SessionDB(Path(folder, "state.db")) as store:
        store.create_session("s", "cli")
        write = timed(lambda: appended(store, messages[:half])) / half
        write_profile = profiled(lambda: appended(store, messages[half:]))

        def read() -> None:
            for _ in range(READS):
                store.get_messages("s")

        read()
        spent = timed(read) / READS / len(messages)
        return {
            "append_message": (write * 1e6, write_profile[:8]),
            "get_messages": (spent * 1e6, profiled(read)[:8]),
        }


def child(kind: str, size: int) -> dict[str, Any]:
    environment = {**os.environ, "HERMES_STATE_NO_EXTENSIONS": "0", "HERMES_STATE_REQUIRE_EXTENSIONS": "0"}
    command = [sys.executable, "-m", "benchmarks.profile_hot_path", "--child", kind, "--messages", str(size)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--messages", type=int, default=2000, help="messages of the session (default 2000)")
    made.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.child == "pure":
        # Not HERMES_STATE_NO_EXTENSIONS, which leaves out what is compiled in the engine too.
        for name in KERNELS:
            sys.modules[f"hermes_state._fastpath._{name}_c"] = None  # type: ignore[assignment]
    if options.child:
        print(json.dumps(measured(options.messages)))
        return 0
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            runs[kind].append(child(kind, options.messages))
    for call in ("append_message", "get_messages"):
        for kind in KINDS:
            each = min(run[call][0] for run in runs[kind])
            print(f"\n{call}, {kind}: {each:.1f} us a message")
            for share, name in runs[kind][-1][call][1]:
                print(f"  {share:6.1%}  {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
