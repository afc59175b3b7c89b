"""Builds the compiled modules: every `.pyx` (raw memory), and every `.py` with a `.pxd` beside it (rules on
the path of every message).

The compiler lays out the code by what was counted in a short load, if there was one (see scripts/build).
"""

import os
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")
OBJECTS = Path(f"build/temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}")
DEBUG = "WITH_DEBUG_INFO" in os.environ  # gdb then knows the lines of the Python source
COUNTING = "WITH_COUNTING" in os.environ  # modules count which branches are taken, for the next build
COUNT = ["-fprofile-generate", "-fprofile-update=prefer-atomic"]
USE_COUNTS = ["-fprofile-use", "-fprofile-partial-training", "-Wno-missing-profile", "-Wno-coverage-mismatch"]


def extension(path: Path) -> Extension:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    link = ["-fprofile-generate"] if COUNTING else []
    made = Extension(name, [str(path)], extra_compile_args=compile_arguments(path), extra_link_args=link)
    # What a shard has depends on its role, so None is an error there, and not a crash.
    made.cython_directives = {"nonecheck": path.is_relative_to(SOURCE / "warren/cluster")}
    return made


def compile_arguments(path: Path) -> list[str]:
    if DEBUG:
        return ["-O0", "-g"]
    if COUNTING:
        return ["-O2", "-g0", *COUNT]
    has_counts = (OBJECTS / path).with_suffix(".gcda").exists()
    return ["-O2", "-g0", *(USE_COUNTS if has_counts else [])]


def extensions() -> list[Extension]:
    """All compiled modules; none if `WITHOUT_COMPILING` is set: scripts/build compiles them later."""
    if "WITHOUT_COMPILING" in os.environ:
        return []
    sources = {*SOURCE.rglob("*.pyx"), *(path.with_suffix(".py") for path in SOURCE.rglob("*.pxd"))}
    return cythonize(
        [extension(path) for path in sorted(sources) if path.exists()],
        nthreads=os.cpu_count() or 1,
        include_path=[str(SOURCE)],
        emit_linenums=DEBUG,
        compiler_directives={"language_level": 3, "annotation_typing": False},
    )


setup(options={"build_ext": {"parallel": os.cpu_count()}}, ext_modules=extensions())
