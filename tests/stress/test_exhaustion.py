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
from tests.support.channel import AmqpChannel
from tests.support.errors import UnexpectedError
from tests.support.frames import handshake
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties

FILES_MAX = 64
DESCRIPTORS_MAX = 256
QUEUES = 300
NEW_SOFT_LIMIT = 256


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose soft limit of open files is lower than it could be."""
    with BrokerProcess(tmp_path / "data", ulimit=f"-S -n {NEW_SOFT_LIMIT}") as process:
        yield process


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


def publish_to_all(channel: AmqpChannel) -> None:
    """One persistent message each; all are confirmed."""
    for number in range(QUEUES):
        channel.publish("", f"q{number}", b"kept", BasicProperties(delivery_mode=PERSISTENT))
    confirmed = 0
    while confirmed < QUEUES:
        confirmed = channel.expect(m.BasicAck).delivery_tag % QUEUES or QUEUES


def connect_many(process: BrokerProcess, clients: ExitStack, count: int) -> None:
    for _ in range(count):
        clients.callback(AmqpClient.connect(process.address).abort)


def test_more_queues_than_descriptors_leave_room_for_clients(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", ulimit=f"-n {DESCRIPTORS_MAX}") as process:
        assert "ulimit -n" in process.log()
        with AmqpClient.connect(process.address) as client, ExitStack() as clients:
            channel = client.channel()
            channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            for number in range(QUEUES):
                channel.declare(f"q{number}", exclusive=False, durable=True)
            publish_to_all(channel)
            connect_many(process, clients, DESCRIPTORS_MAX // 2)
            publish_to_all(channel)
            assert [channel.get(f"q{number}").body for number in range(QUEUES)] == [b"kept"] * QUEUES
            assert open_files(process) < DESCRIPTORS_MAX
        check_no_disk_trouble(process)


def test_connections_beyond_the_descriptors_are_refused_and_the_log_says_what_to_raise(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", ulimit=f"-n {DESCRIPTORS_MAX}") as process:
        with AmqpClient.connect(process.address) as client, ExitStack() as clients:
            channel = client.channel()
            channel.declare("kept", exclusive=False, durable=True)
            with pytest.raises(UnexpectedError, match=r"connection refused: node connection limit \(\d+\)"):
                connect_many(process, clients, DESCRIPTORS_MAX)
            for _ in range(DESCRIPTORS_MAX):  # that say nothing, and so cannot be told anything
                clients.enter_context(socket.create_connection((process.address.host, process.address.port)))
            channel.publish("", "kept", b"kept", BasicProperties(delivery_mode=PERSISTENT))
            assert channel.get("kept").body == b"kept"
            refusals = process.log().count("connections are refused")
            clients.close()
            eventually(
                lambda: open_files(process) < FILES_MAX, lambda: channel.declare("works"), "all are gone"
            )
            AmqpClient.connect(process.address).close()
        assert refusals == 1, "not a line for each"
        check_no_disk_trouble(process)


def check_no_disk_trouble(process: BrokerProcess) -> None:
    process.check_log()
    assert "cannot write" not in process.log()
    assert "ulimit -n" in process.log()
