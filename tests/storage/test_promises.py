"""What a broker said holds in its next life, whichever way it ends, and with any setting of `sync`."""

from __future__ import annotations

import signal

import pytest

from tests.storage.bulk import DURABLE, NumberPublisher
from tests.storage.home import END_SIGNALS, Home, connected, message_count
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table

MEBIBYTE = 1024 * 1024
MESSAGES = 300
LARGE_BYTES_MAX = 60 * MEBIBYTE


def declare(channel: AmqpChannel) -> None:
    channel.declare("q", exclusive=False, durable=True)


def got(channel: AmqpChannel) -> list[tuple[bytes, bool]]:
    """All that is in the queue, each with whether it is marked as redelivered."""
    return [(got.body, got.method.redelivered) for got in iter(lambda: channel.try_get("q"), None)]


# --- sync ---


def test_without_sync_confirmed_messages_survive_a_kill(home: Home) -> None:
    home.settings["sync"] = "none"
    with home.life(ends_by=signal.SIGKILL) as channel:
        declare(channel)
        NumberPublisher(channel, "q").publish(range(MESSAGES))
    with home.life() as channel:
        assert [int(body[:8]) for body in channel.drain("q")] == list(range(MESSAGES))


# --- transactions ---


def test_committed_messages_and_acks_survive_a_kill_and_others_do_not_count(home: Home) -> None:
    with home.life(ends_by=signal.SIGKILL) as channel:
        declare(channel)
        channel.call(m.TxSelect(), m.TxSelectOk)
        for number in range(MESSAGES):
            channel.publish("", "q", b"%d" % number, DURABLE)
        channel.call(m.TxCommit(), m.TxCommitOk)
        tag = channel.get("q", no_ack=False).method.delivery_tag
        channel.send(m.BasicAck(delivery_tag=tag))
        channel.call(m.TxCommit(), m.TxCommitOk)
        tag = channel.get("q", no_ack=False).method.delivery_tag
        channel.send(m.BasicAck(delivery_tag=tag))
        channel.publish("", "q", b"not committed", DURABLE)
    with home.life() as channel:
        assert got(channel) == [(b"%d" % number, number == 1) for number in range(1, MESSAGES)]


# --- redelivered ---


@pytest.mark.parametrize("ends_by", END_SIGNALS)
def test_messages_that_were_delivered_are_redelivered_and_others_are_not(
    home: Home, ends_by: signal.Signals
) -> None:
    with home.life(ends_by=ends_by) as channel:
        declare(channel)
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        for name in (b"acked", b"out", b"got", b"requeued", b"requeued twice", b"never out"):
            channel.publish("", "q", name, DURABLE)
            channel.expect(m.BasicAck)
        channel.call(m.BasicQos(prefetch_count=2), m.BasicQosOk)
        channel.consume("q", "c")
        assert [channel.expect_delivery().body for _ in range(2)] == [b"acked", b"out"]
        channel.call(m.BasicCancel(consumer_tag="c"), m.BasicCancelOk)
        channel.send(m.BasicAck(delivery_tag=1))
        tags = [channel.get("q", no_ack=False).method.delivery_tag for _ in range(3)]
        for tag in tags[1:]:
            channel.send(m.BasicNack(delivery_tag=tag, requeue=True))
        once, twice = (channel.get("q", no_ack=False).method for _ in range(2))
        assert once.redelivered
        assert twice.redelivered
        channel.send(m.BasicNack(delivery_tag=twice.delivery_tag, requeue=True))
        assert message_count(channel, "q") == 2
    names = (b"out", b"got", b"requeued", b"requeued twice", b"never out")
    expected = [(name, name != b"never out") for name in names]
    with home.life() as channel:
        assert message_count(channel, "q") == len(expected)
        assert got(channel) == expected


# --- sizes ---


SIZES = [0, 1, 7, 8, 100_000, 1_000_000, 65_536, 0]


def headers(size: int) -> Table:
    return {f"header{number}": "ü" * 500 for number in range(size // 1_000)}


def test_messages_of_any_size_survive_intact(home: Home) -> None:
    """Larger than a segment, than a chunk that is read at once, and than nothing."""
    home.settings["segment_bytes"] = 65_536
    bodies = [bytes((number,)) * size for number, size in enumerate(SIZES)]
    properties = BasicProperties(delivery_mode=DURABLE.delivery_mode, headers=headers(100_000), type="t")
    with home.life(ends_by=signal.SIGKILL) as channel:
        declare(channel)
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        for body in bodies:
            for kind in (DURABLE, properties):
                channel.publish("", "q", body, kind)
                channel.expect(m.BasicAck)
    with home.life() as channel:
        for body in bodies:
            for kind in (DURABLE, properties):
                message = channel.get("q")
                assert (message.body, message.properties) == (body, kind)


def test_queue_of_large_messages_takes_little_memory(home: Home) -> None:
    count, body = 150, b"x" * MEBIBYTE
    with home.broker() as process, connected(process) as channel:
        declare(channel)
        before = process.resident_bytes()
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        for _ in range(count):
            channel.publish("", "q", body, DURABLE)
            channel.expect(m.BasicAck)
        assert process.resident_bytes() - before < LARGE_BYTES_MAX
        for _ in range(count):
            assert channel.get("q").body == body
        assert process.resident_bytes() - before < LARGE_BYTES_MAX
