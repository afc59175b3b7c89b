"""A broker of its own for each test, since here a test may leave it exhausted."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.process import BrokerProcess

Connect: TypeAlias = Callable[..., AmqpClient]
EVENTUALLY_SECONDS_MAX = 15.0
WAIT_SECONDS_MAX = 30.0


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process
        process.check_log()


@pytest.fixture
def connect(process: BrokerProcess) -> Iterator[Connect]:
    """Connects; what a test has not closed itself is dropped in the end."""
    with ExitStack() as clients:

        def make(**options: object) -> AmqpClient:
            client = AmqpClient.connect(process.address, **options)  # type: ignore[arg-type]  # as connect is
            client.wait_seconds_max = WAIT_SECONDS_MAX
            clients.callback(client.abort)
            return client

        yield make


@pytest.fixture
def channel(connect: Connect) -> AmqpChannel:
    return connect().channel()


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(process: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{process.process.pid}/fd").iterdir()))


def message_count(channel: AmqpChannel, queue: str) -> int:
    return channel.declare(queue, exclusive=False, passive=True).message_count


def eventually(condition: Callable[[], bool], tick: Callable[[], object], what: str) -> None:
    """Waits for a condition that nobody tells of, by something that takes the broker a moment to answer."""
    deadline = time.monotonic() + EVENTUALLY_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: still not so after {EVENTUALLY_SECONDS_MAX} s"
        tick()
