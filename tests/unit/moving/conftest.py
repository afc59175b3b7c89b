"""Two brokers that all tests of a module share, and a queue that both have."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.process import BrokerProcess
from tests.unit.moving.pair import Pair, declare


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("brokers")
    with BrokerProcess(path / "there") as there, BrokerProcess(path / "here") as here:
        yield Pair(there, here)


@pytest.fixture
def queue(pair: Pair) -> str:
    """A queue that both have."""
    name = f"moving-{uuid.uuid4().hex}"
    for broker in pair:
        declare(broker, name)
    return name
