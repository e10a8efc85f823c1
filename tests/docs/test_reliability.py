"""docs/reliability.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
HEAD = "| fault | promise | test | rounds |"


def rows() -> list[list[str]]:
    """The cells of each row of the table of faults."""
    lines = PAGE[PAGE.index(HEAD) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_each_fault_names_a_test_that_exists_and_its_rounds(row: list[str]) -> None:
    assert len(row) == 4, row
    _, promise, named, rounds = row
    assert promise
    assert rounds
    references = re.findall(r"`([^`]+)`", named)
    assert references
    texts = ""
    for reference in references:
        place, _, test = reference.rpartition("::") if "::" in reference else (reference, "", "")
        if place.startswith("test_"):
            place, test = "", place
        if place:
            path = TESTS / place
            assert path.exists(), reference
            files = [path] if path.is_file() else sorted(path.rglob("*.py"))
            texts = "".join(file.read_text(encoding="utf-8") for file in files)
        if test:
            assert f"def {test.removesuffix('...')}" in texts, reference
