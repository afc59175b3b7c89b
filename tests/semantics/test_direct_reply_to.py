"""Direct reply-to: a request carries a name that leads back to the channel that sent it."""

from __future__ import annotations

import pytest

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties

REPLY_TO = "amq.rabbitmq.reply-to"


def send_request(channel: AmqpChannel, queue: str, body: bytes = b"request") -> None:
    channel.publish("", queue, body, BasicProperties(reply_to=REPLY_TO, correlation_id="1"))


def test_reply_to_is_rewritten_and_leads_back(channel: AmqpChannel, other: AmqpChannel) -> None:
    server = other.declare().queue
    channel.consume(REPLY_TO, "replies", no_ack=True)
    other.consume(server)
    send_request(channel, server)
    request = other.expect_delivery()
    assert request.properties.reply_to is not None
    assert request.properties.reply_to.startswith(f"{REPLY_TO}.")
    assert request.properties.correlation_id == "1"
    other.publish("", request.properties.reply_to, b"reply", BasicProperties(correlation_id="1"))
    reply = channel.expect_delivery()
    assert reply.method == m.BasicDeliver(
        consumer_tag="replies",
        delivery_tag=1,
        redelivered=False,
        exchange="",
        routing_key=request.properties.reply_to,
    )
    assert (reply.body, reply.properties.correlation_id) == (b"reply", "1")


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_mandatory_reply_to_a_consumer_that_is_gone_is_returned(
    channel: AmqpChannel, other: AmqpChannel, how: str
) -> None:
    server = other.declare().queue
    tag = channel.consume(REPLY_TO, no_ack=True)
    other.consume(server)
    send_request(channel, server)
    name = other.expect_delivery().properties.reply_to
    assert name is not None
    if how == "cancel":
        channel.call(m.BasicCancel(consumer_tag=tag), m.BasicCancelOk)
    else:
        channel.close()
    other.publish("", name, b"late", mandatory=True)
    assert other.expect_content(m.BasicReturn).body == b"late"


def test_replies_keep_to_their_channel(channel: AmqpChannel, second: AmqpChannel, other: AmqpChannel) -> None:
    server = other.declare().queue
    other.consume(server)
    for requester, body in ((channel, b"first"), (second, b"second")):
        requester.consume(REPLY_TO, no_ack=True)
        send_request(requester, server, body)
    for request in [other.expect_delivery() for _ in range(2)]:
        assert request.properties.reply_to is not None
        other.publish("", request.properties.reply_to, request.body)
    assert channel.expect_delivery().body == b"first"
    assert second.expect_delivery().body == b"second"


def test_publish_with_the_pseudo_queue_without_a_consumer_is_406(channel: AmqpChannel) -> None:
    send_request(channel, channel.declare().queue)
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - fast reply consumer does not exist"


def test_consumer_on_another_channel_does_not_count(client: AmqpClient, channel: AmqpChannel) -> None:
    client.channel(2).consume(REPLY_TO, no_ack=True)
    send_request(channel, channel.declare().queue)
    channel.expect_close(406)


def test_consume_from_the_pseudo_queue_with_acknowledgement_is_406(channel: AmqpChannel) -> None:
    channel.send(m.BasicConsume(queue=REPLY_TO, arguments={}))
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


def test_second_consumer_of_the_pseudo_queue_on_a_channel_is_406(channel: AmqpChannel) -> None:
    channel.consume(REPLY_TO, no_ack=True)
    channel.send(m.BasicConsume(queue=REPLY_TO, no_ack=True, arguments={}))
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - reply consumer already set"


def test_other_reply_to_names_are_left_alone(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue, b"", BasicProperties(reply_to="mine"))
    assert channel.get(queue).properties.reply_to == "mine"
