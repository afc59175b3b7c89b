"""Stages for the tests of rules, by how a queue keeps its messages there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.stage import KEEPINGS, LOG, READY, Stage, staged


@pytest.fixture(params=KEEPINGS, ids=lambda keeping: keeping.name)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """For a rule that holds however messages are kept."""
    yield from staged(tmp_path, request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Stage]:
    """For a rule that has nothing to do with that."""
    yield from staged(tmp_path, READY)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Stage]:
    """For what survives: queues are durable, messages persistent."""
    yield from staged(tmp_path, LOG)
