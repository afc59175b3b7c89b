"""When the broker has no file descriptor left, and when it has some again."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.stress.conftest import eventually, open_files
from tests.support.amqp import AmqpClient
from tests.support.frames import handshake
from tests.support.process import BrokerProcess

FILES_MAX = 64
NEW_SOFT_LIMIT = 256


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose soft limit of open files is lower than it could be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (NEW_SOFT_LIMIT, hard))
    try:
        started = BrokerProcess(tmp_path / "data")
        with started as process:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            yield process
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_broker_raises_its_own_limit_of_open_files(process: BrokerProcess) -> None:
    soft, hard = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard > NEW_SOFT_LIMIT


def test_broker_out_of_file_descriptors_serves_whom_it_has_and_recovers(process: BrokerProcess) -> None:
    address = (process.address.host, process.address.port)
    with AmqpClient.connect(process.address) as client, ExitStack() as sockets:
        channel = client.channel()
        files = open_files(process)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
        for _ in range(2 * FILES_MAX):
            sock = sockets.enter_context(socket.create_connection(address, 5))
            sock.sendall(handshake()[0])
        channel.declare("works")
        assert open_files(process) <= FILES_MAX
        sockets.close()
        eventually(lambda: open_files(process) == files, lambda: channel.declare("works"), "all are gone")
        AmqpClient.connect(process.address).close()
