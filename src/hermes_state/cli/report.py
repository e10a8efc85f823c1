"""What the demo found out, as plain data: the screen and ``--json`` both show this."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Record = dict[str, Any]


@dataclass
class Search:
    """One search.

    Attributes:
        plan: which index answers each term, in the store's own words.
        hits: the first hits as ``search_messages`` gives them, with the session's ``title``.
        seconds: time of the call, contexts and snippets included.
    """

    query: str
    why: str
    plan: str
    seconds: float
    hits: list[Record]
    ok: bool


@dataclass
class Report:
    """A whole run. Times are in seconds, sizes in bytes."""

    store: Record = field(default_factory=dict)
    input: Record = field(default_factory=dict)
    loaded: Record = field(default_factory=dict)
    verified: Record = field(default_factory=dict)
    problems: list[Record] = field(default_factory=list)
    live: Record = field(default_factory=dict)
    searches: list[Search] = field(default_factory=list)
    lineage: Record = field(default_factory=dict)
    tokens: list[Record] = field(default_factory=list)
    totals: Record = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        """Everything that is not as it must be, in words; empty after a good run."""
        found = []
        if self.loaded.get("refused"):
            found.append(f"{self.loaded['refused']} lines of the file were not stored")
        found += self.verified.get("differences", [])
        if self.live and not self.live["equal"]:
            found.append("a live message was not read back as it was stored")
        found += [f"nothing found for {search.query!r}" for search in self.searches if not search.ok]
        return found

    def as_dict(self) -> Record:
        """The report as JSON can hold it."""
        return {**asdict(self), "ok": not self.failures, "failures": self.failures}
