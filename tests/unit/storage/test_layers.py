"""No module of the storage imports one that imports it: not even for its types, and not in compiled code.

import-linter checks the layers in pyproject.toml, but does not see what a `.pyx`, `.pxd` or `.pyi` imports.
"""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import warren.storage

IMPORTS = re.compile(r"^\s*from warren\.storage\.(\w+) c?import ", re.MULTILINE)
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi"}


def imports() -> dict[str, set[str]]:
    """By each module, those that any of its files imports."""
    found: dict[str, set[str]] = {}
    for path in Path(warren.storage.__path__[0]).iterdir():
        if path.suffix in SUFFIXES and path.stem != "__init__":
            found.setdefault(path.stem, set()).update(IMPORTS.findall(path.read_text()))
    return {module: others - {module} for module, others in found.items()}


def test_no_module_imports_one_that_imports_it() -> None:
    order = list(TopologicalSorter(imports()).static_order())  # a CycleError names the modules in it
    assert order.index("format") < order.index("segment") < order.index("commit") < order.index("store")


def test_no_module_hides_an_import_from_the_interpreter() -> None:
    sources = sorted(Path(warren.storage.__path__[0]).glob("*.py"))
    assert [path.name for path in sources if "TYPE_CHECKING" in path.read_text()] == []
