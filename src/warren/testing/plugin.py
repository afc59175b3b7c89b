"""The pytest plugin: a test that takes `warren_broker` gets a real broker, with a vhost of its own.

def test_order_is_sent(warren_broker):
    connection = pika.BlockingConnection(pika.URLParameters(warren_broker.url))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from warren.testing import BrokerThread, RoomInBroker


@pytest.fixture(scope="session")
def warren_broker_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """One broker for all tests of a run."""
    from warren.testing import BrokerThread  # noqa: PLC0415 - test runs without a broker should not import it

    with BrokerThread(tmp_path_factory.mktemp("warren") / "data") as thread:
        yield thread


@pytest.fixture
def warren_broker(warren_broker_thread: BrokerThread) -> Iterator[RoomInBroker]:
    """A vhost of its own for each test: `url`, `host`, `port`, `vhost`, `user`, `password`."""
    with warren_broker_thread.room() as room:
        yield room
