"""mypy --strict on the package in the shape in which it is installed.

The sources of ``hermes_state._fastpath`` lie beside the package, in
``src/_fastpath``. mypy finds modules by folder, so this joins both in a
temporary tree and checks that. Paths in its report are those of the tree.

    python tools/typecheck.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run mypy; its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "hermes_state"
        skip = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.c", "*.pyx")
        shutil.copytree(ROOT / "src" / "hermes_state", package, ignore=skip)
        shutil.copytree(ROOT / "src" / "_fastpath", package / "_fastpath", ignore=skip)
        command = [
            sys.executable, "-m", "mypy", "--strict",
            "--config-file", str(ROOT / "pyproject.toml"), "-p", "hermes_state",
        ]  # fmt: skip
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
