"""Names of queues and exchanges: line ends are not part of them."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Unique
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties


def with_line_ends(name: str) -> str:
    return "\r\n" + "\n".join(name) + "\r"


def test_queue_is_known_without_the_line_ends_of_its_name(channel: AmqpChannel, unique: Unique) -> None:
    queue = unique()
    noisy = with_line_ends(queue)
    assert channel.declare(noisy).queue == queue
    assert channel.declare(noisy, passive=True).queue == queue
    channel.call(
        m.QueueBind(queue=noisy, exchange="amq.\ndirect", routing_key="a\nb", arguments={}), m.QueueBindOk
    )
    channel.publish("amq.direct", "a\nb", b"the key is as it was")
    assert channel.drain(queue) == [b"the key is as it was"]
    channel.call(
        m.QueueUnbind(queue=noisy, exchange="amq.\ndirect", routing_key="a\nb", arguments={}), m.QueueUnbindOk
    )
    channel.call(m.QueueDelete(queue=noisy), m.QueueDeleteOk)
    channel.send(m.QueueDeclare(queue=queue, passive=True, arguments={}))
    channel.expect_close(404)


def test_exchange_is_known_without_the_line_ends_of_its_name(channel: AmqpChannel, unique: Unique) -> None:
    exchange = unique()
    noisy = with_line_ends(exchange)
    channel.declare_exchange(noisy, "fanout")
    channel.call(m.ExchangeDeclare(exchange=exchange, passive=True, arguments={}), m.ExchangeDeclareOk)
    channel.call(m.ExchangeBind(destination=noisy, source="amq.\nfanout", arguments={}), m.ExchangeBindOk)
    channel.call(m.ExchangeUnbind(destination=noisy, source="amq.\nfanout", arguments={}), m.ExchangeUnbindOk)
    channel.call(m.ExchangeDelete(exchange=noisy), m.ExchangeDeleteOk)
    channel.send(m.ExchangeDeclare(exchange=exchange, passive=True, arguments={}))
    channel.expect_close(404)


def test_nothing_but_line_ends_is_no_name(channel: AmqpChannel) -> None:
    assert channel.declare("\r\n").queue.startswith("amq.gen-")
    channel.send(m.ExchangeDeclare(exchange="\n", type="fanout", arguments={}))
    assert "default exchange" in channel.expect_close(403).reply_text


@pytest.mark.parametrize(
    "method",
    [m.QueueDeclare(queue="a\nmq.x", arguments={}), m.ExchangeDeclare(exchange="\namq.x", arguments={})],
)
def test_reserved_prefix_does_not_hide_behind_line_ends(channel: AmqpChannel, method: m.Method) -> None:
    channel.send(method)
    assert "contains reserved prefix 'amq.*'" in channel.expect_close(403).reply_text


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_queue_that_is_to_stay_needs_a_name_of_its_own(channel: AmqpChannel, kind: str) -> None:
    channel.send(m.QueueDeclare(durable=True, arguments={"x-queue-type": kind}))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_{kind}_queue"
    )


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"durable": True, "exclusive": True, "auto_delete": True}, "auto-delete"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"exclusive": True}, "exclusive-owner"),
        ({}, "non-durable"),
    ],
)
def test_queue_that_is_to_stay_is_durable_and_nobodys(
    channel: AmqpChannel, unique: Unique, kind: str, flags: dict[str, bool], told: str
) -> None:
    queue = unique()
    channel.send(m.QueueDeclare(queue=queue, arguments={"x-queue-type": kind}, **flags))
    assert channel.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - invalid property '{told}' for queue '{queue}' in vhost '/'"
    )


@pytest.mark.parametrize("second", ["missing", "amq.direct"], ids=["neither is there", "one is there"])
def test_binding_names_the_exchange_that_is_missing_first(
    channel: AmqpChannel, unique: Unique, second: str
) -> None:
    missing = unique()
    channel.send(m.QueueBind(queue="missing", exchange=missing, arguments={}))
    assert channel.expect_close(404).reply_text == f"NOT_FOUND - no exchange '{missing}' in vhost '/'"
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    channel.send(m.ExchangeBind(destination=second, source=missing, arguments={}))
    assert channel.expect_close(404).reply_text == f"NOT_FOUND - no exchange '{missing}' in vhost '/'"


def test_argument_that_names_an_exchange_is_a_string(channel: AmqpChannel, unique: Unique) -> None:
    name = unique()
    channel.send(m.QueueDeclare(queue=name, arguments={"x-dead-letter-exchange": 5}))
    assert channel.expect_close(406).reply_text == (
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' "
        f"in queue '{name}' in vhost '/'"
    )
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    channel.send(m.ExchangeDeclare(exchange=name, arguments={"alternate-exchange": 5}))
    assert channel.expect_close(406).reply_text == (
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' "
        f"in exchange '{name}' in vhost '/'"
    )


def test_priority_of_0_at_most_is_allowed(channel: AmqpChannel) -> None:
    queue = channel.declare(arguments={"x-max-priority": 0}).queue
    for priority in (1, 5, 0):
        channel.publish("", queue, b"%d" % priority, BasicProperties(priority=priority))
    assert channel.drain(queue) == [b"1", b"5", b"0"]
