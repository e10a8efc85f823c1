"""The kernel tests on kernels that are built with the address and undefined-behaviour sanitizers.

    python tools/sanitize.py [--keep DIR] [PYTEST ARGUMENT ...]

Copies the repository, builds the extensions of the copy with
``HERMES_STATE_BUILD_SANITIZE=1``, and runs ``tests/property/test_kernels_*.py`` and
``tests/kernels`` there, or what the arguments name. Every finding ends the run:
a read or write outside an object, use after free, and (since the build says
``-fno-sanitize-recover``) integer overflow, bad shifts and misaligned access.
``PYTHONMALLOC=malloc`` gives each Python object a block of its own, so that the
sanitizer sees past its end; leaks are not looked for, as the interpreter keeps
what it needs to its end (``tests/property/test_kernels_leaks.py`` counts blocks instead).

Needs GCC or clang with libasan, on Linux. Exit status: that of pytest; 2 where
something is missing; 1 where the build fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "*.so", "*.pyd", "*.c", "__pycache__", ".*_cache",
    ".hypothesis", ".benchmarks",
)  # fmt: skip
ALONE = """
import sys
# An editable installation's finder would give the kernels of the repository instead of the copy's.
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in str(finder)]
import hermes_state
from hermes_state import _fastpath
assert _fastpath.__file__.startswith({copy!r}), _fastpath.__file__
assert hermes_state.fastpath_info()["compiled"], hermes_state.fastpath_info()
import pytest
raise SystemExit(pytest.main(sys.argv[1:]))
"""


def runtime(name: str) -> str:
    """The path of the compiler's sanitizer library ``name``, or nothing."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    try:
        done = subprocess.run(
            [os.environ.get("CC", compiler), f"-print-file-name={name}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
    path = Path(done.stdout.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else ""


def build(copy: Path) -> int:
    """Build the extensions of ``copy`` and put the package together in ``copy/joined``."""
    environment = {
        **os.environ,
        "HERMES_STATE_BUILD_SANITIZE": "1",
        "HERMES_STATE_REQUIRE_EXTENSIONS": "1",
        "HERMES_STATE_NO_EXTENSIONS": "0",
    }
    command = [sys.executable, "setup.py", "build", "--build-lib", "joined"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return done.returncode


def test(copy: Path, libraries: Sequence[str], chosen: Sequence[str]) -> int:
    """Run pytest on the kernels in ``copy``; its exit status."""
    environment = {
        **os.environ,
        "HERMES_STATE_REQUIRE_EXTENSIONS": "1",
        "HERMES_STATE_NO_EXTENSIONS": "0",
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(copy / "joined"),
    }
    names = chosen or [
        *(str(path.relative_to(copy)) for path in sorted(copy.glob("tests/property/test_kernels_*.py"))),
        "tests/kernels",
    ]
    program = ALONE.format(copy=str(copy / "joined"))
    options = ["-q", "-p", "no:cacheprovider", "-m", "not unsanitized"]
    return subprocess.run(
        [sys.executable, "-c", program, *options, *names], cwd=copy, env=environment, check=False
    ).returncode


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--keep", type=Path, metavar="DIR", help="build in this folder and leave it there")
    made.add_argument(
        "chosen", metavar="PYTEST ARGUMENT", nargs="*", help="tests, in place of all of the kernels"
    )
    options = made.parse_args(given)
    libraries = [path for path in map(runtime, ("libasan.so", "libubsan.so")) if path]
    if len(libraries) != 2:
        print("no libasan and libubsan beside the compiler", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copy = (options.keep or Path(folder) / "copy").resolve()
        shutil.copytree(ROOT, copy, ignore=SKIPPED, dirs_exist_ok=True)
        return 1 if build(copy) else test(copy, libraries, options.chosen)


if __name__ == "__main__":
    raise SystemExit(main())
