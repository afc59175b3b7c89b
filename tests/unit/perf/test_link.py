from __future__ import annotations

import pytest

from tests.support.frames import HEARTBEAT_FRAME, method_frame
from tests.unit.perf.peer import WAIT_SECONDS_MAX, Peer
from warren.amqp.methods import (
    BasicCancel,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionStart,
    ConnectionUnblocked,
)
from warren.client.dialogue import Dialogue, log_in, log_out
from warren.client.errors import ClientError, ClosedByBrokerError
from warren.perf.interrupt import Interrupt
from warren.perf.link import LoadLink, finish, part
from warren.perf.loop import Loop


def logging_in(link: LoadLink, peer: Peer, agreed: list[int] | None = None) -> Dialogue[None]:
    frame_max = (yield from log_in(peer.uri)).frame_max
    if agreed is not None:
        agreed.append(frame_max)


@pytest.fixture
def link(loop: Loop, peer: Peer) -> LoadLink:
    """A link that is logged in."""
    made = LoadLink(loop, peer.uri)
    made.start(logging_in(made, peer))
    peer.log_in()
    return made


@pytest.mark.parametrize(("offered", "agreed"), [(0, 131072), (4096, 4096), (1 << 20, 131072)])
def test_login_agrees_on_no_heartbeats_and_the_smaller_frame(
    loop: Loop, peer: Peer, offered: int, agreed: int
) -> None:
    link = LoadLink(loop, peer.uri)
    seen: list[int] = []
    link.start(logging_in(link, peer, seen))
    tuned = peer.log_in(frame_max=offered)
    assert (tuned.heartbeat, tuned.frame_max, seen) == (0, agreed, [agreed])
    assert not link.talking


def test_a_broker_without_plain_is_an_error(loop: Loop, peer: Peer) -> None:
    link = LoadLink(loop, peer.uri)
    link.start(logging_in(link, peer))
    peer.accept()
    peer.send(method_frame(0, ConnectionStart(server_properties={}, mechanisms=b"EXTERNAL")))
    with pytest.raises(ClientError, match="PLAIN"):
        finish(loop, [link])


def test_close_of_the_connection_is_answered_and_says_why(link: LoadLink, peer: Peer) -> None:
    peer.send(method_frame(0, ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED - bye")))
    assert str(link.error) == "the broker closed the connection: 320 CONNECTION_FORCED - bye"
    peer.expect(ConnectionCloseOk)


def test_close_of_the_channel_is_answered_and_says_why(link: LoadLink, peer: Peer) -> None:
    peer.send(method_frame(1, ChannelClose(reply_code=404, reply_text="NOT_FOUND - no")))
    assert isinstance(link.error, ClosedByBrokerError)
    assert link.error.code == 404
    peer.expect(ChannelCloseOk)


def test_a_dropped_connection_is_an_error(loop: Loop, link: LoadLink, peer: Peer) -> None:
    peer.socket.close()
    loop.turn(WAIT_SECONDS_MAX)
    assert str(link.error) == "the broker dropped the connection"
    assert loop.errors == [link.error]


def test_a_cancelled_consumer_is_an_error(link: LoadLink, peer: Peer) -> None:
    peer.send(method_frame(1, BasicCancel(consumer_tag="c", no_wait=True)))
    assert "deleted its queue" in str(link.error)


def test_a_consumer_cancelled_while_parting_is_no_error(loop: Loop, link: LoadLink, peer: Peer) -> None:
    link.start(log_out())
    peer.expect(ConnectionClose)
    peer.send(
        method_frame(1, BasicCancel(consumer_tag="c", no_wait=True)) + method_frame(0, ConnectionCloseOk())
    )
    finish(loop, [link])


def test_after_the_farewell_a_link_is_closed(loop: Loop, link: LoadLink, peer: Peer) -> None:
    link.start(log_out())
    peer.expect(ConnectionClose)
    peer.send(method_frame(0, ConnectionCloseOk()))
    assert peer.socket.recv(1) == b""
    assert link.error is None


def test_an_interrupted_parting_does_not_wait(loop: Loop, link: LoadLink, peer: Peer) -> None:
    interrupt = Interrupt()
    interrupt.requested = True
    part(loop, [link], interrupt)
    peer.expect(ConnectionClose)
    assert peer.socket.recv(1) == b""


def test_a_reply_nobody_asked_for_is_an_error(link: LoadLink, peer: Peer) -> None:
    peer.send(method_frame(1, BasicQosOk()))
    assert "basic.qos-ok" in str(link.error)


def test_heartbeats_are_ignored(link: LoadLink, peer: Peer) -> None:
    peer.send(HEARTBEAT_FRAME)
    assert link.error is None


def test_blocked_holds_and_unblocked_releases(link: LoadLink, peer: Peer) -> None:
    peer.send(method_frame(0, ConnectionBlocked(reason="memory")))
    peer.send(method_frame(0, ConnectionBlocked(reason="disk too")))
    assert (link.held, link.held_count) == (True, 1)
    peer.send(method_frame(0, ConnectionUnblocked()))
    assert (link.held, link.held_count) == (False, 1)


def test_flow_is_answered_and_holds(link: LoadLink, peer: Peer) -> None:
    peer.send(method_frame(1, ChannelFlow(active=False)))
    assert peer.expect(ChannelFlowOk).active is False
    assert link.held


def test_what_the_socket_does_not_take_is_sent_later_and_in_order(
    loop: Loop, link: LoadLink, peer: Peer
) -> None:
    first, second = b"1" * (32 << 20), b"2" * 1000
    link.send(first)
    link.send(second)
    assert link.pending
    received = 0
    while link.pending:
        received += len(peer.socket.recv(1 << 20))
        loop.turn(0)
    rest = peer.read(len(first) + len(second) - received)
    assert rest.endswith(second)


def test_nobody_listening_is_an_error(loop: Loop, peer: Peer) -> None:
    peer.__exit__()
    with pytest.raises(ClientError, match=r"cannot connect to 127\.0\.0\.1:\d+: Connection refused"):
        LoadLink(loop, peer.uri)
