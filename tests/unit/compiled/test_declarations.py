"""Declarations beside compiled modules say what the modules have, and a build that is old is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.compiled import SOURCE, in_cython, in_python, sources, stale

PXD = sorted(path for path in SOURCE.rglob("*.pxd") if path.with_suffix(".py").exists())
PYI = sorted(SOURCE.rglob("*.pyi"))
OF_CYTHON = {"__weakref__", "__dict__"}


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("pxd", PXD, ids=name)
def test_pxd_declares_what_its_module_has(pxd: Path) -> None:
    declared = in_cython(pxd.read_text())
    there = in_python(pxd.with_suffix(".py").read_text())
    assert declared.keys() <= there.keys()
    for owner, what in declared.items():
        assert what.functions.items() <= there[owner].functions.items()
        assert what.names - OF_CYTHON <= there[owner].names | there[owner].functions.keys()


@pytest.mark.parametrize("pyi", PYI, ids=name)
def test_pyi_declares_what_its_module_has(pyi: Path) -> None:
    declared = in_python(pyi.read_text())
    pxd = pyi.with_suffix(".pxd")
    there = in_cython(pyi.with_suffix(".pyx").read_text() + "\n" + (pxd.read_text() if pxd.exists() else ""))
    assert declared.keys() <= there.keys()
    for owner, what in declared.items():
        methods = {name: names for name, names in what.functions.items() if not name.startswith("__")}
        assert methods.items() <= there[owner].functions.items()
        if owner:
            assert what.names <= there[owner].names | there[owner].functions.keys()


def test_module_that_is_older_than_its_source_is_stale(tmp_path: Path) -> None:
    source, declarations = tmp_path / "one.py", tmp_path / "one.pxd"
    built = tmp_path / "one.cpython-311-x86_64-linux-gnu.so"
    for at, path in enumerate((source, declarations, built)):
        path.touch()
        os.utime(path, (at, at))
    assert stale([source]) == []
    os.utime(declarations, (3, 3))
    assert stale([source]) == [source]
    built.unlink()
    assert stale([source]) == [source]


def test_every_compiled_module_is_looked_at() -> None:
    assert SOURCE / "warren/broker/queue.py" in sources()
    assert SOURCE / "warren/amqp/reader.pyx" in sources()
