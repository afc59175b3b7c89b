"""Queues that belong to one connection, and consumers that want a queue for themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.semantics.conftest import Connect, Unique
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m

OfQueue: TypeAlias = Callable[[str], m.Method]

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be "
    "originally declared on another connection or the exclusive property value does not match that of the "
    "original declaration."
)

EXCLUSIVE_USES: list[OfQueue] = [
    lambda queue: m.QueueDeclare(queue=queue, exclusive=True, arguments={}),
    lambda queue: m.QueueDeclare(queue=queue, arguments={}),
    lambda queue: m.QueueDeclare(queue=queue, passive=True, arguments={}),
    lambda queue: m.QueueBind(queue=queue, exchange="amq.direct", routing_key="key", arguments={}),
    lambda queue: m.QueueUnbind(queue=queue, exchange="amq.direct", routing_key="key", arguments={}),
    lambda queue: m.BasicConsume(queue=queue, arguments={}),
    lambda queue: m.BasicGet(queue=queue),
    lambda queue: m.QueuePurge(queue=queue),
    lambda queue: m.QueueDelete(queue=queue),
]


@pytest.mark.parametrize(
    "use",
    EXCLUSIVE_USES,
    ids=[
        "declare",
        "shared declare",
        "passive declare",
        "bind",
        "unbind",
        "consume",
        "get",
        "purge",
        "delete",
    ],
)
def test_exclusive_queue_used_from_another_connection_is_405(
    channel: AmqpChannel, other: AmqpChannel, unique: Unique, use: OfQueue
) -> None:
    queue = channel.declare(unique()).queue
    channel.bind(queue, "amq.direct", "key")
    other.send(use(queue))
    close = other.expect_close(405)
    assert close.reply_text == LOCKED.format(queue)
    assert (close.class_id, close.method_id) == use(queue).id
    assert channel.declare(queue, passive=True).consumer_count == 0


def test_exclusive_queue_may_be_published_to_from_another_connection(
    channel: AmqpChannel, other: AmqpChannel
) -> None:
    queue = channel.declare().queue
    channel.consume(queue)
    other.publish("", queue, b"body")
    assert channel.expect_delivery().body == b"body"


def test_exclusive_queue_goes_with_its_connection(connect: Connect, other: AmqpChannel) -> None:
    client = connect()
    queue = client.channel().declare().queue
    client.close()
    other.send(m.QueueDeclare(queue=queue, passive=True, arguments={}))
    other.expect_close(404)


@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive", "shared"])
def test_consume_beside_an_exclusive_consumer_is_403(
    channel: AmqpChannel, second: AmqpChannel, exclusive: bool
) -> None:
    queue = channel.declare().queue
    channel.consume(queue, exclusive=True)
    second.send(m.BasicConsume(queue=queue, exclusive=exclusive, arguments={}))
    assert (
        second.expect_close(403).reply_text
        == f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    )


def test_exclusive_consume_beside_another_consumer_is_403(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.consume(queue)
    second.send(m.BasicConsume(queue=queue, exclusive=True, arguments={}))
    assert (
        second.expect_close(403).reply_text
        == f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    )


def test_consume_after_the_exclusive_consumer_was_cancelled_is_ok(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    tag = channel.consume(queue, exclusive=True)
    channel.call(m.BasicCancel(consumer_tag=tag), m.BasicCancelOk)
    channel.consume(queue)
