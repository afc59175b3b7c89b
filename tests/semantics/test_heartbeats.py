"""Heartbeats: the broker's own, and what it does without the client's."""

from __future__ import annotations

import time

from tests.semantics.conftest import Connect
from tests.support.amqp import HEARTBEAT, AmqpClient, Frame
from warren.amqp import methods as m

BEAT = Frame(HEARTBEAT, 0, b"")


def test_broker_sends_heartbeats_and_closes_after_two_intervals_of_silence(connect: Connect) -> None:
    client = connect(heartbeat=1)
    assert client.read_any_frame() == BEAT
    client.expect_end()


def test_any_traffic_counts_as_a_heartbeat(connect: Connect) -> None:
    client = connect(heartbeat=1)
    channel = client.channel()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert client.read_any_frame() == BEAT
        channel.publish("amq.direct", "nowhere")
    channel.declare()


def test_heartbeat_keeps_a_silent_connection_open(connect: Connect) -> None:
    client = connect(heartbeat=1)
    channel = client.channel()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert client.read_any_frame() == BEAT
        client.send_frame(HEARTBEAT, 0, b"")
    channel.declare()


def test_heartbeat_is_taken_though_heartbeats_are_off(client: AmqpClient) -> None:
    client.send_frame(HEARTBEAT, 0, b"")
    client.channel().call(m.ChannelFlow(active=True), m.ChannelFlowOk)
