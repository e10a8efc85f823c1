"""Build: compiled where it can be, pure Python where it cannot.

``HERMES_STATE_NO_EXTENSIONS=1`` leaves the kernels uncompiled;
``HERMES_STATE_REQUIRE_EXTENSIONS=1`` makes a kernel that does not compile an
error. Both together are an error. With neither, each kernel is compiled if
the machine can, and its pure twin serves where it cannot.
"""

import os
import platform
from pathlib import Path

from setuptools import setup

KERNELS = "src/_fastpath"
LOCKS = "src/hermes_state/engine/_ofd_locks.pyx"
FETCH = "src/hermes_state/engine/_fetch.pyx"
ROOMS = ("aio", "api", "cli", "engine", "schema", "search", "store", "transfer")
NO = os.environ.get("HERMES_STATE_NO_EXTENSIONS", "") not in ("", "0")
REQUIRE = os.environ.get("HERMES_STATE_REQUIRE_EXTENSIONS", "") not in ("", "0")
TRACE = os.environ.get("HERMES_STATE_BUILD_TRACE", "") not in ("", "0")
SANITIZE = os.environ.get("HERMES_STATE_BUILD_SANITIZE", "") not in ("", "0")

if NO and REQUIRE:
    raise SystemExit("HERMES_STATE_NO_EXTENSIONS and HERMES_STATE_REQUIRE_EXTENSIONS exclude each other")


def flags() -> tuple[list[str], list[str]]:
    """Compiler and linker flags; the sanitizer build is for the kernel tests only."""
    if platform.system() == "Windows":
        return ["/O2"], []
    if SANITIZE:
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        return ["-O1", "-g", "-fno-omit-frame-pointer", *sanitizers], sanitizers
    return ["-O3"], []


def extensions() -> list:
    """One extension a ``_*_c.pyx`` file of src/_fastpath, or none in a pure build."""
    if NO:
        return []
    try:
        from Cython.Build import cythonize
        from setuptools import Extension
    except ImportError:
        if REQUIRE:
            raise
        return []
    compile_args, link_args = flags()
    names = sorted(path.stem for path in Path(KERNELS).glob("*_c.pyx"))
    modules = [
        Extension(
            f"hermes_state._fastpath.{name}",
            [f"{KERNELS}/{name}.pyx"],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
        )
        for name in names
    ]
    if platform.system() != "Windows":
        # Not a kernel: it has no twin, APSW itself does what it does.
        modules.append(Extension("hermes_state.engine._fetch", [FETCH], extra_compile_args=compile_args))
    if platform.system() == "Linux":
        # Not a kernel: locks for APSW's SQLite, without which the anchor alone protects.
        modules.append(Extension("hermes_state.engine._ofd_locks", [LOCKS], extra_compile_args=["-O2"]))
    made = cythonize(
        modules,
        include_path=[KERNELS],
        # Not freethreading_compatible: kernels read lists and dicts item by item under the GIL.
        compiler_directives={"language_level": 3, "linetrace": TRACE, "freethreading_compatible": False},
    )
    for module in made:
        # cythonize makes extensions of its own and leaves this attribute behind.
        module.optional = not REQUIRE
    return made


setup(
    package_dir={"": "src", "hermes_state._fastpath": KERNELS},
    packages=[
        "hermes_state",
        "hermes_state._fastpath",
        *(f"hermes_state.{room}" for room in ROOMS),
    ],
    include_package_data=False,  # what belongs to it is named here
    package_data={
        "hermes_state": ["py.typed"],
        "hermes_state.cli": ["sample/*.jsonl"],
        "hermes_state.engine": ["*.pyx"],
        "hermes_state._fastpath": ["*.pyx", "*.pxd"],
    },
    ext_modules=extensions(),
)

print(f"hermes_state: kernels {'left out' if NO else 'compiled where this machine can'}")
