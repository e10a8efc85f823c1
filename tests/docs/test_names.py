"""Every name that a user may meet is on a page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import hermes_state
from hermes_state import errors

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = README + "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("**/*.md")))

_spec = importlib.util.spec_from_file_location("api_table", Path(__file__).with_name("api_table.py"))
assert _spec is not None
assert _spec.loader is not None
api_table: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(api_table)


def environment_variables() -> set[str]:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyx"), ROOT / "setup.py"]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    return set(re.findall(r"\bHERMES_(?:HOME|STATE_[A-Z_]+)\b", text))


def test_the_table_of_methods_is_that_of_the_class() -> None:
    (written,) = api_table.BETWEEN.findall(README)
    assert written == api_table.table(), "run: python tests/docs/api_table.py --write"


def test_every_public_method_is_in_the_table_and_has_a_docstring() -> None:
    methods = api_table.public_methods()
    assert {"append_message", "search_messages", "close", "sanitize_title"} <= set(methods)
    for name, method in methods.items():
        assert f"| `{name}(" in README
        assert method.__doc__, name


@pytest.mark.parametrize("name", hermes_state.__all__)
def test_every_name_of_the_module_is_on_a_page(name: str) -> None:
    assert hasattr(hermes_state, name)
    assert re.search(rf"`{name}\b", PAGES), name


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_on_a_page_with_the_sqlite3_class_it_is(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (?:`(\w+)`)? ?\|", README, re.MULTILINE)
    if name == "translate":
        assert "`errors.translate`" in README
        return
    assert row, name
    if row.group(1):
        assert issubclass(getattr(errors, name), getattr(hermes_state.sqlite3, row.group(1)))
    else:
        assert name == "HermesStateError"


@pytest.mark.parametrize("name", sorted(environment_variables()))
def test_every_environment_variable_is_on_a_page(name: str) -> None:
    assert f"`{name}`" in README
