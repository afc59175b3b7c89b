"""Prefetch: how much may be unacknowledged, and whose limit it is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.semantics.conftest import publish_numbers
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import method_frame, published
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


def start(channel: AmqpChannel, queue: str, tag: str, *, no_ack: bool = False) -> None:
    """A consumer that may get something at once."""
    channel.send(m.BasicConsume(queue=queue, consumer_tag=tag, no_ack=no_ack, no_wait=True, arguments={}))


@pytest.mark.parametrize(("limit", "acked"), [(1, 1), (10, 10), (10, 1)])
def test_queues_are_served_in_turn_under_the_limit_of_a_channel(
    channel: AmqpChannel, limit: int, acked: int
) -> None:
    qos(channel, limit, global_=True)
    queues = [channel.declare().queue for _ in range(3)]
    for queue in queues:
        publish_numbers(channel, queue, 100)
    for queue in queues:
        start(channel, queue, queue)
    served: Counter[str] = Counter()
    for number in range(1, 151):
        delivery = channel.expect_delivery().method
        served[delivery.consumer_tag] += 1
        if number % acked == 0:
            channel.send(m.BasicAck(delivery_tag=delivery.delivery_tag, multiple=True))
    assert min(served[queue] for queue in queues) >= 30, served


def test_queue_that_is_filled_again_and_again_does_not_starve_another_under_the_limit_of_a_channel(
    client: AmqpClient, channel: AmqpChannel
) -> None:
    """Each read brings a message for the one queue and then an ack, as from a client that passes work on."""
    busy, other = channel.declare().queue, channel.declare().queue
    qos(channel, 1, global_=True)
    publish_numbers(channel, busy, 10)
    publish_numbers(channel, other, 10)
    for queue in (busy, other):
        start(channel, queue, queue)
    served: Counter[str] = Counter()
    for _ in range(20):
        delivery = channel.expect_delivery().method
        served[delivery.consumer_tag] += 1
        again = published("", busy, b"again")
        client.send_raw(again + method_frame(1, m.BasicAck(delivery_tag=delivery.delivery_tag)))
    assert served[other] >= 5, served


def test_consumer_without_acks_is_held_back_by_the_limit_of_its_channel(channel: AmqpChannel) -> None:
    acked, unacked = channel.declare().queue, channel.declare().queue
    qos(channel, 2, global_=True)
    start(channel, unacked, "without", no_ack=True)
    publish_numbers(channel, unacked, 5)
    expect_bodies(channel, b"0", b"1", b"2", b"3", b"4")  # it does not count, as long as there is room
    start(channel, acked, "with")
    publish_numbers(channel, acked, 3)
    tags = expect_bodies(channel, b"0", b"1")
    publish_numbers(channel, unacked, 2)
    channel.call(m.ChannelFlow(active=True), m.ChannelFlowOk)  # and no delivery before
    channel.send(m.BasicAck(delivery_tag=tags[-1], multiple=True))
    got = [channel.expect_delivery() for _ in range(3)]
    assert Counter(one.method.consumer_tag for one in got) == {"without": 2, "with": 1}
