"""README's table of ``SessionDB``, made from the class itself.

python tests/docs/api_table.py            prints it
python tests/docs/api_table.py --write    puts it between the marks in README.md
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[2] / "README.md"
BETWEEN = re.compile(r"(?<=<!-- api -->\n).*?(?=<!-- /api -->)", re.DOTALL)


def public_methods() -> dict[str, Any]:
    """The public methods of ``SessionDB``, subject by subject."""
    from hermes_state import SessionDB

    parts = [part for part in SessionDB.__mro__ if part is not object]
    names = {name: None for part in parts for name in vars(part) if not name.startswith("_")}
    return {name: getattr(SessionDB, name) for name in names if callable(getattr(SessionDB, name))}


def signature(name: str, method: Any) -> str:
    """The call as it is written: parameters and defaults, without types."""
    given = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    text = str(inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in given]))
    return f"{name}{text}"


def table() -> str:
    """One row a method: its call, and the first sentence of its docstring."""
    rows = ["| call | what it does |", "|---|---|"]
    for name, method in public_methods().items():
        what = (inspect.getdoc(method) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(
            f"| `{signature(name, method)}` | {what.replace('``', '`').replace('|', chr(92) + '|')} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table, or write it into README.md."""
    if "--write" in sys.argv[1:]:
        text = README.read_text(encoding="utf-8")
        README.write_text(BETWEEN.sub(lambda _: table(), text, count=1), encoding="utf-8")
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
