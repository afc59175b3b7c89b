"""Frames that are malformed or not due, and channels and connections that are closing."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import Connect
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.frames import (
    BODY,
    FRAME_HEAD,
    FRAME_OVERHEAD_BYTES,
    HEADER,
    HEARTBEAT,
    METHOD,
    encode_header,
    method_frame,
)
from warren.amqp import methods as m

PUBLISH = m.BasicPublish(exchange="amq.fanout").encode()


def expect_frame_error(client: AmqpClient) -> None:
    close = client.expect_close(501)
    assert close.reply_text.startswith("FRAME_ERROR - ")
    assert (close.class_id, close.method_id) == (0, 0), "no method is to blame"


def test_bad_frame_type_is_501(client: AmqpClient) -> None:
    client.send_frame(9, 0, b"")
    expect_frame_error(client)


def test_wrong_end_octet_is_501(client: AmqpClient) -> None:
    client.send_raw(method_frame(1, m.ChannelOpen())[:-1] + b"\xcd")
    expect_frame_error(client)


def test_frame_over_frame_max_is_501(connect: Connect) -> None:
    client = connect(frame_max=4096)
    client.send_raw(FRAME_HEAD.pack(METHOD, 1, 4097))
    expect_frame_error(client)


def test_frame_of_just_frame_max_is_taken(connect: Connect) -> None:
    client = connect(frame_max=4096)
    channel = client.channel()
    queue = channel.declare().queue
    body = b"x" * (4096 - FRAME_OVERHEAD_BYTES)
    channel.publish("", queue, body)
    assert channel.get(queue).body == body


@pytest.mark.parametrize("number", [1, 2], ids=["an open channel", "a channel that is not open"])
@pytest.mark.usefixtures("channel")
def test_heartbeat_on_another_channel_than_0_is_505(client: AmqpClient, number: int) -> None:
    client.send_frame(HEARTBEAT, number, b"")
    assert client.expect_close(505).reply_text.startswith("UNEXPECTED_FRAME - ")


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([(HEADER, encode_header(1))], id="header without a publish"),
        pytest.param([(BODY, b"x")], id="body without a publish"),
        pytest.param([(METHOD, PUBLISH), (BODY, b"x")], id="body without its header"),
        pytest.param([(METHOD, PUBLISH), (METHOD, PUBLISH)], id="method instead of a header"),
        pytest.param(
            [(METHOD, PUBLISH), (HEADER, encode_header(1)), (HEADER, encode_header(1))],
            id="header instead of a body",
        ),
        pytest.param(
            [(METHOD, PUBLISH), (HEADER, encode_header(1)), (METHOD, PUBLISH)], id="method instead of a body"
        ),
        pytest.param([(METHOD, PUBLISH), (HEADER, encode_header(0)), (BODY, b"x")], id="body after the last"),
        pytest.param(
            [(METHOD, PUBLISH), (HEADER, encode_header(1, class_id=50))], id="header of another class"
        ),
    ],
)
@pytest.mark.usefixtures("channel")
def test_frame_that_is_not_due_is_505(client: AmqpClient, frames: list[tuple[int, bytes]]) -> None:
    for kind, payload in frames:
        client.send_frame(kind, 1, payload)
    assert client.expect_close(505).reply_text.startswith("UNEXPECTED_FRAME - ")


def test_contents_of_two_channels_may_interleave(
    client: AmqpClient, channel: AmqpChannel, second: AmqpChannel
) -> None:
    queue = channel.declare().queue
    for number in (1, 2):
        client.send_method(number, m.BasicPublish(routing_key=queue))
    for number in (1, 2):
        client.send_frame(HEADER, number, encode_header(2))
    for _half in range(2):
        for number in (1, 2):
            client.send_frame(BODY, number, b"%d" % number)
    second.close()
    assert {channel.get(queue).body for _ in range(2)} == {b"11", b"22"}


def test_frames_may_arrive_byte_by_byte(client: AmqpClient, channel: AmqpChannel) -> None:
    for byte in method_frame(1, m.QueueDeclare(exclusive=True, arguments={})):
        client.send_raw(bytes((byte,)))
    channel.expect(m.QueueDeclareOk)


def fail(channel: AmqpChannel) -> m.ChannelClose:
    """Has the broker close the channel, and does not answer yet."""
    channel.send(m.BasicAck(delivery_tag=99))
    return channel.expect(m.ChannelClose)


def test_after_channel_close_the_broker_discards_what_comes_on_that_channel(
    channel: AmqpChannel, second: AmqpChannel
) -> None:
    queue = second.declare().queue
    fail(channel)
    channel.publish("", queue, b"lost" * 100_000)
    channel.send(m.QueueDeclare(arguments={}))
    channel.send(m.BasicAck(delivery_tag=98))
    channel.send(m.ChannelCloseOk())
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    assert second.drain(queue) == []


@pytest.mark.parametrize("frames", [[HEADER, BODY], [BODY]], ids=["header and body", "body"])
@pytest.mark.usefixtures("unlike_rabbitmq")
def test_rest_of_a_content_that_comes_after_channel_close_is_discarded(
    client: AmqpClient, channel: AmqpChannel, frames: list[int]
) -> None:
    """RabbitMQ still counts what is due on the channel."""
    fail(channel)
    for kind in frames:
        client.send_frame(kind, channel.number, encode_header(4) if kind == HEADER else b"rest")
    channel.send(m.ChannelCloseOk())
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_contents_on_the_way_when_a_publish_closes_the_channel_are_discarded(channel: AmqpChannel) -> None:
    channel.publish("missing", "", b"x" * 300_000)
    channel.publish("missing", "", b"y" * 300_000)
    channel.expect_close(404)
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_channel_close_that_crosses_the_brokers_is_answered(channel: AmqpChannel) -> None:
    fail(channel)
    channel.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)
    channel.send(m.ChannelCloseOk())
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


def test_closed_channel_can_be_opened_again_and_starts_anew(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.publish("", queue)
    channel.publish("", queue)
    assert channel.get(queue).method.delivery_tag == 1
    channel.close()
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)
    assert channel.get(queue).method.delivery_tag == 1


def test_after_connection_close_the_broker_discards_all_but_close_and_close_ok(client: AmqpClient) -> None:
    client.send_method(1, m.QueueDeclare(arguments={}))
    client.expect(0, m.ConnectionClose)
    client.send_method(1, m.ChannelOpen())
    client.send_frame(BODY, 1, b"x")
    client.send_method(0, m.ConnectionCloseOk())
    client.expect_end()


def test_connection_close_that_crosses_the_brokers_is_answered(client: AmqpClient) -> None:
    client.send_method(1, m.QueueDeclare(arguments={}))
    client.expect(0, m.ConnectionClose)
    client.send_method(0, m.ConnectionClose(reply_code=200))
    client.expect(0, m.ConnectionCloseOk)
    client.abort()
