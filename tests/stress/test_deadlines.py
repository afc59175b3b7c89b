"""Who does not go on, or does not answer, is dropped in time. The clock is the test's."""

from __future__ import annotations

import pytest

from tests.support.fake_world import FakeBroker, FakePeer
from tests.support.frames import handshake, method_frame, split_frames
from warren.amqp import methods as m
from warren.broker.session.liveness import CLOSE_SECONDS_MAX, HANDSHAKE_SECONDS_MAX, INTERVALS_MISSED_MAX
from warren.broker.session.state import State

SECOND = 1.0


def pass_time(broker: FakeBroker, seconds: float) -> None:
    """As the server does it, with a check every now and then."""
    end = broker.world.now() + seconds
    while broker.world.now() < end:
        broker.world.advance(min(SECOND / 2, end - broker.world.now()))
        broker.check_liveness()


def opened(broker: FakeBroker, heartbeat: int = 0) -> FakePeer:
    peer = broker.connect()
    for step in handshake(heartbeat):
        peer.feed(step)
    assert peer.connection.state is State.OPEN
    return peer


@pytest.mark.parametrize("said", range(len(b"".join(handshake()))))
def test_client_that_never_finishes_the_handshake_is_dropped(said: int) -> None:
    broker = FakeBroker()
    peer = broker.connect()
    peer.feed(b"".join(handshake())[:said])
    pass_time(broker, HANDSHAKE_SECONDS_MAX)
    assert not peer.link.closed
    pass_time(broker, SECOND)
    assert peer.link.closed
    assert not broker.node.connections


def test_client_that_says_the_handshake_too_slowly_is_dropped() -> None:
    """Each byte is a sign of life, but does not buy more time."""
    broker = FakeBroker()
    peer = broker.connect()
    for octet in b"".join(handshake()):
        peer.feed(bytes((octet,)))
        pass_time(broker, SECOND)
        if peer.link.closed:
            break
    assert peer.link.closed
    assert not broker.node.connections


def test_client_that_never_answers_connection_close_is_dropped() -> None:
    broker = FakeBroker()
    peer = opened(broker)
    peer.feed(method_frame(7, m.QueueDeclare(queue="x", arguments={})))
    pass_time(broker, CLOSE_SECONDS_MAX)
    assert not peer.link.closed
    peer.feed(method_frame(7, m.QueueDeclare(queue="x", arguments={})))
    pass_time(broker, SECOND)
    assert peer.link.closed
    assert not broker.node.connections


def test_client_that_never_answers_channel_close_stays_connected() -> None:
    broker = FakeBroker()
    peer = opened(broker)
    peer.feed(method_frame(1, m.ChannelOpen()) + method_frame(1, m.BasicGet(queue="missing")))
    pass_time(broker, 10 * CLOSE_SECONDS_MAX)
    peer.link.take()
    peer.feed(method_frame(2, m.ChannelOpen()))
    assert [frame.is_a(m.ChannelOpenOk) for frame in split_frames(peer.link.take())] == [True]


def test_silent_client_is_dropped_after_two_missed_heartbeats_and_never_without_them() -> None:
    broker = FakeBroker()
    silent, without = opened(broker, heartbeat=5), opened(broker)
    pass_time(broker, 5 * INTERVALS_MISSED_MAX)
    assert not silent.link.closed
    pass_time(broker, SECOND)
    assert silent.link.closed
    pass_time(broker, 1000)
    assert broker.node.connections == {without.connection}
