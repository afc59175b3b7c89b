"""At the limits: all channels, thousands of connections, the largest messages, the deepest tables."""

from __future__ import annotations

import hashlib
import random
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.stress.conftest import Connect, message_count
from tests.support.channel import AmqpChannel
from tests.support.frames import (
    BODY,
    CLASS_BASIC,
    CONTENT_HEAD,
    HEADER,
    METHOD,
    encode_frame,
    encode_header,
    handshake,
    method_frame,
    split_frames,
)
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import DEPTH_MAX, LENGTH, Table

MEBIBYTE = 1024 * 1024
CHANNEL_MAX = 2047
CONNECTIONS = 5000
CONNECTION_BYTES_MAX = 40 * 1024
ANNOUNCED_BYTES_MAX = 64 * MEBIBYTE


def test_all_channels_of_a_connection_can_be_used_at_once(connect: Connect) -> None:
    client = connect()
    channels = [AmqpChannel(client, number) for number in range(1, CHANNEL_MAX + 1)]
    for channel in channels:
        channel.send(m.ChannelOpen())
        channel.send(m.QueueDeclare(queue=f"q{channel.number}", exclusive=True, arguments={}))
        channel.send(m.BasicConsume(queue=f"q{channel.number}", arguments={}))
    for channel in channels:
        channel.publish("", f"q{CHANNEL_MAX + 1 - channel.number}", b"from %d" % channel.number)
    for channel in channels:
        channel.expect(m.ChannelOpenOk)
        channel.expect(m.QueueDeclareOk)
        channel.expect(m.BasicConsumeOk)
        delivery = channel.expect_delivery()
        assert delivery.body == b"from %d" % (CHANNEL_MAX + 1 - channel.number)
        channel.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
    client.send_method(CHANNEL_MAX + 1, m.ChannelOpen())
    client.expect_close(530)


def test_messages_that_are_announced_and_do_not_come_take_no_memory(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    """A body's memory is asked for at once, but is only used as it arrives."""
    client = connect()
    before = process.resident_bytes()
    for number in range(1, CHANNEL_MAX + 1):
        publish = m.BasicPublish(routing_key="nowhere").encode()
        client.send_method(number, m.ChannelOpen())
        client.send_frame(METHOD, number, publish)
        client.send_frame(HEADER, number, encode_header(128 * MEBIBYTE))
        client.send_frame(BODY, number, b"x")
        client.expect(number, m.ChannelOpenOk)
    client.send_method(0, m.ConnectionUpdateSecret(new_secret=b"", reason=""))
    client.expect(0, m.ConnectionUpdateSecretOk)
    assert process.resident_bytes() - before < ANNOUNCED_BYTES_MAX
    channel.declare()


def test_message_of_100_mib_arrives_intact(connect: Connect, channel: AmqpChannel) -> None:
    body = random.Random(1).randbytes(MEBIBYTE) * 100
    queue = channel.declare().queue
    channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    channel.publish("", queue, body)
    channel.expect(m.BasicAck)
    channel.send(m.BasicGet(queue=queue))
    channel.expect(m.BasicGetOk)
    assert channel.client.read_frame(1).kind == HEADER
    digest, size = hashlib.sha256(), 0
    while size < len(body):
        frame = channel.client.read_frame(1)
        assert frame.kind == BODY
        digest.update(frame.payload)
        size += len(frame.payload)
    assert digest.digest() == hashlib.sha256(body).digest()


def nested(depth: int) -> Table:
    table: Table = {}
    for _ in range(depth - 1):
        table = {"": table}
    return table


def test_headers_as_deep_as_allowed_travel(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    headers: Table = {"": nested(DEPTH_MAX)}
    channel.publish("", queue, b"", BasicProperties(headers=headers))
    assert channel.get(queue).properties.headers == headers


def encode_nested(depth: int) -> bytes:
    """Tables in tables, as deep as no encoder that calls itself could go."""
    content = b""
    for _ in range(depth - 1):
        content = b"\0F" + LENGTH.pack(len(content)) + content
    return LENGTH.pack(len(content)) + content


def deep_headers(depth: int) -> bytes:
    flags = BasicProperties(headers={}).encode()[:2]
    header = CONTENT_HEAD.pack(CLASS_BASIC, 0, 0) + flags + encode_nested(depth)
    return method_frame(1, m.BasicPublish(routing_key="x")) + encode_frame(HEADER, 1, header)


def deep_arguments(depth: int) -> bytes:
    declare = m.QueueDeclare(queue="x", arguments={}).encode()
    return encode_frame(METHOD, 1, declare[: -LENGTH.size] + encode_nested(depth))


@pytest.mark.parametrize("depth", [DEPTH_MAX + 2, 20_000])
@pytest.mark.parametrize("words", [deep_headers, deep_arguments])
def test_table_nested_too_deep_is_502_and_others_do_not_notice(
    connect: Connect, channel: AmqpChannel, words: Callable[[int], bytes], depth: int
) -> None:
    deep = connect()
    deep.channel()
    deep.send_raw(words(depth))
    deep.expect_close(502)
    channel.declare()


@pytest.fixture
def idle_sockets() -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    yield sockets
    for sock in sockets:
        sock.close()


def test_idle_connections_are_cheap_and_do_not_slow_another(
    many_files: None, process: BrokerProcess, channel: AmqpChannel, idle_sockets: list[socket.socket]
) -> None:
    before = process.resident_bytes()
    words = b"".join([*handshake(heartbeat=60), method_frame(1, m.ChannelOpen())])
    for _ in range(CONNECTIONS):
        idle_sockets.append(socket.create_connection((process.address.host, process.address.port), 10))
        idle_sockets[-1].sendall(words)
    for sock in idle_sockets:
        wait_for_channel(sock)
    each = (process.resident_bytes() - before) / CONNECTIONS
    assert each < CONNECTION_BYTES_MAX, f"{each / 1024:.1f} KiB for each connection"

    queue = channel.declare("busy", exclusive=False).queue
    for number in range(1000):
        channel.publish("", queue, b"%d" % number)
    assert channel.drain(queue) == [b"%d" % number for number in range(1000)]
    assert message_count(channel, queue) == 0


def wait_for_channel(sock: socket.socket) -> None:
    received = b""
    opened = method_frame(1, m.ChannelOpenOk())
    while not received.endswith(opened):
        data = sock.recv(4096)
        assert data, [str(frame) for frame in split_frames(received)]
        received += data
