"""Consumers: who gets what, what comes back, and what ends them."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.semantics.conftest import Connect, Unique, hold_messages, publish_numbers, reopen
from tests.support.amqp import WAIT_SECONDS_MAX, AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.table import Table


def cancel(channel: AmqpChannel, tag: str) -> None:
    assert channel.call(m.BasicCancel(consumer_tag=tag), m.BasicCancelOk).consumer_tag == tag


def wait_until_ready(channel: AmqpChannel, queue: str, count: int) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while channel.declare(queue, passive=True).message_count != count:
        assert time.monotonic() < end, f"{queue} never had {count} messages ready"


def test_delivery_names_consumer_exchange_and_key(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.bind(queue, "amq.topic", "a.#")
    tag = channel.consume(queue, "mine")
    channel.publish("amq.topic", "a.b", b"body")
    assert channel.expect_delivery().method == m.BasicDeliver(
        consumer_tag=tag, delivery_tag=1, redelivered=False, exchange="amq.topic", routing_key="a.b"
    )


def test_consumer_tag_is_made_up_if_empty(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    first, second = channel.consume(queue), channel.consume(queue)
    assert first.startswith("amq.ctag-")
    assert first != second


def test_consume_ok_comes_before_the_first_delivery(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    publish_numbers(channel, queue, 3)
    channel.consume(queue)
    for number in range(3):
        assert channel.expect_delivery().body == b"%d" % number


def test_get_tells_how_many_are_left_and_whether_redelivered(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    publish_numbers(channel, queue, 3)
    assert channel.get(queue, no_ack=False).method == m.BasicGetOk(
        delivery_tag=1, redelivered=False, exchange="", routing_key=queue, message_count=2
    )
    channel.send(m.BasicNack(delivery_tag=1))
    assert channel.get(queue, no_ack=False).method == m.BasicGetOk(
        delivery_tag=2, redelivered=True, exchange="", routing_key=queue, message_count=2
    )


def test_get_of_an_empty_queue_is_get_empty(channel: AmqpChannel) -> None:
    channel.call(m.BasicGet(queue=channel.declare().queue), m.BasicGetEmpty)


def test_purge_removes_ready_messages_only_and_tells_how_many(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    publish_numbers(channel, queue, 3)
    channel.get(queue, no_ack=False)
    assert channel.call(m.QueuePurge(queue=queue), m.QueuePurgeOk).message_count == 2
    reopen(channel)
    assert channel.drain(queue) == [b"0"]


def test_cancel_does_not_requeue(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    tag = channel.consume(queue)
    publish_numbers(channel, queue, 2)
    tags = [channel.expect_delivery().method.delivery_tag for _ in range(2)]
    cancel(channel, tag)
    assert channel.try_get(queue) is None
    channel.send(m.BasicAck(delivery_tag=tags[0]))
    reopen(channel)
    assert channel.drain(queue) == [b"1"]


def test_cancel_ends_the_deliveries(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    cancel(channel, channel.consume(queue))
    channel.publish("", queue, b"body")
    assert channel.drain(queue) == [b"body"]


@pytest.mark.parametrize("how", ["channel", "connection", "socket"])
def test_close_requeues_at_the_original_position_with_redelivered_set(
    connect: Connect, channel: AmqpChannel, unique: Unique, how: str
) -> None:
    queue = channel.declare(unique(), exclusive=False).queue
    publish_numbers(channel, queue, 6)
    client = connect()
    taker = client.channel()
    for _ in range(4):
        taker.get(queue, no_ack=False)
    taker.send(m.BasicAck(delivery_tag=2))
    if how == "channel":
        taker.close()
    elif how == "connection":
        client.close()
    else:
        client.abort()
    wait_until_ready(channel, queue, 5)
    got = [channel.get(queue) for _ in range(5)]
    assert [content.body for content in got] == [b"0", b"2", b"3", b"4", b"5"]
    assert [content.method.redelivered for content in got] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "settle",
    [
        [m.BasicReject(delivery_tag=2), m.BasicReject(delivery_tag=1)],
        [m.BasicNack(delivery_tag=2, multiple=True)],
        [m.BasicNack(delivery_tag=2), m.BasicNack(delivery_tag=1)],
        [m.BasicRecoverAsync(requeue=True)],
    ],
    ids=lambda methods: methods[0].name,
)
def test_requeued_messages_return_to_their_position(channel: AmqpChannel, settle: list[m.Method]) -> None:
    queue = channel.declare().queue
    publish_numbers(channel, queue, 4)
    for _ in range(2):
        channel.get(queue, no_ack=False)
    for method in settle:
        channel.send(method)
    got = [channel.get(queue) for _ in range(4)]
    assert [content.body for content in got] == [b"0", b"1", b"2", b"3"]
    assert [content.method.redelivered for content in got] == [True, True, False, False]


@pytest.mark.parametrize(
    "method",
    [m.BasicReject(delivery_tag=1, requeue=False), m.BasicNack(delivery_tag=1, requeue=False)],
    ids=lambda method: method.name,
)
def test_rejected_message_that_is_not_requeued_is_gone(channel: AmqpChannel, method: m.Method) -> None:
    queue = hold_messages(channel)
    channel.send(method)
    reopen(channel)
    assert channel.drain(queue) == []


def test_recover_requeues_all_and_redelivers(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue)
    publish_numbers(channel, queue, 2)
    for _ in range(2):
        assert not channel.expect_delivery().method.redelivered
    channel.call(m.BasicRecover(requeue=True), m.BasicRecoverOk)
    for number in range(2):
        again = channel.expect_delivery()
        assert (again.body, again.method.redelivered) == (b"%d" % number, True)
        assert again.method.delivery_tag == number + 3


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_recover_without_requeue_redelivers_to_the_same_consumer(channel: AmqpChannel) -> None:
    """RabbitMQ answers 540."""
    queue = channel.declare().queue
    for tag in ("first", "second"):
        channel.consume(queue, tag)
    publish_numbers(channel, queue, 4)
    takers = {d.body: d.method.consumer_tag for d in (channel.expect_delivery() for _ in range(4))}
    channel.send(m.BasicRecover(requeue=False))
    for _ in range(4):
        again = channel.expect_delivery()
        assert again.method.redelivered
        assert again.method.consumer_tag == takers.pop(again.body)
    channel.expect(m.BasicRecoverOk)


def test_recover_makes_the_old_tags_unknown(channel: AmqpChannel) -> None:
    hold_messages(channel)
    channel.call(m.BasicRecover(requeue=True), m.BasicRecoverOk)
    channel.send(m.BasicAck(delivery_tag=1))
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"


def test_recover_async_has_no_answer(channel: AmqpChannel) -> None:
    channel.send(m.BasicRecoverAsync(requeue=True))
    channel.declare()


def test_flow_on_is_answered(channel: AmqpChannel) -> None:
    assert channel.call(m.ChannelFlow(active=True), m.ChannelFlowOk).active


@pytest.mark.usefixtures("unlike_rabbitmq")
def test_flow_off_holds_deliveries_until_it_is_on_again(channel: AmqpChannel) -> None:
    """RabbitMQ answers 540."""
    queue = channel.declare().queue
    channel.consume(queue)
    assert not channel.call(m.ChannelFlow(active=False), m.ChannelFlowOk).active
    publish_numbers(channel, queue, 2)
    assert channel.get(queue).body == b"0"
    channel.send(m.ChannelFlow(active=True))
    assert channel.expect(m.ChannelFlowOk).active
    assert channel.expect_delivery().body == b"1"


def test_message_without_acknowledgement_is_gone_once_delivered(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue, no_ack=True)
    channel.publish("", queue)
    channel.expect_delivery()
    reopen(channel)
    assert channel.drain(queue) == []


def test_consumers_of_one_priority_take_turns(client: AmqpClient, channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    tags = [channel.consume(queue, f"consumer-{number}") for number in range(3)]
    publish_numbers(client.channel(2), queue, 30)
    takers = [channel.expect_delivery().method.consumer_tag for _ in range(30)]
    assert Counter(takers) == dict.fromkeys(tags, 10)
    assert all(set(takers[at : at + 3]) == set(tags) for at in range(0, 30, 3)), takers


def test_consumers_on_several_connections_take_turns(
    channel: AmqpChannel, other: AmqpChannel, unique: Unique
) -> None:
    queue = channel.declare(unique(), exclusive=False).queue
    for taker in (channel, other):
        taker.consume(queue)
    publish_numbers(channel, queue, 10)
    for taker in (channel, other):
        for _ in range(5):
            taker.expect_delivery()


def test_consumer_at_its_limit_is_skipped(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    for limit in (1, 3):
        channel.call(m.BasicQos(prefetch_count=limit), m.BasicQosOk)
        channel.consume(queue, f"limit-{limit}")
    publish_numbers(channel, queue, 5)
    takers = Counter(channel.expect_delivery().method.consumer_tag for _ in range(4))
    assert takers == {"limit-1": 1, "limit-3": 3}
    assert channel.drain(queue) == [b"4"]


def test_higher_priority_gets_all_until_it_is_at_its_limit_then_lower_ones(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.call(m.BasicQos(prefetch_count=2), m.BasicQosOk)
    for priority in (-5, 0, 10):
        arguments: Table = {"x-priority": priority} if priority else {}
        channel.consume(queue, f"priority {priority}", arguments=arguments)
    publish_numbers(channel, queue, 7)
    takers = [channel.expect_delivery().method for _ in range(6)]
    assert [taker.consumer_tag for taker in takers] == [
        *["priority 10"] * 2,
        *["priority 0"] * 2,
        *["priority -5"] * 2,
    ]
    channel.send(m.BasicAck(delivery_tag=takers[0].delivery_tag))
    assert channel.expect_delivery().method.consumer_tag == "priority 10"


def test_consumers_of_the_highest_priority_take_turns(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    for tag, priority in (("low", 1), ("a", 2), ("b", 2)):
        channel.consume(queue, tag, arguments={"x-priority": priority})
    publish_numbers(channel, queue, 10)
    takers = Counter(channel.expect_delivery().method.consumer_tag for _ in range(10))
    assert takers == {"a": 5, "b": 5}


def test_priority_that_is_no_integer_is_406(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.send(m.BasicConsume(queue=queue, arguments={"x-priority": "high"}))
    channel.expect_close(406)


def test_deleted_queue_cancels_its_consumers_if_the_client_has_consumer_cancel_notify(
    connect: Connect, channel: AmqpChannel, unique: Unique
) -> None:
    queue = channel.declare(unique(), exclusive=False).queue
    consumer = connect(capabilities=("consumer_cancel_notify",)).channel()
    consumer.consume(queue, "mine")
    channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    assert consumer.expect(m.BasicCancel) == m.BasicCancel(consumer_tag="mine", no_wait=True)


@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_who_deletes_a_queue_gets_delete_ok_before_its_own_consumers_are_cancelled(
    channel: AmqpChannel, unique: Unique, durable: bool
) -> None:
    queue = channel.declare(unique(), exclusive=False, durable=durable).queue
    for tag in ("mine", "mine too"):
        channel.consume(queue, tag)
    channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    assert {channel.expect(m.BasicCancel).consumer_tag for _ in range(2)} == {"mine", "mine too"}


def test_who_deletes_a_queue_without_waiting_is_told_of_its_own_consumers(
    channel: AmqpChannel, unique: Unique
) -> None:
    queue = channel.declare(unique(), exclusive=False).queue
    channel.consume(queue, "mine")
    channel.send(m.QueueDelete(queue=queue, no_wait=True))
    assert channel.expect(m.BasicCancel).consumer_tag == "mine"


def test_deleted_queue_says_nothing_to_a_client_without_consumer_cancel_notify(
    connect: Connect, channel: AmqpChannel, unique: Unique
) -> None:
    queue = channel.declare(unique(), exclusive=False).queue
    consumer = connect(capabilities=()).channel()
    consumer.consume(queue, "mine")
    channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    for _ in range(2):
        consumer.send(m.QueueDeclare(exclusive=True, arguments={}))
        consumer.expect(m.QueueDeclareOk)


def test_ack_of_a_delivery_from_a_queue_that_is_gone_is_ok(channel: AmqpChannel) -> None:
    queue = hold_messages(channel)
    channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    channel.send(m.BasicAck(delivery_tag=1))
    channel.declare()


def test_no_local_is_ignored_as_rabbitmq_does(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue, no_local=True)
    channel.publish("", queue, b"own")
    assert channel.expect_delivery().body == b"own"
