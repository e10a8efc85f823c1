"""What the wheel and the source archive hold, and the build modes at build and at import."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hermes_state._fastpath import KERNELS

from hermes_state import fastpath_info

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
FASTPATH = SOURCES / "_fastpath"
BUILT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "*.so", "*.pyd", "*.c", "__pycache__", ".*_cache",
    ".hypothesis", ".benchmarks",
)  # fmt: skip
NO, REQUIRE = "HERMES_STATE_NO_EXTENSIONS", "HERMES_STATE_REQUIRE_EXTENSIONS"

# An editable installation's finder would add this repository's compiled kernels to another copy's pure ones.
ALONE = (
    "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Editable' not in str(f)];"
    " import hermes_state;"
)


def environment(**given: str) -> dict[str, str]:
    """The environment with the build modes as given, whatever this test run has."""
    kept = {name: value for name, value in os.environ.items() if name not in (NO, REQUIRE)}
    return {**kept, **given}


def python(*arguments: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )


def build(tree: Path, *arguments: str, env: dict[str, str]) -> Path:
    """Build in ``tree`` and return the folder of what was built."""
    here = all(importlib.util.find_spec(name) for name in ("setuptools", "Cython"))
    done = python("-m", "build", *(["--no-isolation"] if here else []), *arguments, cwd=tree, env=env)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return tree / "dist"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the repository without anything that was built in it."""
    return Path(shutil.copytree(ROOT, tmp_path / "repository", ignore=BUILT))


def compiled_names(tree: Path) -> set[str]:
    """The modules that a build of ``tree`` on this machine compiles: those that this installation has."""
    kernels = {f"_{name}_c" for name, kind in fastpath_info()["kernels"].items() if kind == "compiled"}
    others = {path.relative_to(tree / "src") for path in (tree / "src" / "hermes_state").rglob("*.pyx")}
    if os.environ.get(NO, "") not in ("", "0"):
        return set()
    names = {".".join(path.with_suffix("").parts) for path in others}
    return kernels | {name.rpartition(".")[2] for name in names if importlib.util.find_spec(name)}


def package_files(tree: Path) -> set[str]:
    """Every Python file of the package in ``tree``, by the name that it has when it is installed."""
    rooms = {path.relative_to(tree / "src") for path in (tree / "src" / "hermes_state").rglob("*.py")}
    kernels = {
        Path("hermes_state", "_fastpath", path.name) for path in (tree / "src" / "_fastpath").glob("*.py")
    }
    return {path.as_posix() for path in rooms | kernels}


def wrong_in_wheel(names: set[str], compiled: set[str], tree: Path) -> list[str]:
    """What a wheel that was built in ``tree`` lacks and what it must not have."""
    wanted = package_files(tree) | {"hermes_state/py.typed", "hermes_state/cli/sample/conversations.jsonl"}
    wrong = [f"lacks {name}" for name in sorted(wanted - names)]
    modules = {Path(name).name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    wrong += [f"compiled: {sorted(modules)}, not {sorted(compiled)}"] if modules != compiled else []
    wrong += [
        f"has {name}" for name in sorted(names) if not name.startswith(("hermes_state/", "hermes_state-0."))
    ]
    return wrong + [f"has {name}" for name in sorted(names) if name.endswith((".c", ".cpp"))]


@pytest.mark.slow
def test_the_source_archive_and_the_wheel_built_from_it_hold_what_they_must(tree: Path) -> None:
    mode = {name: os.environ[name] for name in (NO, REQUIRE) if name in os.environ}
    dist = build(tree, env=environment(**mode))
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in opened.getnames()}
    sources = {path.relative_to(tree).as_posix() for path in (tree / "src").rglob("*.p[yx][xd]")}
    wanted = {
        "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.py", "docs/design.md",
        "src/hermes_state/py.typed", "src/hermes_state/cli/sample/conversations.jsonl",
    }  # fmt: skip
    assert wanted | sources <= names
    assert not [name for name in names if name.endswith((".c", ".cpp", ".so", ".pyd", ".pyc"))]
    assert not [
        name for name in names if name.split("/")[0] in ("tests", "benchmarks", "tools", ".ci", "build")
    ]
    (wheel,) = dist.glob("*.whl")
    assert wrong_in_wheel(set(zipfile.ZipFile(wheel).namelist()), compiled_names(tree), tree) == []


