"""Delivery tags: which are known, and what settles them."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import hold_messages, publish_numbers, reopen
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m

UNKNOWN_TAGS: list[tuple[str, m.Method]] = [
    ("ack", m.BasicAck(delivery_tag=7)),
    ("ack multiple", m.BasicAck(delivery_tag=7, multiple=True)),
    ("nack", m.BasicNack(delivery_tag=7)),
    ("nack multiple", m.BasicNack(delivery_tag=7, multiple=True)),
    ("reject", m.BasicReject(delivery_tag=7)),
]


@pytest.mark.parametrize("method", [pytest.param(method, id=name) for name, method in UNKNOWN_TAGS])
@pytest.mark.parametrize("outstanding", [0, 2])
def test_unknown_delivery_tag_is_406(channel: AmqpChannel, method: m.Method, outstanding: int) -> None:
    hold_messages(channel, outstanding)
    channel.send(method)
    close = channel.expect_close(406)
    assert close.reply_text == "PRECONDITION_FAILED - unknown delivery tag 7"
    assert (close.class_id, close.method_id) == method.id


@pytest.mark.parametrize(
    "method",
    [m.BasicAck(delivery_tag=0), m.BasicNack(delivery_tag=0), m.BasicReject(delivery_tag=0)],
    ids=lambda method: method.name,
)
def test_delivery_tag_0_without_multiple_is_406(channel: AmqpChannel, method: m.Method) -> None:
    hold_messages(channel)
    channel.send(method)
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - unknown delivery tag 0"


@pytest.mark.parametrize("multiple", [False, True], ids=["single", "multiple"])
def test_ack_of_a_tag_that_was_acked_is_406(channel: AmqpChannel, multiple: bool) -> None:
    hold_messages(channel)
    channel.send(m.BasicAck(delivery_tag=1))
    channel.send(m.BasicAck(delivery_tag=1, multiple=multiple))
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"


def test_ack_of_a_delivery_without_acknowledgement_is_406(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue)
    channel.get(queue, no_ack=True)
    channel.send(m.BasicAck(delivery_tag=1))
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"


def test_ack_of_another_channels_delivery_is_406(channel: AmqpChannel, second: AmqpChannel) -> None:
    hold_messages(channel)
    second.send(m.BasicAck(delivery_tag=1))
    second.expect_close(406)


@pytest.mark.parametrize(
    ("method", "ready"),
    [
        (m.BasicAck(delivery_tag=0, multiple=True), 0),
        (m.BasicNack(delivery_tag=0, multiple=True, requeue=True), 3),
        (m.BasicNack(delivery_tag=0, multiple=True, requeue=False), 0),
    ],
    ids=["ack", "nack", "nack without requeue"],
)
def test_tag_0_with_multiple_is_all_outstanding(channel: AmqpChannel, method: m.Method, ready: int) -> None:
    queue = hold_messages(channel, 3)
    channel.send(method)
    reopen(channel)
    assert len(channel.drain(queue)) == ready


def test_tag_0_with_multiple_is_ok_when_nothing_is_outstanding(channel: AmqpChannel) -> None:
    channel.send(m.BasicAck(delivery_tag=0, multiple=True))
    channel.declare()


def test_multiple_settles_all_up_to_its_tag(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    publish_numbers(channel, queue, 4)
    for _ in range(4):
        channel.get(queue, no_ack=False)
    channel.send(m.BasicAck(delivery_tag=2))
    channel.send(m.BasicAck(delivery_tag=3, multiple=True))
    reopen(channel)
    assert channel.drain(queue) == [b"3"]
