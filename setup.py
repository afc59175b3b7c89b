"""Builds the compiled modules: every `.pyx` (raw memory), and every `.py` with a `.pxd` beside it (rules on
the path of every message).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")
DEBUG = "WITH_DEBUG_INFO" in os.environ  # gdb then knows the lines of the Python source


def extension(path: Path) -> Extension:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return Extension(name, [str(path)], extra_compile_args=["-O0", "-g"] if DEBUG else ["-O2", "-g0"])


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