@pytest.mark.slow
def test_a_wheel_without_extensions_serves_every_platform(tree: Path, tmp_path: Path) -> None:
    (wheel,) = build(tree, "--wheel", env=environment(**{NO: "1"})).glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert wrong_in_wheel(set(opened.namelist()), set(), tree) == []
        opened.extractall(tmp_path / "installed")
    store = (
        f"{ALONE} info = hermes_state.fastpath_info(); assert not info['compiled'], info;"
        "db = hermes_state.SessionDB(sys.argv[1]); db.create_session('s', 'cli');"
        "db.append_message('s', 'user', '广西 winter');"
        "assert [len(db.search_messages(q)) for q in ('广西', 'winter')] == [1, 1]; db.close();"
        "print(hermes_state.__file__)"
    )
    done = python(
        "-c", store, str(tmp_path / "state.db"),
        cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path / "installed")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "installed") in done.stdout


def test_without_a_compiler_the_build_is_pure_or_where_that_is_not_allowed_fails(tree: Path) -> None:
    for path in (tree / "src" / "_fastpath").glob("*_c.pyx"):
        if path.name != "_text_c.pyx":
            path.unlink()  # one kernel shows it, and takes less time
    broken = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/cc"}
    done = python("setup.py", "build_ext", "--build-lib", "pure", cwd=tree, env=environment(**broken))
    assert done.returncode == 0, done.stderr
    assert not list(tree.rglob("*.so"))
    done = python(
        "setup.py", "build_ext", "--build-lib", "none", cwd=tree, env=environment(**broken, **{REQUIRE: "1"})
    )
    assert done.returncode != 0


def test_the_two_build_modes_together_are_an_error_at_build() -> None:
    done = python("setup.py", "--version", cwd=ROOT, env=environment(**{NO: "1", REQUIRE: "1"}))
    assert done.returncode != 0
    assert "exclude each other" in done.stderr


def imported(tmp_path: Path, **mode: str) -> subprocess.CompletedProcess[str]:
    """Import the package's sources, uncompiled, in a fresh interpreter."""
    target = tmp_path / "pure" / "hermes_state"
    if not target.exists():
        shutil.copytree(SOURCES / "hermes_state", target, ignore=BUILT)
        shutil.copytree(FASTPATH, target / "_fastpath", ignore=BUILT)
    code = f"{ALONE} print(hermes_state.fastpath_info())"
    return python("-c", code, cwd=tmp_path, env=environment(PYTHONPATH=str(target.parent), **mode))


def test_the_build_modes_hold_at_import(tmp_path: Path) -> None:
    done = imported(tmp_path)
    assert done.returncode == 0, done.stderr
    info = ast.literal_eval(done.stdout)
    assert info["compiled"] is False
    assert set(info["why"]) == set(KERNELS)
    assert all("not compiled" in why for why in info["why"].values())

    info = ast.literal_eval(imported(tmp_path, **{NO: "1"}).stdout)
    assert set(info["why"].values()) == {f"{NO} is set"}

    done = imported(tmp_path, **{REQUIRE: "1"})
    assert done.returncode != 0
    assert f"{REQUIRE} is set and the compiled kernel" in done.stderr

    done = imported(tmp_path, **{NO: "1", REQUIRE: "1"})
    assert done.returncode != 0
    assert "exclude each other" in done.stderr

    # 0 and the empty string mean "not set".
    assert imported(tmp_path, **{NO: "0", REQUIRE: ""}).returncode == 0


def test_setup_names_every_folder_of_the_package() -> None:
    rooms = {path.parent.name for path in (SOURCES / "hermes_state").glob("*/__init__.py")}
    named = {
        name
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS"
        for name in ast.literal_eval(node.value)
    }
    assert named == rooms
    assert not list((SOURCES / "hermes_state").glob("*/*/**/*.py")), "setup.py knows one level of folders"


def test_each_kernel_has_its_three_files() -> None:
    def found(pattern: str, strip: int) -> set[str]:
        return {path.stem[1:-strip] for path in FASTPATH.glob(pattern)}

    assert found("_*_py.py", 3) == set(KERNELS)
    assert found("_*_c.pyx", 2) == set(KERNELS)
    assert {path.stem for path in FASTPATH.glob("[!_]*.py")} - {"scripts_tables"} == set(KERNELS)


def test_the_version_is_the_same_everywhere() -> None:
    from importlib.metadata import version

    import hermes_state

    assert version("hermes-state") == hermes_state.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {hermes_state.__version__}" in changes
