"""When a second declare is equal to the first, and what it is told when it is not."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Unique
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.table import Int8, Int16, Int64, Table, UInt8, UInt16, UInt32


def publish_confirmed(channel: AmqpChannel, queue: str, count: int) -> None:
    """The messages are in the queue when this returns."""
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for _ in range(count):
        channel.publish("", queue)
    while channel.expect(m.BasicAck).delivery_tag < count:
        pass


def test_equal_queue_is_declared_again_with_its_counts(
    client: AmqpClient, channel: AmqpChannel, unique: Unique
) -> None:
    queue = unique()
    channel.declare(queue, exclusive=False, durable=True)
    channel.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    channel.consume(queue)
    publish_confirmed(client.channel(2), queue, 3)
    channel.expect_delivery()
    again = channel.declare(queue, exclusive=False, durable=True)
    assert again == m.QueueDeclareOk(queue=queue, message_count=2, consumer_count=1)


def test_message_count_is_of_ready_messages(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    publish_confirmed(channel, queue, 3)
    channel.get(queue, no_ack=False)
    assert channel.declare(queue, passive=True) == m.QueueDeclareOk(
        queue=queue, message_count=2, consumer_count=0
    )


def test_queue_that_is_neither_durable_nor_exclusive_is_allowed(channel: AmqpChannel, unique: Unique) -> None:
    queue = unique()
    assert channel.declare(queue, exclusive=False).queue == queue


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
@pytest.mark.parametrize("first", [False, True])
def test_queue_with_another_flag_is_406(channel: AmqpChannel, unique: Unique, flag: str, first: bool) -> None:
    queue = unique()
    channel.declare(queue, exclusive=False, arguments={}, **{flag: first})
    channel.send(m.QueueDeclare(queue=queue, arguments={}, **{flag: not first}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg '{flag}' for queue '{queue}' in vhost '/': "
        f"received '{str(not first).lower()}' but current is '{str(first).lower()}'"
    )


@pytest.mark.parametrize("first", [False, True], ids=["shared first", "exclusive first"])
def test_queue_with_another_exclusive_flag_is_405(channel: AmqpChannel, unique: Unique, first: bool) -> None:
    queue = unique()
    channel.declare(queue, exclusive=first)
    channel.send(m.QueueDeclare(queue=queue, exclusive=not first, arguments={}))
    assert channel.expect_close(405).reply_text.startswith(
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'."
    )


def test_passive_declare_compares_nothing(channel: AmqpChannel, unique: Unique) -> None:
    queue = unique()
    channel.declare(queue, exclusive=False, arguments={"x-max-length": 5})
    channel.declare(queue, exclusive=False, passive=True, durable=True, auto_delete=True)


EQUAL: list[tuple[Table, Table]] = [
    ({}, {"x-queue-type": "classic"}),
    ({"x-queue-type": "classic"}, {}),
    ({"x-max-length": 5}, {"x-max-length": Int64(5)}),
    ({"x-max-length": Int8(5)}, {"x-max-length": 5}),
    ({"x-max-length": UInt8(5)}, {"x-max-length": Int16(5)}),
    ({"x-max-length": UInt16(5)}, {"x-max-length": UInt32(5)}),
    ({"x-max-length": 5, "x-max-priority": 3}, {"x-max-priority": 3, "x-max-length": 5}),
    ({"made-up": 1}, {"made-up": 2}),
    ({"made-up": 1}, {}),
]


@pytest.mark.parametrize(("first", "second"), EQUAL, ids=str)
def test_queue_with_equal_arguments_is_ok(
    channel: AmqpChannel, unique: Unique, first: Table, second: Table
) -> None:
    queue = unique()
    channel.declare(queue, arguments=first)
    channel.declare(queue, arguments=second)


UNEQUAL: list[tuple[Table, Table, str]] = [
    (
        {},
        {"x-max-length": 5},
        "'x-max-length' for {}: received the value '5' of type 'signedint' but current is none",
    ),
    (
        {"x-max-length": 5},
        {},
        "'x-max-length' for {}: received none but current is the value '5' of type 'signedint'",
    ),
    (
        {"x-max-length": 5},
        {"x-max-length": 6},
        "'x-max-length' for {}: received '6' but current is '5'",
    ),
    (
        {},
        {"x-dead-letter-exchange": "other"},
        "'x-dead-letter-exchange' for {}: received the value 'other' of type 'longstr' but current is none",
    ),
    (
        {"x-max-priority": 1},
        {"x-max-priority": 2},
        "'x-max-priority' for {}: received '2' but current is '1'",
    ),
    (
        {"x-max-length": 10},
        {"x-max-length": 10.0},
        "'x-max-length' for {}: received '10.0' but current is '10'",
    ),
    (
        {"x-max-length": 1},
        {"x-max-length": True},
        "'x-max-length' for {}: received 'true' but current is '1'",
    ),
    (
        {"x-single-active-consumer": True},
        {"x-single-active-consumer": 1},
        "'x-single-active-consumer' for {}: received '1' but current is 'true'",
    ),
    (
        {"x-max-length": 10},
        {"x-max-length": "10"},
        "'x-max-length' for {}: received '10' but current is '10'",
    ),
    (
        {"x-queue-mode": "lazy"},
        {},
        "'x-queue-mode' for {}: received none but current is the value 'lazy' of type 'longstr'",
    ),
    (
        {"x-queue-version": 1},
        {"x-queue-version": 2},
        "'x-queue-version' for {}: received '2' but current is '1'",
    ),
]


@pytest.mark.parametrize(("first", "second", "text"), UNEQUAL, ids=str)
def test_queue_with_another_argument_is_406(
    channel: AmqpChannel, unique: Unique, first: Table, second: Table, text: str
) -> None:
    queue = unique()
    channel.declare(queue, arguments=first)
    channel.send(m.QueueDeclare(queue=queue, exclusive=True, arguments=second))
    assert channel.expect_close(406).reply_text == (
        "PRECONDITION_FAILED - inequivalent arg " + text.format(f"queue '{queue}' in vhost '/'")
    )


def test_queue_of_another_type_is_406(channel: AmqpChannel, unique: Unique) -> None:
    queue = unique()
    channel.declare(queue, exclusive=False, durable=True)
    channel.send(m.QueueDeclare(queue=queue, durable=True, arguments={"x-queue-type": "quorum"}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue '{queue}' in vhost '/': "
        "received the value 'quorum' of type 'longstr' but current is none"
    )


@pytest.mark.parametrize("first", [False, True], ids=["transient first", "durable first"])
def test_exclusive_queue_is_never_durable(channel: AmqpChannel, unique: Unique, first: bool) -> None:
    queue = unique()
    channel.declare(queue, exclusive=True, durable=first)
    channel.declare(queue, exclusive=True, durable=not first)


FLAGS = ["durable", "auto_delete", "internal"]


def test_equal_exchange_is_ok(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    for _ in range(2):
        channel.declare_exchange(
            exchange, "topic", durable=True, internal=True, arguments={"alternate-exchange": "amq.fanout"}
        )


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("first", [False, True])
def test_exchange_with_another_flag_is_406(
    channel: AmqpChannel, unique: Unique, flag: str, first: bool
) -> None:
    exchange = unique()
    channel.declare_exchange(exchange, "direct", arguments={}, **{flag: first})
    channel.send(m.ExchangeDeclare(exchange=exchange, type="direct", arguments={}, **{flag: not first}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg '{flag}' for exchange '{exchange}' in vhost '/': "
        f"received '{str(not first).lower()}' but current is '{str(first).lower()}'"
    )


def test_exchange_of_another_type_is_406(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    channel.declare_exchange(exchange, "direct")
    channel.send(m.ExchangeDeclare(exchange=exchange, type="fanout", arguments={}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{exchange}' in vhost '/': "
        "received 'fanout' but current is 'direct'"
    )


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({}, {"alternate-exchange": "b"}, "received the value 'b' of type 'longstr' but current is none"),
        ({"alternate-exchange": "a"}, {}, "received none but current is the value 'a' of type 'longstr'"),
        ({"alternate-exchange": "a"}, {"alternate-exchange": "b"}, "received 'b' but current is 'a'"),
    ],
    ids=["added", "gone", "other"],
)
def test_exchange_with_another_alternate_exchange_is_406(
    channel: AmqpChannel, unique: Unique, first: Table, second: Table, text: str
) -> None:
    exchange = unique()
    channel.declare_exchange(exchange, arguments=first)
    channel.send(m.ExchangeDeclare(exchange=exchange, arguments=second))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange '{exchange}' "
        f"in vhost '/': {text}"
    )


def test_exchange_with_another_unknown_argument_is_ok(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    channel.declare_exchange(exchange, arguments={"made-up": 1})
    channel.declare_exchange(exchange, arguments={"made-up": 2})
