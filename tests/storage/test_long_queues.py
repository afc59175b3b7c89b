"""Queues that are much longer than memory should hold: all is there, in order, and memory stays small."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from tests.storage.bulk import Delivered, NumberConsumer, NumberPublisher, never_durable
from tests.storage.home import Home, bytes_below, connected, eventually, message_count
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m

MEBIBYTE = 1024 * 1024
LONG = 200_000
LONG_BYTES_MAX = 40 * MEBIBYTE
EMPTY_BYTES_MAX = 64 * 1024 + 1024


def numbers_of(deliveries: list[Delivered]) -> list[int]:
    return [delivered.number for delivered in deliveries]


def is_redelivered(delivered: Delivered) -> bool:
    return delivered.redelivered


def test_long_durable_queue_takes_little_memory_and_survives(home: Home) -> None:
    with home.broker(ends_by=signal.SIGTERM) as process, connected(process) as channel:
        channel.declare("q", exclusive=False, durable=True)
        before = process.resident_bytes()
        NumberPublisher(channel, "q").publish(range(LONG))
        assert process.resident_bytes() - before < LONG_BYTES_MAX
        assert message_count(channel, "q") == LONG
    with home.life(ends_by=signal.SIGKILL) as channel:
        assert message_count(channel, "q") == LONG
    with home.broker() as process, connected(process) as channel, connected(process) as other:
        assert message_count(channel, "q") == LONG
        deliveries = list(NumberConsumer(channel, "q").drain(LONG))
        assert numbers_of(deliveries) == list(range(LONG))
        assert not any(map(is_redelivered, deliveries))
        eventually(
            lambda: bytes_below(home.queue_directory()) < EMPTY_BYTES_MAX, other, "an empty queue on disk"
        )
        assert message_count(other, "q") == 0


def test_long_transient_queue_goes_to_disk_and_comes_back_in_order(home: Home) -> None:
    home.settings["memory_budget"] = 4 * MEBIBYTE
    with home.broker() as process, connected(process) as publishing, connected(process) as consuming:
        publishing.declare("q", exclusive=False)
        before = process.resident_bytes()
        publisher = NumberPublisher(publishing, "q", never_durable)
        publisher.publish(range(LONG // 2))
        assert process.resident_bytes() - before < LONG_BYTES_MAX
        assert home.transient_bytes() > LONG // 4 * 100

        seen = consume_with_requeues(consuming, LONG // 4)
        publisher.publish(range(LONG // 2, LONG))
        seen += numbers_of(list(NumberConsumer(consuming, "q").drain(LONG - len(seen))))
        assert seen == list(range(LONG))
        assert process.resident_bytes() - before < LONG_BYTES_MAX
        eventually(lambda: home.transient_bytes() < EMPTY_BYTES_MAX, publishing, "no transient files")


def consume_with_requeues(channel: AmqpChannel, count: int) -> list[int]:
    """Consumes by one consumer after the other, each of which leaves many deliveries unacked when it goes."""
    chance = random.Random(1)
    seen: list[int] = []
    while len(seen) < count:
        consumer = NumberConsumer(channel, "q", prefetch=6_000)
        taken = consumer.take(6_000)
        done = taken[: chance.randint(1, len(taken))]
        consumer.ack(done[-1].delivery_tag)
        seen += numbers_of(done)
        reopen(channel)
    return seen


def reopen(channel: AmqpChannel) -> None:
    """Closes the channel, whatever is still delivered to it, and opens it again."""
    channel.send(m.ChannelClose(reply_code=200))
    while not channel.client.read_frame(channel.number).is_a(m.ChannelCloseOk):
        pass
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_transient_files_are_gone_after_restart(home: Home) -> None:
    home.settings["memory_budget"] = 1 * MEBIBYTE
    for ends_by in (signal.SIGKILL, signal.SIGTERM):
        with home.life(ends_by=ends_by) as channel:
            assert list((home.data_dir / "transient").iterdir()) == []
            channel.declare("q", exclusive=False)
            NumberPublisher(channel, "q", never_durable).publish(range(30_000))
            assert home.transient_bytes() > 0


def test_consuming_while_publishing_keeps_the_order(home: Home) -> None:
    home.settings["memory_budget"] = 1 * MEBIBYTE
    with home.broker() as process, connected(process) as publishing, connected(process) as consuming:
        publishing.declare("q", exclusive=False)
        publisher = NumberPublisher(publishing, "q", never_durable)
        publisher.publish(range(40_000))
        consumer = NumberConsumer(consuming, "q")
        seen = []
        for start in range(40_000, 80_000, 1_000):
            publisher.send(range(start, start + 1_000))
            seen += numbers_of(list(consumer.drain(2_000)))
        assert seen == list(range(80_000))


def is_even(number: int) -> bool:
    return number % 2 == 0


def comes_in_runs(number: int) -> bool:
    return number // 3_000 % 2 == 0


@pytest.mark.parametrize("is_durable", [is_even, comes_in_runs])
def test_persistent_and_transient_messages_keep_one_order(
    home: Home, is_durable: Callable[[int], bool]
) -> None:
    """From memory, from the queue's log and from the overflow, in turn."""
    home.settings["memory_budget"] = 1 * MEBIBYTE
    count, half = 60_000, 30_000
    with home.broker(ends_by=signal.SIGKILL) as process, connected(process) as channel:
        channel.declare("q", exclusive=False, durable=True)
        NumberPublisher(channel, "q", is_durable).publish(range(count))
        assert home.transient_bytes() > 0
        with connected(process) as other:
            assert numbers_of(list(NumberConsumer(other, "q").drain(half))) == list(range(half))
            other.client.close()
    left = [number for number in range(half, count) if is_durable(number)]
    with home.life() as channel:
        assert message_count(channel, "q") == len(left)
        assert numbers_of(list(NumberConsumer(channel, "q").drain(len(left)))) == left
