"""Stages for the tests of rules, one for each way in which a queue keeps its messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.stage import KEEPINGS, LOG, READY, Stage, staged


@pytest.fixture(params=KEEPINGS, ids=lambda keeping: keeping.name)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """For a rule that has to hold however messages are kept: the test runs once for each way."""
    yield from staged(tmp_path, request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Stage]:
    """For a rule that does not depend on how messages are kept."""
    yield from staged(tmp_path, READY)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Stage]:
    """For restarts: queues are durable, and messages persistent."""
    yield from staged(tmp_path, LOG)
