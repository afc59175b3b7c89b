"""Queues and exchanges that go by themselves, and the queue that is meant when none is named."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Connect, Unique
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m


def expect_no_queue(channel: AmqpChannel, queue: str) -> None:
    channel.send(m.QueueDeclare(queue=queue, passive=True, arguments={}))
    channel.expect_close(404)


def expect_no_exchange(channel: AmqpChannel, exchange: str) -> None:
    channel.send(m.ExchangeDeclare(exchange=exchange, passive=True, arguments={}))
    channel.expect_close(404)


def test_auto_delete_queue_goes_with_its_last_consumer(channel: AmqpChannel, unique: Unique) -> None:
    queue = channel.declare(unique(), exclusive=False, auto_delete=True).queue
    first, second = channel.consume(queue), channel.consume(queue)
    channel.call(m.BasicCancel(consumer_tag=first), m.BasicCancelOk)
    channel.declare(queue, passive=True)
    channel.call(m.BasicCancel(consumer_tag=second), m.BasicCancelOk)
    expect_no_queue(channel, queue)


def test_auto_delete_queue_goes_when_the_channel_of_its_consumer_closes(
    channel: AmqpChannel, other: AmqpChannel, unique: Unique
) -> None:
    queue = channel.declare(unique(), exclusive=False, auto_delete=True).queue
    channel.consume(queue)
    channel.close()
    expect_no_queue(other, queue)


def test_auto_delete_queue_that_had_no_consumer_stays(connect: Connect, unique: Unique) -> None:
    queue, client = unique(), connect()
    channel = client.channel()
    channel.declare(queue, exclusive=False, auto_delete=True)
    channel.publish("", queue, b"body")
    channel.get(queue)
    client.close()
    connect().channel().declare(queue, exclusive=False, passive=True)


@pytest.mark.parametrize("how", ["unbind", "queue"])
def test_auto_delete_exchange_goes_with_its_last_binding(
    channel: AmqpChannel, unique: Unique, how: str
) -> None:
    exchange, queue = unique(), channel.declare().queue
    channel.declare_exchange(exchange, auto_delete=True)
    channel.bind(queue, exchange, "a")
    channel.bind(queue, exchange, "b")
    unbind = m.QueueUnbind(queue=queue, exchange=exchange, routing_key="a", arguments={})
    channel.call(unbind, m.QueueUnbindOk)
    channel.declare_exchange(exchange, passive=True)
    if how == "unbind":
        unbind = m.QueueUnbind(queue=queue, exchange=exchange, routing_key="b", arguments={})
        channel.call(unbind, m.QueueUnbindOk)
    else:
        channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    expect_no_exchange(channel, exchange)


@pytest.mark.parametrize("how", ["unbind", "exchange"])
def test_auto_delete_exchange_goes_with_its_last_binding_to_an_exchange(
    channel: AmqpChannel, unique: Unique, how: str
) -> None:
    source, target = unique(), unique()
    channel.declare_exchange(source, auto_delete=True)
    channel.declare_exchange(target)
    bind = m.ExchangeBind(destination=target, source=source, arguments={})
    channel.call(bind, m.ExchangeBindOk)
    if how == "unbind":
        unbind = m.ExchangeUnbind(destination=target, source=source, arguments={})
        channel.call(unbind, m.ExchangeUnbindOk)
    else:
        channel.call(m.ExchangeDelete(exchange=target), m.ExchangeDeleteOk)
    expect_no_exchange(channel, source)


def test_auto_delete_exchange_that_had_no_binding_stays(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    channel.declare_exchange(exchange, auto_delete=True)
    channel.publish(exchange, "key")
    channel.declare_exchange(exchange, passive=True)


def test_auto_delete_exchange_stays_while_it_is_only_a_destination(
    channel: AmqpChannel, unique: Unique
) -> None:
    source, target = unique(), unique()
    channel.declare_exchange(source)
    channel.declare_exchange(target, auto_delete=True)
    channel.call(m.ExchangeBind(destination=target, source=source, arguments={}), m.ExchangeBindOk)
    channel.call(m.ExchangeUnbind(destination=target, source=source, arguments={}), m.ExchangeUnbindOk)
    channel.declare_exchange(target, passive=True)


def test_deleted_queue_loses_its_bindings(channel: AmqpChannel, unique: Unique) -> None:
    queue = unique()
    channel.declare(queue)
    channel.bind(queue, "amq.direct", queue)
    channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk)
    channel.declare(queue)
    channel.publish("amq.direct", queue)
    assert channel.drain(queue) == []


def test_queue_deleted_with_messages_is_empty_when_declared_again(
    channel: AmqpChannel, unique: Unique
) -> None:
    queue = unique()
    channel.declare(queue)
    channel.publish("", queue)
    assert channel.call(m.QueueDelete(queue=queue), m.QueueDeleteOk).message_count == 1
    assert channel.declare(queue).message_count == 0


def test_empty_queue_name_is_the_last_one_declared_on_the_channel(
    channel: AmqpChannel, unique: Unique
) -> None:
    channel.declare()
    queue = channel.declare(unique()).queue
    channel.bind("", "amq.direct", queue)
    channel.publish("amq.direct", queue, b"1")
    assert channel.get("").body == b"1"
    channel.consume("", "mine")
    channel.publish("", queue, b"2")
    assert channel.expect_delivery().body == b"2"
    channel.call(m.BasicCancel(consumer_tag="mine"), m.BasicCancelOk)
    channel.publish("", queue, b"3")
    assert channel.call(m.QueuePurge(), m.QueuePurgeOk).message_count == 1
    unbind = m.QueueUnbind(exchange="amq.direct", routing_key=queue, arguments={})
    channel.call(unbind, m.QueueUnbindOk)
    channel.publish("amq.direct", queue, b"4")
    assert channel.call(m.QueueDelete(), m.QueueDeleteOk).message_count == 0
    expect_no_queue(channel, queue)


def test_passive_declare_makes_a_queue_the_last_declared(channel: AmqpChannel, unique: Unique) -> None:
    queue = channel.declare(unique()).queue
    channel.declare()
    channel.declare(queue, passive=True)
    channel.publish("", queue, b"body")
    assert channel.get("").body == b"body"


def test_last_declared_is_per_channel(channel: AmqpChannel) -> None:
    channel.declare()
    second = channel.client.channel(2)
    second.send(m.BasicGet())
    assert second.expect_close(404).reply_text == "NOT_FOUND - no previously declared queue"


@pytest.mark.parametrize(
    "method",
    [
        m.QueueBind(exchange="amq.direct", arguments={}),
        m.QueueUnbind(exchange="amq.direct", arguments={}),
        m.QueuePurge(),
        m.QueueDelete(),
        m.BasicGet(),
        m.BasicConsume(arguments={}),
    ],
    ids=lambda method: method.name,
)
def test_empty_queue_name_without_a_declared_queue_is_404(channel: AmqpChannel, method: m.Method) -> None:
    channel.send(method)
    assert channel.expect_close(404).reply_text == "NOT_FOUND - no previously declared queue"


def test_bind_with_name_and_key_empty_substitutes_both(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.bind("", "amq.direct", "")
    channel.publish("amq.direct", queue, b"named")
    channel.publish("amq.direct", "", b"empty")
    assert channel.drain(queue) == [b"named"]


def test_unbind_with_name_and_key_empty_substitutes_both(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.bind(queue, "amq.direct", queue)
    channel.call(m.QueueUnbind(exchange="amq.direct", arguments={}), m.QueueUnbindOk)
    channel.publish("amq.direct", queue)
    assert channel.drain(queue) == []


def test_bind_with_only_the_key_empty_keeps_it_empty(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.bind(queue, "amq.direct", "")
    channel.publish("amq.direct", queue, b"named")
    channel.publish("amq.direct", "", b"empty")
    assert channel.drain(queue) == [b"empty"]
