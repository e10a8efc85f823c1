"""The kernels' tools: what they say, what they need, and how they end."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import builds
import pytest
from hermes_state._fastpath import KERNELS

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
FASTPATH = ROOT / "src" / "_fastpath"
sys.path.insert(0, str(TOOLS))
import fuzz_kernels  # noqa: E402


def run(tool: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / tool), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.parametrize("tool", ["fuzz_kernels.py", "sanitize.py", "make_golden.py"])
def test_help_tells_what_a_tool_does(tool: str, tmp_path: Path) -> None:
    done = run(tool, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 300


def test_the_golden_files_are_what_the_twins_write(tmp_path: Path) -> None:
    if not builds.KERNELS:  # the tool writes both files, each by its own twin
        return
    done = run("make_golden.py", "--check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_kernel_is_fuzzed() -> None:
    assert fuzz_kernels.KERNELS == KERNELS
    targets = re.search(r"TARGETS: .*?\n}", (TOOLS / "fuzz_worker.py").read_text(encoding="utf-8"), re.DOTALL)
    assert targets is not None
    assert re.findall(r'^    "(\w+)": ', targets[0], re.MULTILINE) == list(KERNELS)


@pytest.mark.unsanitized
def test_a_second_of_fuzzing_finds_nothing_or_says_what_to_install(tmp_path: Path) -> None:
    done = run("fuzz_kernels.py", "text", "--seconds", "1", cwd=tmp_path)
    if importlib.util.find_spec("atheris") is None:
        assert done.returncode == 2
        assert "hermes-state[fuzz]" in done.stderr
        return
    assert done.returncode == 0, done.stdout
    assert re.search(r"^text .* alike$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["nonsense"], ["--seconds", "0"], ["--reproduce", "x"]])
def test_wrong_arguments_of_the_fuzzer_are_refused(arguments: list[str], tmp_path: Path) -> None:
    assert run("fuzz_kernels.py", *arguments, cwd=tmp_path).returncode == 2


def test_a_difference_of_the_twins_is_told_in_the_table() -> None:
    shown = fuzz_kernels.table(
        [fuzz_kernels.Outcome("text", 1.5, 1000, 7, ""), fuzz_kernels.Outcome("decode", 2, 1, 2, "exit 77")]
    )
    assert [line.split()[-1] for line in shown.splitlines()] == ["twins", "alike", "FAIL"]
    assert "1,000" in shown


def test_a_test_run_that_requires_extensions_fails_without_them(tmp_path: Path) -> None:
    package = tmp_path / "pure" / "hermes_state"
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.c")
    shutil.copytree(ROOT / "src" / "hermes_state", package, ignore=skipped)
    shutil.copytree(FASTPATH, package / "_fastpath", ignore=skipped)
    # Without the finder of an editable installation, which would find this repository's compiled kernels.
    program = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Editable' not in str(f)];"
        "import pytest; raise SystemExit(pytest.main(sys.argv[1:]))"
    )
    tests = str(ROOT / "tests" / "property" / "test_kernels_text.py")
    done = subprocess.run(
        [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", tests],
        env={
            **{name: value for name, value in os.environ.items() if name != "HERMES_STATE_NO_EXTENSIONS"},
            "HERMES_STATE_REQUIRE_EXTENSIONS": "1",
            "PYTHONPATH": str(tmp_path / "pure"),
        },
        cwd=ROOT, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode not in (0, 5)
    assert "HERMES_STATE_REQUIRE_EXTENSIONS is set and the compiled kernel" in done.stdout + done.stderr
    assert "passed" not in done.stdout


@pytest.mark.parametrize("path", sorted(FASTPATH.glob("*_c.pyx")), ids=lambda path: path.stem)
def test_compiled_kernels_have_no_code_that_crashes_without_memory(path: Path) -> None:
    """Cython's code for ``except`` and for comprehensions does not bear a failed allocation everywhere."""
    source = re.sub(r'""".*?"""|#[^\n]*', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"^\s*except\b.*:", source, re.MULTILINE)
    assert not re.search(r"[\[{(][^\[\]{}()\n]*\bfor\b[^\n]*\bin\b[^\n]*[\]})]", source)
