"""A conversation as Markdown."""

from __future__ import annotations

from pathlib import Path

import corpus
import pytest

from hermes_state import SessionDB
from hermes_state.transfer import markdown


def test_a_conversation_reads_as_it_went(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("s", "cli", model="m1")
    db.set_session_title("s", "A plan")
    db._conn.execute("UPDATE sessions SET started_at = 1700000000")
    db.append_messages(
        "s",
        [
            {"role": "user", "content": "Run *it*", "timestamp": 1700000001},
            {
                "role": "assistant",
                "content": "Yes.",
                "reasoning": "think\nmore",
                "tool_calls": [{"function": {"name": "sh", "arguments": '{"c": "ls"}'}}],
                "timestamp": 1700000002,
            },
            {"role": "tool", "tool_name": "sh", "content": "```\nx\n```", "timestamp": 1700000003},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "image_url", "image_url": "https://example.com/a.png"},
                    {"type": "audio"},
                ],
                "timestamp": 1700000004,
            },
        ],
    )
    db.write_markdown(tmp_path / "s.md", "s")
    assert (tmp_path / "s.md").read_text(encoding="utf-8") == "".join(db.export_markdown("s"))
    assert (
        (tmp_path / "s.md").read_text(encoding="utf-8")
        == """\
# A plan

- Session: s
- Source: cli
- Model: m1
- Started: 2023-11-14 22:13:20 UTC

## User (2023-11-14 22:13:21 UTC)

Run *it*

## Assistant (2023-11-14 22:13:22 UTC)

> think
> more

Yes.

Calls `sh`

```json
{"c": "ls"}
```

## Tool `sh` (2023-11-14 22:13:23 UTC)

````
```
x
```
````

## User (2023-11-14 22:13:24 UTC)

look

*[image in the message]*

![image](<https://example.com/a.png>)

*[audio]*
"""
    )


def test_every_shared_conversation_has_a_form(db: SessionDB) -> None:
    for session in corpus.sessions("odd", limit=150):
        db.create_session(session["id"], session["source"])
        db.append_messages(session["id"], session["messages"])
        pieces = list(db.export_markdown(session["id"]))
        assert sum(piece.startswith("\n## ") for piece in pieces) == len(session["messages"])
        assert "base64," not in "".join(pieces) or "base64," in str(
            [m["content"] for m in session["messages"] if isinstance(m["content"], str)]
            + [m.get("tool_calls") for m in session["messages"]]
        )


def test_odd_values_of_other_programs_have_a_form(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_messages(
        "s",
        [
            {
                "role": "assistant",
                "content": {"k": 1},
                "tool_calls": [5, {"function": {"arguments": {"a": 1}}}],
            },
            {"role": "user", "content": ["text", 5]},
            {"role": "", "content": None},
        ],
    )
    db._conn.execute("UPDATE messages SET timestamp = 1e300 WHERE id = 1")
    text = "".join(db.export_markdown("s"))
    assert '```json\n{\n  "k": 1\n}\n```' in text
    assert "text\n\n```json\n5\n```" in text
    assert "## Unknown" in text


def test_an_unknown_session_is_a_lookup_error_and_writes_nothing(db: SessionDB, tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        db.export_markdown("nobody")
    with pytest.raises(LookupError):
        db.write_markdown(tmp_path / "x.md", "nobody")
    assert not (tmp_path / "x.md").exists()


def test_a_fence_is_longer_than_any_inside() -> None:
    assert markdown.fenced("a ````` b", "x").startswith("``````x\n")
    assert markdown.fenced("plain").startswith("```\n")
