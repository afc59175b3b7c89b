"""Clients that vanish at any moment leave nothing behind."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.stress.conftest import Connect, eventually, open_files
from tests.support.channel import AmqpChannel
from tests.support.frames import BODY, HEADER, encode_frame, encode_header, handshake, method_frame
from tests.support.process import BrokerProcess
from warren.amqp import methods as m

CONNECTIONS = 1000
GROWTH_BYTES_MAX = 24 * 1024 * 1024

PUBLISH = method_frame(1, m.BasicPublish(routing_key="kept"))
CONTENT = encode_frame(HEADER, 1, encode_header(100_000)) + encode_frame(BODY, 1, b"x" * 50_000)


def hang_up(sock: socket.socket, *, rudely: bool) -> None:
    """With a FIN as the kernel does for a process that ends, or with an RST."""
    if rudely:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize("rudely", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize(
    "last_words",
    [PUBLISH[:-1], PUBLISH[:3], PUBLISH + CONTENT[:20], PUBLISH + CONTENT, PUBLISH + CONTENT[:-1]],
    ids=["mid-frame", "mid-head", "mid-header", "mid-content", "mid-body-frame"],
)
def test_client_that_dies_in_the_middle_returns_its_messages_and_takes_its_queues_along(
    connect: Connect, channel: AmqpChannel, last_words: bytes, *, rudely: bool
) -> None:
    channel.declare("kept", exclusive=False)
    channel.publish("", "kept", b"unacked")
    dying = connect()
    dying_channel = dying.channel()
    own = dying_channel.declare().queue
    assert dying_channel.get("kept", no_ack=False).body == b"unacked"
    dying.send_raw(last_words)
    hang_up(dying.socket, rudely=rudely)

    channel.consume("kept")
    back = channel.expect_delivery()
    assert (back.body, back.method.redelivered) == (b"unacked", True)
    channel.send(m.QueueDeclare(queue=own, passive=True, arguments={}))
    channel.expect_close(404)


def test_thousand_connections_dropped_at_every_stage_leave_nothing_behind(
    process: BrokerProcess, connect: Connect, channel: AmqpChannel
) -> None:
    whole = b"".join([*handshake(), method_frame(1, m.ChannelOpen()), PUBLISH, CONTENT])
    ends = [round(len(whole[:-50_000]) * stage / 50) for stage in range(50)]
    at_rest = open_files(process)
    for number in range(CONNECTIONS // 10):
        drop_at(process, whole, ends[number % len(ends)], rudely=number % 2 == 0)
    eventually(lambda: open_files(process) <= at_rest, lambda: channel.declare(""), "the first are gone")
    files, memory = open_files(process), process.resident_bytes()
    for number in range(CONNECTIONS):
        drop_at(process, whole, ends[number % len(ends)], rudely=number % 3 == 0)
    eventually(lambda: open_files(process) == files, lambda: channel.declare("again"), "all are gone")
    assert process.resident_bytes() - memory < GROWTH_BYTES_MAX
    connect().channel().declare()


def drop_at(process: BrokerProcess, words: bytes, end: int, *, rudely: bool) -> None:
    sock = socket.create_connection((process.address.host, process.address.port))
    sock.sendall(words[:end])
    hang_up(sock, rudely=rudely)


def test_method_frame_cut_by_the_end_of_the_connection_has_no_effect(
    connect: Connect, channel: AmqpChannel
) -> None:
    dying = connect()
    dying.channel()
    declare = method_frame(1, m.QueueDeclare(queue="half", arguments={}))
    dying.send_raw(declare[:-1])
    dying.abort()
    channel.send(m.QueueDeclare(queue="half", passive=True, arguments={}))
    channel.expect_close(404)
