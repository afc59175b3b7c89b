"""Methods with no-wait take effect and have no answer."""

from __future__ import annotations

from tests.semantics.conftest import Unique
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m


def test_queue_methods_with_no_wait_work_without_an_answer(channel: AmqpChannel, unique: Unique) -> None:
    queue = unique()
    channel.send(m.QueueDeclare(queue=queue, exclusive=True, no_wait=True, arguments={}))
    channel.send(
        m.QueueBind(queue=queue, exchange="amq.direct", routing_key=queue, no_wait=True, arguments={})
    )
    channel.publish("amq.direct", queue)
    channel.send(m.QueuePurge(queue=queue, no_wait=True))
    channel.publish("amq.direct", queue, b"body")
    assert channel.drain(queue) == [b"body"]
    channel.send(m.QueueDelete(queue=queue, no_wait=True))
    channel.send(m.QueueDeclare(queue=queue, passive=True, arguments={}))
    channel.expect_close(404)


def test_exchange_methods_with_no_wait_work_without_an_answer(channel: AmqpChannel, unique: Unique) -> None:
    exchange, queue = unique(), channel.declare().queue
    channel.send(m.ExchangeDeclare(exchange=exchange, type="fanout", no_wait=True, arguments={}))
    channel.send(m.ExchangeBind(destination="amq.direct", source=exchange, no_wait=True, arguments={}))
    channel.bind(queue, "amq.direct", queue)
    channel.publish(exchange, queue, b"bound")
    assert channel.drain(queue) == [b"bound"]
    channel.send(m.ExchangeUnbind(destination="amq.direct", source=exchange, no_wait=True, arguments={}))
    channel.publish(exchange, queue, b"unbound")
    assert channel.drain(queue) == []
    channel.send(m.ExchangeDelete(exchange=exchange, no_wait=True))
    channel.send(m.ExchangeDeclare(exchange=exchange, passive=True, arguments={}))
    channel.expect_close(404)


def test_consume_and_cancel_with_no_wait_work_without_an_answer(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.send(m.BasicConsume(queue=queue, consumer_tag="mine", no_ack=True, no_wait=True, arguments={}))
    channel.publish("", queue, b"1")
    assert channel.expect_delivery().body == b"1"
    channel.send(m.BasicCancel(consumer_tag="mine", no_wait=True))
    channel.publish("", queue, b"2")
    assert channel.drain(queue) == [b"2"]


def test_confirm_select_with_no_wait_works_without_an_answer(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.send(m.ConfirmSelect(no_wait=True))
    channel.publish("", queue)
    assert channel.expect(m.BasicAck).delivery_tag == 1


def test_error_of_a_method_with_no_wait_is_told(channel: AmqpChannel) -> None:
    channel.send(m.QueuePurge(queue="missing", no_wait=True))
    channel.expect_close(404)


def test_queue_that_the_broker_named_without_telling_is_the_last_declared(
    channel: AmqpChannel, unique: Unique
) -> None:
    key = unique()
    channel.send(m.QueueDeclare(exclusive=True, no_wait=True, arguments={}))
    channel.bind("", "amq.direct", key)
    channel.publish("amq.direct", key, b"body")
    assert channel.get("").body == b"body"
