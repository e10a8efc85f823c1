"""Imports between the rooms point down the list of docs/design.md only."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
ORDER = ["aio", "session_db", "api", "engine", "schema", "search", "store", "transfer"]
# `search` and `store` stand side by side: rows.py and the meta table are shared, nothing else crosses.
ANYBODY = {"errors", "_fastpath"}


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "hermes_state" and len(parts) > 1:
                found.add(parts[1])
    return found


def _room(path: Path) -> str:
    relative = path.relative_to(SRC / "hermes_state")
    return relative.parts[0].removesuffix(".py")


def test_imports_point_down_only() -> None:
    wrong = []
    for path in sorted((SRC / "hermes_state").rglob("*.py")):
        room = _room(path)
        if room in ("__init__", "__main__", "cli", "errors"):
            continue
        below = set(ORDER[ORDER.index(room) :]) | ANYBODY
        for target in _imports(path):
            if target in ORDER and target not in below and not (room == "store" and target == "search"):
                wrong.append(f"{path.relative_to(SRC)} imports {target}")
    assert not wrong


def test_the_kernels_import_nothing_of_the_package() -> None:
    for path in sorted((SRC / "_fastpath").glob("*.py")):
        assert _imports(path) <= {"_fastpath"}, path


def test_the_store_never_opens_a_transaction() -> None:
    for room in ("store", "search"):
        for path in sorted((SRC / "hermes_state" / room).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    first = node.value.split(None, 1)[:1]
                    assert first not in (["COMMIT"], ["BEGIN"], ["BEGIN IMMEDIATE"]), path
