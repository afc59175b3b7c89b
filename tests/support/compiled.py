"""Compiled modules: which of them are older than their sources, and what the files beside them declare.

A module is compiled from a `.pyx`, or from a `.py` that has a `.pxd` beside it. A `.pyi` tells mypy what a
`.pyx` has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
REBUILD = ".venv/bin/python setup.py --quiet build_ext --inplace"

CLASS = re.compile(r"(?:cdef )?class (\w+)")
ATTRIBUTE = re.compile(r"cdef (?:public |readonly )?(?:[\w.*]+ )+?\**(\w+)$")
FUNCTION = re.compile(r"(?:async )?(?:def|cpdef|cdef)\b[^=(]*?(\w+)\(([^)]*)\)")
SET_ON_SELF = re.compile(r"\bself\.(\w+)(?=,|$)")
PARAMETER_NAME = re.compile(r"(\w+)(?: not None)?\s*(?:=.*)?$")


@dataclass
class Declared:
    """What a file declares in one class, or at module level: functions with their parameters, and names of
    attributes or variables.
    """

    functions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


def sources() -> list[Path]:
    """The source files of all modules that are compiled."""
    with_pxd = (path.with_suffix(".py") for path in SOURCE.rglob("*.pxd"))
    return sorted({*SOURCE.rglob("*.pyx"), *(path for path in with_pxd if path.exists())})


def stale(paths: list[Path]) -> list[Path]:
    """Sources that have changed since they were compiled, or were never compiled."""
    return [
        path
        for path in paths
        if _built_at(path) < max(_changed_at(path), _changed_at(path.with_suffix(".pxd")))
    ]


def _built_at(source: Path) -> float:
    return max((_changed_at(path) for path in source.parent.glob(f"{source.stem}.*.so")), default=0.0)


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def in_cython(text: str) -> dict[str, Declared]:
    """What a `.pyx` or `.pxd` declares, by class; "" stands for the module."""
    found = {"": Declared()}
    current = ""
    for line in _logical_lines(text):
        if not line.strip() or line.lstrip().startswith(("#", "@")):
            continue
        if not line.startswith(" "):
            match = CLASS.match(line)
            current = match[1] if match else ""
            found.setdefault(current, Declared())
            if match:
                continue
        elif line.startswith("     "):  # inside a function
            found[current].names |= set(SET_ON_SELF.findall(line.partition(" = ")[0]))
            continue
        _declare(line.strip(), found[current])
    return found


def _declare(line: str, declared: Declared) -> None:
    function = FUNCTION.match(line)
    if function:
        names = (PARAMETER_NAME.search(part.strip()) for part in function[2].split(","))
        declared.functions[function[1]] = tuple(name[1] for name in names if name and name[1] != "self")
        return
    attribute = ATTRIBUTE.match(line.partition(" #")[0].partition(" =")[0].strip())
    if attribute:
        declared.names.add(attribute[1])


def _logical_lines(text: str) -> Iterator[str]:
    """Logical lines: a statement that goes on inside brackets is one line."""
    whole = ""
    for line in text.splitlines():
        whole = f"{whole} {line.strip()}" if whole else line
        if whole.count("(") <= whole.count(")"):
            yield whole
            whole = ""


def in_python(text: str) -> dict[str, Declared]:
    """What a `.py` or `.pyi` declares, by class; "" stands for the module. Protocols are for mypy alone."""
    tree = ast.parse(text)
    found = {"": _declared(tree.body)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
            found[node.name] = _declared(node.body)
            found[node.name].names |= _set_on_self(node)
    return found


def _declared(body: list[ast.stmt]) -> Declared:
    declared = Declared()
    for node in body:
        if isinstance(node, ast.FunctionDef) and "property" in map(ast.unparse, node.decorator_list):
            declared.names.add(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            rest = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
            places = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest)
            names = [one.arg for one in places]
            declared.functions[node.name] = tuple(name for name in names if name != "self")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names_of = (one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            declared.names |= {one.id for one in names_of}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            declared.names |= {alias.asname or alias.name for alias in node.names}
    return declared


def _set_on_self(node: ast.ClassDef) -> set[str]:
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    }
