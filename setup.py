"""The compiled parts: raw memory in .pyx; the rules on every message's path in .py with a .pxd beside it."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = Path("src")


def extension(path: Path) -> Extension:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return Extension(name, [str(path)], extra_compile_args=["-O2", "-g0"])


sources = {*SOURCE.rglob("*.pyx"), *(path.with_suffix(".py") for path in SOURCE.rglob("*.pxd"))}

setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(sources) if path.exists()],
        nthreads=2,
        include_path=[str(SOURCE)],
        compiler_directives={"language_level": 3, "annotation_typing": False},
    )
)
