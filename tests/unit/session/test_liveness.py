"""Heartbeats and deadlines. Time passes in steps of the server's checks."""

from __future__ import annotations

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import HEARTBEAT, HEARTBEAT_FRAME
from warren.amqp import methods as m
from warren.server.app import CHECK_SECONDS
from warren.session.liveness import CLOSE_SECONDS_MAX, HANDSHAKE_SECONDS_MAX
from warren.session.state import State

INTERVAL = 10


def fresh() -> tuple[FakeBroker, FakeClient]:
    broker = FakeBroker()
    return broker, broker.connect()


def heartbeats(client: FakeClient) -> int:
    return sum(frame.kind == HEARTBEAT for frame in client.frames())


def test_heartbeats_are_sent_at_half_the_interval() -> None:
    broker, client = fresh()
    client.open(heartbeat=INTERVAL)
    broker.pass_time(INTERVAL / 2 - CHECK_SECONDS)
    assert heartbeats(client) == 0
    broker.pass_time(CHECK_SECONDS)
    assert heartbeats(client) == 1
    client.connection.feed(HEARTBEAT_FRAME)
    broker.pass_time(INTERVAL)
    assert heartbeats(client) == 2


def test_other_traffic_stands_for_heartbeats() -> None:
    broker, client = fresh()
    client.open(heartbeat=INTERVAL)
    for _ in range(10):
        broker.pass_time(INTERVAL / 2 - CHECK_SECONDS)
        client.send(m.BasicQos())
    assert heartbeats(client) == 0
    assert client.connection.state is State.OPEN


def test_client_that_misses_three_intervals_is_reset() -> None:
    broker, client = fresh()
    client.open(heartbeat=INTERVAL)
    broker.pass_time(3 * INTERVAL)
    assert not client.link.is_closed
    broker.pass_time(2 * CHECK_SECONDS)
    assert client.link.was_reset
    assert client.connection.state is State.CLOSED
    assert client.connection.close_reason == "missed heartbeats from client"


def test_client_that_sends_heartbeats_stays() -> None:
    broker, client = fresh()
    client.open(heartbeat=INTERVAL)
    for _ in range(10):
        client.connection.feed(HEARTBEAT_FRAME)
        broker.pass_time(INTERVAL)
    assert not client.link.is_closed


def test_heartbeat_0_turns_them_off() -> None:
    broker, client = fresh()
    client.open(heartbeat=0)
    broker.advance(1_000_000)
    broker.pass_time(CHECK_SECONDS)
    assert heartbeats(client) == 0
    assert not client.link.is_closed


def test_client_that_is_not_read_is_not_held_to_its_heartbeats() -> None:
    broker, client = fresh()
    client.open(heartbeat=INTERVAL)
    client.node.raise_alarm("memory")
    client.publish("amq.fanout", "", b"x")
    broker.pass_time(5 * INTERVAL)
    assert not client.link.is_closed
    client.node.clear_alarm("memory")
    broker.pass_time(3 * INTERVAL - CHECK_SECONDS)
    assert not client.link.is_closed
    broker.pass_time(INTERVAL)
    assert client.link.is_closed


def test_handshake_that_takes_too_long_is_given_up() -> None:
    broker, client = fresh()
    client.greet()
    broker.pass_time(HANDSHAKE_SECONDS_MAX - CHECK_SECONDS)
    client.authenticate()
    assert not client.link.is_closed
    broker.pass_time(2 * CHECK_SECONDS)
    assert client.link.is_closed
    assert client.connection.close_reason == "handshake timed out"


def test_client_that_says_nothing_at_all_is_given_up() -> None:
    broker, client = fresh()
    broker.pass_time(HANDSHAKE_SECONDS_MAX + CHECK_SECONDS)
    assert client.link.is_closed
    assert not client.node.clients


def test_close_that_is_not_answered_in_time_ends_the_connection() -> None:
    broker, client = fresh()
    client.open()
    client.connection.force_close("test")
    broker.pass_time(CLOSE_SECONDS_MAX)
    assert not client.link.is_closed
    broker.pass_time(2 * CHECK_SECONDS)
    assert client.link.was_reset
    assert client.connection.close_reason == "CONNECTION_FORCED - test"
