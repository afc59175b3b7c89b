"""The end of a connection: each side says its last word, and the other hears it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.amqp import AmqpClient
from tests.support.frames import PROTOCOL_HEADER, encode_frame, method_frame, published
from tests.support.process import Address
from warren.amqp import methods as m

pytestmark = pytest.mark.usefixtures("unlike_rabbitmq")  # which says its last word, and then may reset
STILL_SAID = published("amq.fanout", "", b"x" * 60_000) * 100  # more than the kernel takes by itself


def say(client: AmqpClient, words: bytes) -> None:
    """All of it, though the other side may not listen any more."""
    client.socket.settimeout(client.wait_seconds_max)
    client.socket.sendall(words)


def expect_orderly_end(client: AmqpClient) -> None:
    """The broker ends its side, and does not reset the socket."""
    client.socket.shutdown(socket.SHUT_WR)
    assert client.socket.recv(4096) == b""
    client.abort()


@pytest.fixture
def opened(broker: Address) -> Iterator[AmqpClient]:
    client = AmqpClient.connect(broker)
    client.channel()
    yield client
    client.abort()


def test_close_ok_arrives_though_the_client_goes_on_publishing(opened: AmqpClient) -> None:
    say(opened, method_frame(0, m.ConnectionClose(reply_code=200)) + STILL_SAID)
    opened.expect(0, m.ConnectionCloseOk)
    expect_orderly_end(opened)


def test_reason_of_a_close_arrives_though_the_client_goes_on_publishing(opened: AmqpClient) -> None:
    say(opened, method_frame(1, m.ChannelOpen()) + STILL_SAID)
    assert opened.expect(0, m.ConnectionClose).reply_code == 504
    say(opened, method_frame(0, m.ConnectionCloseOk()) + STILL_SAID)
    expect_orderly_end(opened)


def test_client_of_another_protocol_learns_what_is_spoken_here_though_it_goes_on(raw: AmqpClient) -> None:
    say(raw, b"AMQP\x00\x01\x00\x00" + encode_frame(1, 0, b"x" * 60_000) * 100)
    assert raw.read_bytes(8) == PROTOCOL_HEADER
    expect_orderly_end(raw)
