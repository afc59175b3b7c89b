"""Heartbeats: the broker's own, and what it does without the client's."""

from __future__ import annotations

import time

import pytest

from tests.semantics.conftest import Connect
from tests.support.amqp import AmqpClient
from tests.support.frames import HEARTBEAT, HEARTBEAT_FRAME, Frame, published
from warren.amqp import methods as m

pytestmark = pytest.mark.slow

BEAT = Frame(HEARTBEAT, 0, b"")
DROP_SECONDS_MAX = 4.0  # by then a client that agreed on one second and says nothing is gone


def read_to_the_end(client: AmqpClient) -> bytes:
    return b"".join(iter(lambda: client.socket.recv(4096), b""))


def test_broker_sends_heartbeats_and_resets_the_socket_after_three_intervals_of_silence(
    connect: Connect,
) -> None:
    client = connect(heartbeat=1)
    for _ in range(3):
        assert client.read_any_frame() == BEAT
    with pytest.raises(ConnectionResetError):
        read_to_the_end(client)
    client.abort()


@pytest.mark.parametrize(
    "words", [HEARTBEAT_FRAME, published("amq.direct", "nowhere")], ids=["heartbeats", "other traffic"]
)
def test_client_that_says_something_in_time_stays_connected(connect: Connect, words: bytes) -> None:
    client = connect(heartbeat=1)
    channel = client.channel()
    end = time.monotonic() + DROP_SECONDS_MAX
    while time.monotonic() < end:
        assert client.read_any_frame() == BEAT
        client.send_raw(words)
    channel.declare()


def test_heartbeat_is_taken_though_heartbeats_are_off(client: AmqpClient) -> None:
    client.send_raw(HEARTBEAT_FRAME)
    client.channel().call(m.ChannelFlow(active=True), m.ChannelFlowOk)
