"""What nonsense has found once, each by itself."""

from __future__ import annotations

import pytest

from tests.support.fake_world import FakeBroker, FakePeer
from tests.support.frames import handshake, method_frame, publish_frames, split_frames
from warren.amqp import methods as m
from warren.broker.session.reply_to import PSEUDO_QUEUE

CHAIN = 3_000


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def peer(broker: FakeBroker) -> FakePeer:
    """A connection with channel 1."""
    peer = broker.connect()
    for step in (*handshake(), method_frame(1, m.ChannelOpen())):
        peer.feed(step)
    peer.link.take()
    return peer


def say(peer: FakePeer, *methods: m.Method) -> list[m.Method]:
    """What the broker answers on channel 1 and 0, but for content."""
    for method in methods:
        peer.feed(method_frame(1, method))
    return heard(peer)


def heard(peer: FakePeer) -> list[m.Method]:
    return [m.decode_method(frame.payload) for frame in split_frames(peer.link.take()) if frame.kind == 1]


@pytest.mark.parametrize("requeue", [False, True])
def test_commit_of_an_ack_that_recover_has_undone_fails_nobody(
    broker: FakeBroker, peer: FakePeer, *, requeue: bool
) -> None:
    say(peer, m.QueueDeclare(queue="q", arguments={}))
    peer.feed(b"".join(publish_frames(1, m.BasicPublish(routing_key="q"), b"x")))
    say(peer, m.TxSelect(), m.BasicConsume(queue="q", arguments={}))
    say(peer, m.BasicAck(delivery_tag=1), m.BasicRecover(requeue=requeue))
    assert say(peer, m.TxCommit()) == [m.TxCommitOk()]
    assert not broker.world.failures


def test_reply_consumer_that_is_refused_leaves_no_queue_behind(broker: FakeBroker, peer: FakePeer) -> None:
    wrong = {"x-priority": "high"}
    (close,) = say(peer, m.BasicConsume(queue=PSEUDO_QUEUE, no_ack=True, arguments={**wrong}))
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 406
    assert not broker.node.vhosts["/"].reply_queues


def test_nothing_but_the_close_follows_connection_close(peer: FakePeer) -> None:
    """Not even the confirm of what was published just before."""
    say(peer, m.ConfirmSelect(), m.QueueDeclare(queue="q", arguments={}))
    good = b"".join(publish_frames(1, m.BasicPublish(routing_key="q"), b"x"))
    peer.feed(good + method_frame(7, m.BasicQos()))
    confirm, close = heard(peer)
    assert confirm == m.BasicAck(delivery_tag=1)
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 504


def test_long_chain_of_auto_delete_exchanges_goes_with_its_last_binding(
    broker: FakeBroker, peer: FakePeer
) -> None:
    """Each has only the next one's binding, so that one after another is left without."""
    predeclared = len(broker.node.vhosts["/"].exchanges)
    say(peer, m.QueueDeclare(queue="end", arguments={}))
    for number in range(CHAIN):
        say(peer, m.ExchangeDeclare(exchange=f"e{number}", type="fanout", auto_delete=True, arguments={}))
    say(peer, m.QueueBind(queue="end", exchange="e0", arguments={}))
    for number in range(1, CHAIN):
        say(peer, m.ExchangeBind(source=f"e{number}", destination=f"e{number - 1}", arguments={}))
    assert say(peer, m.QueueDelete(queue="end")) == [m.QueueDeleteOk(message_count=0)]
    assert len(broker.node.vhosts["/"].exchanges) == predeclared
