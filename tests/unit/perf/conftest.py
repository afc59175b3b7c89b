from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.perf.peer import Peer
from warren.perf.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.fixture
def peer(loop: Loop) -> Iterator[Peer]:
    with Peer(loop) as made:
        yield made
