"""The demo's report for people: plain text where nobody looks at a terminal."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hermes_state.cli.report import Report, Search
from hermes_state.cli.text import clean, marked, size_text, time_text


class Screen:
    """Prints a report section by section.

    Text of messages is data: control characters never reach the terminal, and
    nothing in it is taken for markup.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._section = 0

    def show(self, report: Report) -> None:
        """Print all of it."""
        self._store(report)
        self._loaded(report)
        self._live(report)
        self._searches(report)
        self._lineage(report)
        self._tokens(report)
        self._totals(report)
        self._end(report)

    # -- building blocks --

    def _head(self, title: str) -> None:
        self._section += 1
        self._console.print()
        self._console.print(Text(f"{self._section}. {title}", style="bold cyan"))

    def _say(self, text: str, *, indent: int = 3, style: str = "") -> None:
        self._console.print(Padding(Text(text, style=style), (0, 0, 0, indent)))

    def _mark(self, label: str, text: str, *, indent: int) -> None:
        """A line of stored text with the marks of its hits in colour."""
        shown = Text(label, style="dim")
        shown.append_text(marked(text))
        self._console.print(Padding(shown, (0, 0, 0, indent)))

    # -- sections --

    def _store(self, report: Report) -> None:
        store, given = report.store, report.input
        self._head("A store is one SQLite file")
        stays = "stays there" if store["kept"] else "is removed at the end (--db PATH keeps it)"
        self._say(f"It lies at {clean(store['path'])} and {stays}. No other store is read or changed.")
        how = {
            "background": "a message is stored first and indexed for search right after, by a worker",
            "inline": "a message is stored and indexed for search in one step",
        }[store["indexing"]]
        self._say(f"Indexing is {store['indexing']!r}: {how}.")
        self._say(f"The trigram index, for scripts without spaces, takes {_trigram(store['trigram'])}.")
        what = "the sample that comes with the package" if given["sample"] else clean(given["file"])
        self._say(f"Conversations come from {what}: one session a line, as JSON.")

    def _loaded(self, report: Report) -> None:
        loaded, found = report.loaded, report.verified
        self._head("Everything in the file goes in")
        self._say(
            f"{loaded['sessions']:,} sessions with {loaded['messages']:,} messages and "
            f"{loaded['tool_calls']:,} tool calls were stored in {time_text(loaded['store_seconds'])}, the "
            f"messages of a session in one transaction. {time_text(loaded['close_seconds'])} more, and all "
            "of it was searchable and the file closed."
        )
        if loaded["titles_changed"]:
            self._say(
                f"{loaded['titles_changed']:,} titles were cleaned, cut to 100 characters or numbered, "
                "for a title belongs to one session."
            )
        if loaded["refused"]:
            self._say(f"{loaded['refused']:,} lines were not stored:", style="bold red")
            for problem in report.problems[:10]:
                self._say(clean(f"line {problem['line']}: {problem['reason']}"), indent=6)
            if loaded["refused"] > 10:
                self._say("... (standard error has more of them)", indent=6)
        self._head("It comes out as it went in")
        if found["exact"]:
            self._say(
                "The input was read again and compared with the store, opened anew: all "
                f"{found['equal'] + found['mended']:,} messages are equal in every column that the input "
                f"gives, and all {found['sessions']:,} sessions in source, model, parent, end reason and "
                "counters."
            )
        else:
            self._say(f"{found['different']:,} differences:", style="bold red")
            for difference in found["differences"]:
                self._say(clean(difference), indent=6)
        if found["mended"]:
            self._say(
                f"In {found['mended']:,} of them U+FFFD stands for half a surrogate pair: no UTF-8 has it."
            )

    def _live(self, report: Report) -> None:
        live = report.live
        self._head("Messages come one by one while an agent works")
        times = ", ".join(time_text(seconds) for seconds in live["append_seconds"])
        self._say(
            f"A new conversation got {live['messages']} messages. An append returns once its message would "
            f"survive a power loss; the first four took {times}. The second one, read back:"
        )
        for key in ("id", "role", "tool_calls", "reasoning", "finish_reason"):
            self._say(clean(f"{key}: {_value(live['read_back'].get(key))}"), indent=6)

    def _searches(self, report: Report) -> None:
        self._head("Search: any text is a valid query, in any script")
        self._say(
            "Hits come best first (bm25). >>> and <<< mark what matched; the lines at the end are the first "
            "hit with its neighbours in the conversation."
        )
        for search in report.searches:
            self._search(search)

    def _search(self, search: Search) -> None:
        self._console.print()
        head = Text("   ")
        head.append(clean(search.query), style="bold yellow")
        head.append(f"   ({time_text(search.seconds)})", style="dim")
        self._console.print(head)
        self._say(f"Why: {search.why}.", indent=5)
        self._say(clean(f"How: {search.plan}", 600), indent=5, style="dim")
        if not search.hits:
            self._say("No message has this.", indent=5)
        for hit in search.hits:
            where = clean(str(hit.get("title") or hit["session_id"]))
            self._say(f"- {clean(hit['role'])} in '{where}'", indent=5, style="green")
            self._mark("", hit["snippet"], indent=9)
        if search.hits:
            for line in search.hits[0]["context"]:
                text = clean(str(line["content"] or "(a tool call)"), 100)
                self._mark(f"{clean(line['role'])}: ", text, indent=12)

    def _lineage(self, report: Report) -> None:
        lineage = report.lineage
        self._head("A long conversation stays one conversation")
        self._say(
            "When a conversation outgrows the model's window, the agent compresses it and goes on in a new "
            "session. The store keeps the links:"
        )
        for number, link in enumerate(lineage["chain"]):
            arrow = "   " * number + ("-> " if number else "")
            ended = f", ended by {link['end_reason']}" if link["end_reason"] else ", still open"
            name = clean(link["title"] or link["id"])
            self._say(f"{arrow}{name} ({link['message_count']} messages{ended})", indent=6)
        for row in lineage["listed"]:
            name = clean(row["title"] or row["id"])
            self._say(f"In a list it is one entry, under its latest part: '{name}': {clean(row['preview'])}")
        self._say(
            clean(
                f"Who resumes the first part is sent to {lineage['resume']}; a replay to the model "
                f"has {lineage['replayed_messages']} messages, root first."
            )
        )

    def _tokens(self, report: Report) -> None:
        self._head("Tokens and cost are added up by model")
        table = Table(box=None, padding=(0, 2), show_edge=False)
        for name in ("model", "sessions", "tokens in", "tokens out", "cost (US$)"):
            table.add_column(name, justify="left" if name == "model" else "right")
        for row in report.tokens[:8]:
            cost = row["total_cost"]
            table.add_row(
                Text(clean(str(row["model"]), 60)),
                f"{row['session_count']:,}",
                f"{row['total_input']:,}",
                f"{row['total_output']:,}",
                "-" if cost is None else f"{cost:.4f}",
            )
        self._console.print(Padding(table, (0, 0, 0, 3)))

    def _totals(self, report: Report) -> None:
        totals, loaded, given = report.totals, report.loaded, report.input
        self._head("In numbers, on this machine")
        table = Table(box=None, padding=(0, 2), show_edge=False, show_header=False)
        table.add_column()
        table.add_column(justify="right")
        whole_rate = size_text(totals["input_bytes_per_second"] or 0)
        rows = [
            ("sessions, messages", f"{totals['sessions']:,}, {totals['messages']:,}"),
            ("input", f"{size_text(given['bytes'])}, unpacked {size_text(given['unpacked_bytes'])}"),
            ("read and stored in", time_text(loaded["seconds"])),
            ("index completed and file closed in", time_text(loaded["close_seconds"])),
            ("both together", f"{time_text(totals['searchable_seconds'])}, {whole_rate} of input a second"),
            ("messages stored a second", f"{totals['messages_per_second'] or 0:,.0f}"),
            ("compared with the input in", time_text(report.verified["seconds"])),
            ("one append, median", time_text(totals["append_seconds_median"])),
            (
                "one search, median and worst",
                f"{time_text(totals['search_seconds_median'])}, {time_text(totals['search_seconds_worst'])}",
            ),
            ("size of the store's file", size_text(totals["file_bytes"])),
            ("kernels", _kernels(totals["kernels"])),
        ]
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(Padding(table, (0, 0, 0, 3)))

    def _end(self, report: Report) -> None:
        self._console.print()
        if not report.failures:
            self._console.print(Text("Every check of this run passed.", style="bold green"))
            return
        self._console.print(Text("Not everything is as it should be:", style="bold red"))
        for failure in report.failures:
            self._say(clean(failure))


def _trigram(mode: str) -> str:
    return "every message" if mode == "all" else "the messages with a script written without spaces"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kernels(kernels: dict[str, str]) -> str:
    kinds = sorted(set(kernels.values()))
    if len(kinds) == 1:
        return f"all {kinds[0]}"
    by_kind = ((kind, [name for name in kernels if kernels[name] == kind]) for kind in kinds)
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind)
