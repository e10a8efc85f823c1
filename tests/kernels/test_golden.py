"""Golden files: each twin reads what the other wrote, and still writes what it wrote before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hermes_state._fastpath.decode import CONVERSATION_COLUMNS
from hermes_state._fastpath.encode import COLUMNS
from property.twins import both, shape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_golden  # noqa: E402

FILES = sorted(make_golden.FILES.values())
MARKER = "\x00json:"


def stored(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_both_files_hold_the_same() -> None:
    texts = {path.read_text(encoding="utf-8") for path in FILES}
    assert len(FILES) == 2
    assert len(texts) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("module", both("encode"), ids=lambda module: module.__name__[-2:])
def test_each_twin_still_writes_each_file(path: Path, module: ModuleType) -> None:
    kind = module.__name__.rsplit("_", 1)[1]
    assert make_golden.golden(kind) == path.read_text(encoding="utf-8")


def expected_content(content: Any) -> Any:
    """What comes back for a content that was stored."""
    if isinstance(content, str):
        return content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str(content) if isinstance(content, int | float) else content


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("module", both("decode"), ids=lambda module: module.__name__[-2:])
def test_each_twin_reads_the_rows_of_each_file(path: Path, module: ModuleType) -> None:
    order = [COLUMNS.index(name) for name in CONVERSATION_COLUMNS]
    for batch, rows in zip(make_golden.batches(), stored(path)["rows"], strict=True):
        bound = [tuple(row[:14]) for row in rows]
        for message, found in zip(batch, module.rows_to_messages(COLUMNS, bound), strict=True):
            assert shape(found["content"]) == shape(expected_content(message.get("content")))
            calls = message.get("tool_calls")
            if isinstance(calls, list):
                assert found["tool_calls"] == calls
        spoken = module.rows_to_conversation([tuple(row[at] for at in order) for row in bound])
        assert [found["role"] for found in spoken] == [message.get("role", "unknown") for message in batch]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("module", both("json_parse"), ids=lambda module: module.__name__[-2:])
def test_each_twin_parses_the_json_of_each_file(path: Path, module: ModuleType) -> None:
    texts = stored(path)["json"]
    assert len(texts) == len(make_golden.VALUES)
    for text in texts:
        assert shape(module.loads(text)) == shape(json.loads(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("module", both("encode"), ids=lambda module: module.__name__[-2:])
def test_what_the_old_module_wrote_reads_the_same(path: Path, module: ModuleType) -> None:
    """Its JSON has every character beyond ASCII as an escape."""
    for rows in stored(path)["rows"]:
        for row in rows:
            content = row[2]
            if content is not None and content.startswith(MARKER):
                value = json.loads(content[len(MARKER) :])
                assert shape(module.decode_content(MARKER + json.dumps(value))) == shape(value)
            if row[4] is not None:
                escaped = json.dumps(json.loads(row[4]))
                assert module.count_tool_calls(escaped) == module.count_tool_calls(row[4]) == row[14]
