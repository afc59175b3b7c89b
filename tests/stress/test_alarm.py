"""The memory alarm: who publishes has to wait, who consumes goes on, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stress.conftest import WAIT_SECONDS_MAX
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.process import BrokerProcess
from warren.amqp import methods as m

MEBIBYTE = 1024 * 1024
WATERMARK_BYTES = 160 * MEBIBYTE
MESSAGES_MAX = 100_000


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that has little memory."""
    config = tmp_path / "warren.toml"
    config.write_text(f"memory_watermark = {WATERMARK_BYTES}\n")
    with BrokerProcess(tmp_path / "data", "--config", str(config)) as process:
        yield process


def connect(process: BrokerProcess) -> AmqpChannel:
    client = AmqpClient.connect(process.address)
    client.wait_seconds_max = WAIT_SECONDS_MAX
    return client.channel()


def publish_until_blocked(publisher: AmqpChannel, body_bytes: int) -> int:
    """How many were sent, of which the last is not confirmed."""
    for number in range(1, MESSAGES_MAX):
        publisher.publish("", "filling", (b"%8d" % number).ljust(body_bytes))
        frame = publisher.client.read_any_frame()
        if frame.channel == 0:
            assert frame.is_a(m.ConnectionBlocked), frame
            return number
        assert frame.is_a(m.BasicAck), frame
    raise AssertionError("never blocked")


@pytest.mark.parametrize("body_bytes", [16_000, 500_000])
def test_memory_alarm_blocks_publishers_until_consumers_have_drained(
    process: BrokerProcess, body_bytes: int
) -> None:
    publisher, consumer = connect(process), connect(process)
    with publisher.client, consumer.client:
        publisher.declare("filling", exclusive=False)
        publisher.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        sent = publish_until_blocked(publisher, body_bytes)

        consumer.call(m.BasicQos(prefetch_count=100), m.BasicQosOk)
        consumer.consume("filling")
        numbers: list[int] = []
        while len(numbers) < sent - 1:
            numbers.append(take(consumer))
        publisher.client.expect(0, m.ConnectionUnblocked)
        while len(numbers) < sent:
            numbers.append(take(consumer))
        assert numbers == list(range(1, sent + 1))
        counted = json.loads(next(line for line in process.log().splitlines() if "alarm raised" in line))[
            "counted"
        ]
        assert counted["used"] > counted["limit"] == WATERMARK_BYTES
        assert counted["messages_packed"] + counted["messages_ready"] > WATERMARK_BYTES // 4

        publisher.expect(m.BasicAck)
        publisher.publish("", "filling", b"%8d" % 0)
        publisher.expect(m.BasicAck)
        assert take(consumer) == 0


def take(consumer: AmqpChannel) -> int:
    delivery = consumer.expect_delivery()
    consumer.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
    return int(delivery.body[:8])
