"""A broker on a disk that can fail, for the tests of what is written when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Machine, small_limits

MakeMachine = Callable[..., Machine]


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[MakeMachine]:
    machines: list[Machine] = []

    def make(**settings: Any) -> Machine:
        machines.append(Machine(tmp_path, **settings))
        machines[-1].run()
        return machines[-1]

    with small_limits():
        yield make
        for machine in machines:
            machine.close()


@pytest.fixture
def machine(make_machine: MakeMachine) -> Machine:
    return make_machine()
