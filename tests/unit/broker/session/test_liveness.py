"""Heartbeats and deadlines; time passes in the steps in which the server looks."""

from __future__ import annotations

from tests.support.amqp import HEARTBEAT, encode_frame
from tests.support.fakes import FakeClient, FakeWorld, make_node
from warren.amqp import methods as m
from warren.broker.session.liveness import CLOSE_SECONDS_MAX, HANDSHAKE_SECONDS_MAX
from warren.broker.session.state import State

INTERVAL = 10
STEP_SECONDS = 0.5
A_HEARTBEAT = encode_frame(HEARTBEAT, 0, b"")


def fresh() -> tuple[FakeWorld, FakeClient]:
    world = FakeWorld()
    return world, FakeClient(make_node(world))


def look(client: FakeClient) -> None:
    connection = client.connection
    if connection.state is not State.CLOSED:
        connection.liveness.check(connection, client.node.world.now())
        client.node.end_turn()


def wait(world: FakeWorld, client: FakeClient, seconds: float) -> None:
    for _ in range(int(seconds / STEP_SECONDS)):
        world.advance(STEP_SECONDS)
        look(client)


def heartbeats(client: FakeClient) -> int:
    return sum(frame.kind == HEARTBEAT for frame in client.frames())


def test_heartbeats_are_sent_at_half_the_interval() -> None:
    world, client = fresh()
    client.open(heartbeat=INTERVAL)
    wait(world, client, INTERVAL / 2 - STEP_SECONDS)
    assert heartbeats(client) == 0
    wait(world, client, STEP_SECONDS)
    assert heartbeats(client) == 1
    client.connection.feed(A_HEARTBEAT)
    wait(world, client, INTERVAL)
    assert heartbeats(client) == 2


def test_other_traffic_stands_for_heartbeats() -> None:
    world, client = fresh()
    client.open(heartbeat=INTERVAL)
    for _ in range(10):
        wait(world, client, INTERVAL / 2 - STEP_SECONDS)
        client.send(m.BasicQos())
    assert heartbeats(client) == 0
    assert client.connection.state is State.OPEN


def test_client_that_misses_two_intervals_is_dropped() -> None:
    world, client = fresh()
    client.open(heartbeat=INTERVAL)
    wait(world, client, 2 * INTERVAL)
    assert not client.link.is_closed
    wait(world, client, 2 * STEP_SECONDS)
    assert client.link.is_closed
    assert client.connection.state is State.CLOSED
    assert client.connection.close_reason == "missed heartbeats from client"


def test_client_that_sends_heartbeats_stays() -> None:
    world, client = fresh()
    client.open(heartbeat=INTERVAL)
    for _ in range(10):
        client.connection.feed(A_HEARTBEAT)
        wait(world, client, INTERVAL)
    assert not client.link.is_closed


def test_heartbeat_0_turns_them_off() -> None:
    world, client = fresh()
    client.open(heartbeat=0)
    world.advance(1_000_000)
    look(client)
    assert heartbeats(client) == 0
    assert not client.link.is_closed


def test_client_that_is_not_read_is_not_held_to_its_heartbeats() -> None:
    world, client = fresh()
    client.open(heartbeat=INTERVAL)
    client.publish("amq.fanout", "", b"x")
    client.node.raise_alarm("memory")
    wait(world, client, 5 * INTERVAL)
    assert not client.link.is_closed
    client.node.clear_alarm("memory")
    wait(world, client, 2 * INTERVAL - STEP_SECONDS)
    assert not client.link.is_closed
    wait(world, client, INTERVAL)
    assert client.link.is_closed


def test_handshake_that_takes_too_long_is_given_up() -> None:
    world, client = fresh()
    client.greet()
    wait(world, client, HANDSHAKE_SECONDS_MAX - STEP_SECONDS)
    client.authenticate()
    assert not client.link.is_closed
    wait(world, client, 2 * STEP_SECONDS)
    assert client.link.is_closed
    assert client.connection.close_reason == "handshake timed out"


def test_client_that_says_nothing_at_all_is_given_up() -> None:
    world, client = fresh()
    wait(world, client, HANDSHAKE_SECONDS_MAX + STEP_SECONDS)
    assert client.link.is_closed
    assert not client.node.connections


def test_close_that_is_not_answered_in_time_ends_the_connection() -> None:
    world, client = fresh()
    client.open()
    client.connection.force_close("test")
    wait(world, client, CLOSE_SECONDS_MAX)
    assert not client.link.is_closed
    wait(world, client, 2 * STEP_SECONDS)
    assert client.link.is_closed
    assert client.connection.close_reason == "CONNECTION_FORCED - test"
