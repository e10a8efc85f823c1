"""The programs and commands in the documentation work as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def python_blocks() -> list[object]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            found.append(pytest.param(block.group(1), id=f"{page.name}:{line}"))
    return found


@pytest.mark.parametrize("program", python_blocks())
def test_the_program_runs(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "HERMES_HOME": str(tmp_path / "home"), "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("demo", ["python3 -m venv", "pip install", "[cli]", "hermes-state demo"]),
        ("tests", ["python3 -m venv", "pip install", "[test,cli]", "-m pytest"]),
    ],
)
def test_the_two_commands_stand_in_the_form_that_tools_extract(name: str, parts: list[str]) -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines.count(f"<!-- {name} -->") == 1
    marker = lines.index(f"<!-- {name} -->")
    assert lines[marker + 1] == "```sh"
    assert lines[marker + 3] == "```"
    place = -1
    for part in parts:
        assert (place := lines[marker + 2].find(part, place + 1)) >= 0, part


def test_links_between_pages_lead_to_files() -> None:
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
