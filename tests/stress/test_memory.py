"""Memory comes back after a burst, and what an allocator keeps blocks nobody."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stress.conftest import WAIT_SECONDS_MAX
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import published
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import PERSISTENT, BasicProperties

MIB = 1024 * 1024
WATERMARK_BYTES = 400_000_000
SIZES = [100] * 100 + [1_000] * 50 + [10_000] * 8 + [100_000]
QUEUES = 10


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = tmp_path / "warren.toml"
    config.write_text(f"memory_watermark = {WATERMARK_BYTES}\n")
    with BrokerProcess(tmp_path / "data", "--config", str(config)) as process:
        yield process
    process.check_log()


def connect(process: BrokerProcess) -> AmqpChannel:
    client = AmqpClient.connect(process.address)
    client.wait_seconds_max = WAIT_SECONDS_MAX
    return client.channel()


def fill(channel: AmqpChannel, queue: str, cycles: int, properties: BasicProperties | None = None) -> None:
    cycle = b"".join(published("", queue, bytes(size), properties) for size in SIZES)
    for _ in range(cycles):
        channel.client.send_raw(cycle)


def wait_for(channel: AmqpChannel, queue: str, count: int) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while (
        channel.call(m.QueueDeclare(queue=queue, passive=True, arguments={}), m.QueueDeclareOk).message_count
        != count
    ):
        assert time.monotonic() < end, "never"


def used_bytes(process: BrokerProcess) -> int:
    with urllib.request.urlopen(f"{process.http_url}/metrics") as answer:  # noqa: S310 - our own broker
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("warren_memory_used_bytes "))


def test_memory_of_a_burst_goes_back_to_the_system(process: BrokerProcess) -> None:
    channel = connect(process)
    with channel.client:
        before = used_bytes(process)
        for number in range(QUEUES):
            channel.declare(f"q{number}", exclusive=False)
            fill(channel, f"q{number}", 100)
            wait_for(channel, f"q{number}", 100 * len(SIZES))
        assert process.resident_bytes() > 250 * MIB
        assert used_bytes(process) - before > 250_000_000
        for number in range(QUEUES):
            channel.call(m.QueueDelete(queue=f"q{number}"), m.QueueDeleteOk)
        assert used_bytes(process) - before < 20_000_000, "at once, whatever is resident"
        end = time.monotonic() + WAIT_SECONDS_MAX
        while process.resident_bytes() > 150 * MIB:
            assert time.monotonic() < end, "it stays"


def test_durable_queues_that_nobody_consumes_never_raise_the_alarm(process: BrokerProcess) -> None:
    channel = connect(process)
    durable = BasicProperties(delivery_mode=PERSISTENT)
    with channel.client:
        for number in range(40):
            channel.declare(f"q{number}", exclusive=False, durable=True)
            fill(channel, f"q{number}", 60, durable)
            wait_for(channel, f"q{number}", 60 * len(SIZES))
        assert used_bytes(process) < 150_000_000
    assert "alarm raised" not in process.log()
