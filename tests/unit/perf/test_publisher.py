from __future__ import annotations

import math

import pytest

from tests.support.frames import method_frame
from tests.unit.perf.peer import Peer
from tests.unit.perf.wire import ack, nack
from warren.amqp.methods import (
    BasicPublish,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionUnblocked,
)
from warren.perf.frames import publish_frames
from warren.perf.loop import Loop
from warren.perf.publisher import LoadPublisher, Pace

PUBLISH = BasicPublish(routing_key="q")
MESSAGE = publish_frames(PUBLISH, body_bytes=4, persistent=False, frame_max=131072).data


def publisher(
    loop: Loop, peer: Peer, *, window: int = 0, rate: float = 0, messages: int = 10
) -> LoadPublisher:
    """A publisher that is ready, and sends at most `messages` at once."""
    pace = Pace(window=window, rate=rate, chunk_bytes=messages * len(MESSAGE))
    made = LoadPublisher(loop, peer.uri, PUBLISH, pace, body_bytes=4, persistent=False)
    peer.log_in()
    if window:
        peer.expect(ConfirmSelect)
        peer.send(method_frame(1, ConfirmSelectOk()))
    return made


def test_without_limits_a_chunk_goes_each_time(loop: Loop, peer: Peer) -> None:
    tested = publisher(loop, peer)
    assert tested.pump(0) == 0
    assert tested.pump(0) == 0
    assert tested.sent == 20
    assert peer.read(20 * len(MESSAGE)) == 20 * MESSAGE


def test_a_message_larger_than_a_chunk_still_goes(loop: Loop, peer: Peer) -> None:
    tested = publisher(loop, peer, messages=0)
    tested.pump(0)
    assert peer.read(len(MESSAGE)) == MESSAGE


def test_a_full_window_waits_for_confirms(loop: Loop, peer: Peer) -> None:
    tested = publisher(loop, peer, window=3)
    assert tested.pump(0) == math.inf
    assert tested.pump(0) == math.inf
    assert tested.sent == 3
    peer.send(ack(1) + nack(3))
    tested.pump(0)
    assert tested.sent == 5


def test_a_rate_allows_what_is_due(loop: Loop, peer: Peer) -> None:
    tested = publisher(loop, peer, rate=2)
    tested.started_s = 100.0
    assert tested.pump(99) == pytest.approx(1.5)
    assert tested.pump(100) == pytest.approx(0.5)
    assert tested.sent == 0
    assert tested.pump(101.2) == pytest.approx(0.3)
    assert tested.sent == 2


def test_a_rate_that_fell_behind_catches_up_chunk_by_chunk(loop: Loop, peer: Peer) -> None:
    tested = publisher(loop, peer, rate=1)
    assert (tested.pump(15), tested.sent) == (0, 10)
    assert (tested.pump(15), tested.sent) == (1, 15)


def test_a_blocked_publisher_sends_nothing_until_unblocked(loop: Loop, peer: Peer) -> None:
    tested = publisher(loop, peer)
    peer.send(method_frame(0, ConnectionBlocked(reason="memory")))
    assert tested.pump(0) == math.inf
    assert tested.sent == 0
    peer.send(method_frame(0, ConnectionUnblocked()))
    tested.pump(0)
    assert tested.sent == 10
