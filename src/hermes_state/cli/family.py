"""The tree of sessions that come from one another, and how each comes from its parent."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text
from rich.tree import Tree

from hermes_state import SessionDB
from hermes_state.cli.text import clean, plural, when_text
from hermes_state.store import lineage

Record = dict[str, Any]
CLOCK_S = 1.0
"""Seconds by which a continuation may seem to start before its parent ended."""
_WORDS = {"root": "", "continuation": "continued as ", "branch": "branch ", "child": "child "}


@dataclass
class Member:
    """A session of the family: its row, and its relation to its parent.

    ``relation``: "root", "continuation" (its parent was compressed), "branch", or "child" (a sub-agent).
    """

    row: Record
    relation: str
    children: list[Member] = field(default_factory=list)


class Family:
    """All sessions above and below one session.

    Attributes:
        asked: the id that was asked for.
        tip: where its compression chain ends.
        resume: where the conversation goes on.
    """

    def __init__(self, asked: str, tip: str, resume: str, root: Member, members: list[Member]) -> None:
        self.asked, self.tip, self.resume = asked, tip, resume
        self._root, self._members = root, members

    @classmethod
    def of(cls, store: SessionDB, session_id: str) -> Family:
        """Read the family of ``session_id``, which exists."""
        root_id = store.get_lineage(session_id)[-1]["id"]
        members: dict[str, Member] = {}
        followed: dict[str, str] = {}
        for found in store.get_descendants(root_id):
            row = store.get_session(found["id"])
            if row is None:
                continue  # deleted since
            if row["end_reason"] == "compression" and row["id"] not in followed:
                followed.update(_chain(store, row["id"]))
            parent = members.get(row["parent_session_id"]) if members else None
            member = Member(row, "root")
            if parent is not None:
                continues = followed.get(parent.row["id"]) == row["id"]
                member.relation = _relation(parent.row, row, continues)
                parent.children.append(member)
            members[row["id"]] = member
        return cls(
            session_id,
            store.get_compression_tip(session_id) or session_id,
            store.resolve_resume_session_id(session_id),
            members[root_id],
            list(members.values()),
        )

    def as_dict(self) -> Record:
        """The family as plain values; the members by their distance from the root."""
        return {
            "session": self.asked,
            "root": self._root.row["id"],
            "tip": self.tip,
            "resume": self.resume,
            "members": [{**_brief(member.row), "relation": member.relation} for member in self._members],
        }

    def tree(self) -> Tree:
        """The family to print. A continuation stands under its parent, on the same level."""
        top = Tree("", hide_root=True)
        waiting = [(self._root, top)]
        while waiting:
            member, above = waiting.pop()
            node = above.add(self._label(member))
            # The last is printed next: what hangs on the member itself, then its continuation.
            for child in reversed(member.children):
                waiting.append((child, above if child.relation == "continuation" else node))
        return top

    def _label(self, member: Member) -> Text:
        row, asked = member.row, member.row["id"] == self.asked
        about = [clean(str(row["source"]), 20), when_text(row["started_at"])]
        about.append(plural(row["message_count"] or 0, "message"))
        if row["end_reason"]:
            about.append(f"ended by {clean(str(row['end_reason']), 30)}")
        label = Text(no_wrap=True, overflow="ellipsis")
        label.append(_WORDS[member.relation], style="dim")
        label.append(clean(str(row["id"])), style="bold green" if asked else "bold")
        label.append(" <- this one" if asked else "", style="green")
        label.append(f"  ({', '.join(about)})", style="dim")
        label.append(f"  {clean(row['title'], 60)}" if row["title"] else "")
        return label


def _chain(store: SessionDB, session_id: str) -> dict[str, str]:
    """Id -> the id that continues it, of the compression chain that the session is in."""
    chain = store._read(lambda conn: lineage.compression_chain(conn, session_id), "lineage")
    return dict(itertools.pairwise(chain))


def _relation(parent: Record, row: Record, continues: bool) -> str:
    if continues:
        return "continuation"
    ended, started = parent["ended_at"], row["started_at"]
    after = ended is not None and started is not None and started >= ended - CLOCK_S
    return "branch" if parent["end_reason"] == "branched" and after else "child"


def _brief(row: Record) -> Record:
    """What JSON has of a session: all columns but the system prompt."""
    return {name: value for name, value in row.items() if name != "system_prompt"}
