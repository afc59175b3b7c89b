"""Clients that do not do their part: the broker's memory and the other clients must not suffer from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stress.conftest import Connect, eventually, message_count, open_files
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import HEARTBEAT_FRAME, method_frame
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.server.protocol import UNSENT_BYTES_HIGH
from warren.session.connection import OUTPUT_BYTES_MAX

MEBIBYTE = 1024 * 1024
MESSAGES = 64
SPARE_BYTES = 16 * MEBIBYTE
ASKED_MAX = 500_000
ASKING_SECONDS_MAX = 2.0


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that soon has enough of a client that does not take what it was sent."""
    limits = {
        "warren.server.farewell.LINGER_SECONDS_MAX": 0.5,
        "warren.server.app.STOP_SECONDS_MAX": 0.5,
    }
    with BrokerProcess(tmp_path / "data", limits=limits) as process:
        yield process
        process.check_log()


def fill(channel: AmqpChannel, queue: str, count: int = MESSAGES) -> None:
    """So many messages of a mebibyte, each beginning with its number."""
    channel.declare(queue, exclusive=False)
    for number in range(count):
        channel.publish("", queue, (b"%8d" % number).ljust(MEBIBYTE, b"."))
    assert message_count(channel, queue) == count


def start_consuming(client: AmqpClient, queue: str) -> None:
    """Consumes, and never looks at what comes."""
    client.send_method(1, m.ChannelOpen())
    client.send_method(1, m.BasicConsume(queue=queue, consumer_tag="deaf", arguments={}))


def test_consumer_that_never_reads_costs_bounded_memory_and_loses_nothing(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    fill(channel, "deaf")
    before = process.resident_bytes()
    deaf = connect()
    start_consuming(deaf, "deaf")
    eventually(lambda: message_count(channel, "deaf") < MESSAGES, lambda: None, "the first is on its way")
    assert message_count(channel, "deaf") > MESSAGES / 2
    assert process.resident_bytes() - before < UNSENT_BYTES_HIGH + SPARE_BYTES

    channel.publish("", "deaf", b"%8d" % MESSAGES)
    deaf.abort()
    other = connect().channel()
    other.consume("deaf")
    numbers = []
    for _ in range(MESSAGES + 1):
        delivery = other.expect_delivery()
        numbers.append(int(delivery.body[:8]))
        other.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
    assert numbers == list(range(MESSAGES + 1))


def test_client_that_asks_and_never_reads_is_itself_not_read(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    """What basic.get asks for is sent whether there is room in the socket or not, and would pile up."""
    before = process.resident_bytes()
    asking = connect()
    asking.channel().declare("small")
    asking.publish(1, "", "small", b"x" * 8000)
    again = method_frame(1, m.BasicGet(queue="small")) + method_frame(1, m.BasicRecoverAsync(requeue=True))
    asking.socket.settimeout(ASKING_SECONDS_MAX)
    with pytest.raises(TimeoutError):
        asking.socket.sendall(again * ASKED_MAX)
    channel.declare()
    assert process.resident_bytes() - before < 12 * OUTPUT_BYTES_MAX


def test_socket_of_client_that_neither_reads_nor_beats_is_given_back(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    fill(channel, "dead", 16)
    watch = connect(heartbeat=1)
    before = open_files(process)
    dead = connect(heartbeat=1)
    start_consuming(dead, "dead")
    eventually(lambda: message_count(channel, "dead") < 16, lambda: None, "the first is on its way")

    def next_heartbeat() -> None:
        watch.send_raw(HEARTBEAT_FRAME)
        watch.read_any_frame()

    eventually(lambda: message_count(channel, "dead") == 16, next_heartbeat, "what it had is back")
    eventually(lambda: open_files(process) == before, next_heartbeat, "its socket is closed")


def test_client_that_never_answers_connection_close_does_not_disturb_others(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    mute = connect()
    own = mute.channel().declare().queue
    mute.send_raw(b"\xff" * 64)
    assert mute.expect(0, m.ConnectionClose).reply_code == 501
    mute.send_raw(b"\xff" * 100_000)
    channel.send(m.QueueDeclare(queue=own, passive=True, arguments={}))
    channel.expect_close(404)


def test_client_that_never_answers_channel_close_keeps_its_other_channels(connect: Connect) -> None:
    client = connect()
    works, mute = client.channel(1), client.channel(2)
    queue = works.declare().queue
    mute.send(m.QueueDelete(queue="", if_unused=False))
    assert mute.expect(m.ChannelClose).reply_code == 404
    for number in range(1000):
        mute.publish("", queue, b"dropped")
        works.publish("", queue, b"%d" % number)
    assert works.drain(queue) == [b"%d" % number for number in range(1000)]


def test_broker_stops_although_a_client_neither_reads_nor_answers(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    """Leaving the process is what waits for its end, and checks that it was a good one."""
    fill(channel, "deaf", 16)
    deaf = connect()
    start_consuming(deaf, "deaf")
    eventually(lambda: message_count(channel, "deaf") < 16, lambda: None, "the first is on its way")
    process.process.terminate()
    channel.client.expect_close(320)
    assert process.process.wait(20) == 0
