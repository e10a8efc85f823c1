"""What an import and an export did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

MOST_PROBLEMS = 100
"""Problems that a report keeps; all are counted and handed to ``on_error``."""
MOST_KEYS = 100
"""Different unknown keys that a report names."""


@dataclass(frozen=True)
class Problem:
    """Something in a file that was not taken as it stands.

    Attributes:
        file: the file's name.
        line: from 1.
        reason: what is wrong with it.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass
class ExportReport:
    """How many sessions and messages were written."""

    sessions: int = 0
    messages: int = 0


@dataclass
class ImportReport:
    """What came in.

    Attributes:
        lines: lines read, by kind: ``export``, ``session`` (with its messages), ``chat``,
            ``transcript``, ``bad``.
        sessions: sessions made; ``sessions_present`` those that were there already.
        messages: messages stored; ``messages_present`` those that were there already.
        ids_changed: messages whose id could not be kept: it was not free, or did not fit the order.
        titles_changed: titles that another session has, so that a number was added, or that were cut.
        parents_missing: sessions whose parent is neither in the store nor in what was read.
        unknown_keys: keys of sessions (``session.<key>``) and messages (``message.<key>``) that the
            store has no column for, and how often.
        problem_count: how many problems there were; ``problems`` holds the first.
    """

    lines: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    sessions_present: int = 0
    messages: int = 0
    messages_present: int = 0
    ids_changed: int = 0
    titles_changed: int = 0
    parents_missing: int = 0
    unknown_keys: dict[str, int] = field(default_factory=dict)
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def count_line(self, kind: str) -> None:
        """Count a line of that kind."""
        self.lines[kind] = self.lines.get(kind, 0) + 1

    def add(self, problem: Problem) -> None:
        """Count a problem, and keep it if it is among the first."""
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def unknown(self, key: str) -> None:
        """Count a key that has no column."""
        if key in self.unknown_keys or len(self.unknown_keys) < MOST_KEYS:
            self.unknown_keys[key] = self.unknown_keys.get(key, 0) + 1
