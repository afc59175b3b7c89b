"""What the tests of all clients share. Each test uses names of its own, so they can share one broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.rabbitmq import IS_INSTALLED, RabbitMQ, run_rabbitmq

WAIT_SECONDS_MAX = 20
"""The longest any test waits for an event that must come; far above what a busy machine needs."""

LARGE_BODY = bytes(range(256)) * 6_000
"""1.5 MB: many frames at every frame size a client may negotiate; no two neighbouring bytes are alike."""

CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}
"""What RabbitMQ says it can do, and clients look for before they use it."""


needs_rabbitmq = pytest.mark.skipif(not IS_INSTALLED, reason="Debian's rabbitmq-server is not installed")


@pytest.fixture
def name() -> str:
    """A name nobody else uses; where a test needs several it appends to this one."""
    return f"clients-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """One RabbitMQ for all tests that need one; those are marked `needs_rabbitmq`."""
    with run_rabbitmq(tmp_path_factory.mktemp("rabbitmq") / "node", "rabbitmq_shovel_management") as running:
        yield running


def serve_until(serve: Callable[[], object], ready: Callable[[], bool]) -> None:
    """For clients that work only while they are called: call `serve` until `ready`, but not for ever."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not ready():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS_MAX} seconds"
        serve()
