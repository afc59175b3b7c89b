"""Prefetch: how much may be unacknowledged, and whose limit it is."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import publish_numbers
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m


def qos(channel: AmqpChannel, count: int = 0, *, size: int = 0, global_: bool = False) -> None:
    channel.call(m.BasicQos(prefetch_count=count, prefetch_size=size, global_=global_), m.BasicQosOk)


def expect_bodies(channel: AmqpChannel, *bodies: bytes) -> list[int]:
    """Deliveries of these bodies in this order; gives their tags."""
    deliveries = [channel.expect_delivery() for _ in bodies]
    assert tuple(delivery.body for delivery in deliveries) == bodies
    return [delivery.method.delivery_tag for delivery in deliveries]


def test_consumer_gets_no_more_than_its_prefetch_until_it_acks(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, 2)
    channel.consume(queue)
    publish_numbers(channel, queue, 5)
    tags = expect_bodies(channel, b"0", b"1")
    assert channel.get(queue).body == b"2", "what the consumer does not get stays in the queue"
    channel.send(m.BasicAck(delivery_tag=tags[0]))
    expect_bodies(channel, b"3")
    assert channel.drain(queue) == [b"4"]


@pytest.mark.parametrize(
    "method",
    [
        m.BasicAck(delivery_tag=2, multiple=True),
        m.BasicNack(delivery_tag=2, multiple=True, requeue=False),
        m.BasicAck(delivery_tag=0, multiple=True),
    ],
    ids=str,
)
def test_settling_several_makes_room_for_several(channel: AmqpChannel, method: m.Method) -> None:
    queue = channel.declare().queue
    qos(channel, 2)
    channel.consume(queue)
    publish_numbers(channel, queue, 5)
    expect_bodies(channel, b"0", b"1")
    channel.send(method)
    expect_bodies(channel, b"2", b"3")
    assert channel.drain(queue) == [b"4"]


def test_qos_is_the_limit_of_consumers_started_later(channel: AmqpChannel) -> None:
    queue, later = channel.declare().queue, channel.declare().queue
    channel.consume(queue)
    qos(channel, 1)
    channel.consume(later)
    publish_numbers(channel, queue, 3)
    expect_bodies(channel, b"0", b"1", b"2")
    publish_numbers(channel, later, 3)
    expect_bodies(channel, b"0")
    assert channel.drain(later) == [b"1", b"2"]


def test_qos_does_not_change_consumers_that_run(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, 1)
    channel.consume(queue)
    qos(channel, 10)
    publish_numbers(channel, queue, 3)
    expect_bodies(channel, b"0")
    assert channel.drain(queue) == [b"1", b"2"]


def test_qos_limits_each_consumer_by_itself(channel: AmqpChannel) -> None:
    first, second = channel.declare().queue, channel.declare().queue
    qos(channel, 1)
    for queue in (first, second):
        channel.consume(queue)
        publish_numbers(channel, queue, 2)
        expect_bodies(channel, b"0")
    assert channel.drain(first) == channel.drain(second) == [b"1"]


def test_global_qos_is_shared_by_the_channel(channel: AmqpChannel) -> None:
    first, second = channel.declare().queue, channel.declare().queue
    qos(channel, 3, global_=True)
    channel.consume(first)
    channel.consume(second)
    publish_numbers(channel, first, 2)
    expect_bodies(channel, b"0", b"1")
    publish_numbers(channel, second, 2)
    tags = expect_bodies(channel, b"0")
    assert channel.try_get(first) is None
    channel.send(m.BasicAck(delivery_tag=tags[0]))
    expect_bodies(channel, b"1")


def test_global_qos_limits_consumers_that_run(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue)
    qos(channel, 1, global_=True)
    publish_numbers(channel, queue, 2)
    expect_bodies(channel, b"0")
    assert channel.drain(queue) == [b"1"]


def test_global_and_consumer_limits_hold_together(channel: AmqpChannel) -> None:
    first, second = channel.declare().queue, channel.declare().queue
    qos(channel, 2)
    qos(channel, 3, global_=True)
    channel.consume(first)
    channel.consume(second)
    publish_numbers(channel, first, 3)
    expect_bodies(channel, b"0", b"1")
    assert channel.drain(first) == [b"2"]
    publish_numbers(channel, second, 2)
    expect_bodies(channel, b"0")
    assert channel.drain(second) == [b"1"]


def test_raised_global_qos_lets_more_through(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, 1, global_=True)
    channel.consume(queue)
    publish_numbers(channel, queue, 3)
    expect_bodies(channel, b"0")
    qos(channel, 2, global_=True)
    expect_bodies(channel, b"1")
    qos(channel, 0, global_=True)
    expect_bodies(channel, b"2")


def test_qos_is_of_one_channel(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, 1, global_=True)
    qos(channel, 1)
    second.consume(queue)
    publish_numbers(second, queue, 3)
    expect_bodies(second, b"0", b"1", b"2")


@pytest.mark.parametrize("global_", [False, True], ids=["consumer", "channel"])
def test_consumer_without_acknowledgement_has_no_limit(channel: AmqpChannel, global_: bool) -> None:
    queue = channel.declare().queue
    qos(channel, 1, global_=global_)
    channel.consume(queue, no_ack=True)
    publish_numbers(channel, queue, 3)
    expect_bodies(channel, b"0", b"1", b"2")


def test_get_does_not_count_against_the_limit_of_consumers(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    publish_numbers(channel, queue, 2)
    channel.get(queue, no_ack=False)
    qos(channel, 1)
    channel.consume(queue)
    expect_bodies(channel, b"1")


def test_cancelled_consumers_messages_do_not_count_against_another(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, 1)
    tag = channel.consume(queue)
    publish_numbers(channel, queue, 2)
    expect_bodies(channel, b"0")
    channel.call(m.BasicCancel(consumer_tag=tag), m.BasicCancelOk)
    channel.consume(queue)
    expect_bodies(channel, b"1")


@pytest.mark.usefixtures("unlike_rabbitmq")
@pytest.mark.parametrize("global_", [False, True], ids=["consumer", "channel"])
def test_prefetch_size_limits_the_unacknowledged_bytes(channel: AmqpChannel, global_: bool) -> None:
    """RabbitMQ answers 540."""
    queue = channel.declare().queue
    qos(channel, size=10, global_=global_)
    channel.consume(queue)
    for body in (b"aaaa", b"bbbbbb", b"c", b"d"):
        channel.publish("", queue, body)
    first, _second = expect_bodies(channel, b"aaaa", b"bbbbbb")
    assert channel.get(queue).body == b"c"
    channel.send(m.BasicAck(delivery_tag=first))
    expect_bodies(channel, b"d")


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_message_larger_than_prefetch_size_comes_when_nothing_is_unacknowledged(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, size=10)
    channel.consume(queue)
    for body in (b"a" * 100, b"b" * 100):
        channel.publish("", queue, body)
    tags = expect_bodies(channel, b"a" * 100)
    channel.send(m.BasicAck(delivery_tag=tags[0]))
    expect_bodies(channel, b"b" * 100)


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_prefetch_size_and_count_hold_together(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    qos(channel, 2, size=100)
    channel.consume(queue)
    for body in (b"a", b"b", b"c"):
        channel.publish("", queue, body)
    expect_bodies(channel, b"a", b"b")
    assert channel.drain(queue) == [b"c"]
