"""SQLite without FTS5, or without its trigram tokenizer, for programs that tests start.

Each kind is a folder for PYTHONPATH:

* ``no fts5`` and ``no trigram``: a copy of APSW in which the names that SQLite registers those under are
  overwritten in the compiled module (``fts5`` -> ``fts?``). SQLite itself then says "no such module: fts5",
  "no such tokenizer: trigram", as one that was built without them.
* ``dropped``: a ``sitecustomize`` whose connection hook drops every module of each connection, by
  sqlite3_drop_modules, and the SQL function through which FTS5 is reached.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import apsw

KINDS: Final = ("no fts5", "dropped", "no trigram")

_NAMES: Final = {"no fts5": (b"fts5", b"fts5vocab"), "no trigram": (b"trigram",)}

_HOOK: Final = """
import apsw

def drop(conn):
    conn.create_scalar_function("fts5", None, 1)
    conn.drop_modules(None)

apsw.connection_hooks.append(drop)
"""


def folder(kind: str, place: Path) -> Path:
    """Make the folder of ``kind`` in ``place``, which is empty, and return it."""
    if kind == "dropped":
        (place / "sitecustomize.py").write_text(_HOOK, encoding="utf-8")
        return place
    source = Path(apsw.__file__)
    shutil.copytree(source.parent, place / "apsw", ignore=shutil.ignore_patterns("__pycache__"))
    module = place / "apsw" / source.name
    code = module.read_bytes()
    for name in _NAMES[kind]:
        whole = b"\0" + name + b"\0"
        assert code.count(whole) == 1, f"{name!r} does not stand once in {source.name}"
        code = code.replace(whole, b"\0" + name[:-1] + b"?\0")
    module.write_bytes(code)
    if sys.platform == "darwin":
        subprocess.run(["codesign", "--force", "--sign", "-", str(module)], check=True)
    return place
