"""Requests on a channel that are too much work for one turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeBroker
from tests.support.frames import published
from warren.amqp import methods as m
from warren.amqp.table import Table
from warren.broker.turns import WORK_A_TURN_MAX
from warren.session.chores import ACKED_AT_A_TIME_MAX

pytestmark = pytest.mark.slow

MANY = 60_000
ACK_ALL = m.BasicAck(delivery_tag=0, multiple=True)
RETRY: Table = {"x-retry-delay-min": 1_000}
DEAD_LETTERS: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@pytest.fixture
def client() -> FakeClient:
    return FakeBroker().connect().open()


def publish_many(client: FakeClient, queue: str, count: int) -> None:
    for _ in range(count // 10):
        client.feed(10 * published("", queue, b"x"))


def take_all(client: FakeClient, count: int = MANY, arguments: Table | None = None) -> None:
    """Have consumer `c` take `count` messages, unacknowledged."""
    client.declare("q", arguments=arguments)
    client.declare("dead")
    publish_many(client, "q", count)
    client.consume("q")
    client.run()
    client.frames()
    assert client.channel.deliveries.outstanding == count


def nack(client: FakeClient, *, requeue: bool) -> None:
    client.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=requeue))


def ways_to_settle() -> dict[str, tuple[Table | None, Callable[[FakeClient], None]]]:
    close = m.ChannelClose(reply_code=200, reply_text="", class_id=0, method_id=0)
    return {
        "ack": (None, lambda client: client.send(ACK_ALL)),
        "requeue": (None, lambda client: nack(client, requeue=True)),
        "retry": (RETRY, lambda client: nack(client, requeue=True)),
        "reject": (None, lambda client: nack(client, requeue=False)),
        "dead-letter": (DEAD_LETTERS, lambda client: nack(client, requeue=False)),
        "recover": (None, lambda client: client.send(m.BasicRecover(requeue=True))),
        "channel.close": (None, lambda client: client.send(close)),
        "lost": (None, lambda client: client.connection.lost()),
    }


@pytest.mark.parametrize("way", ways_to_settle())
def test_settling_very_many_takes_several_turns_none_of_which_does_too_much(
    client: FakeClient, way: str
) -> None:
    arguments, settle = ways_to_settle()[way]
    take_all(client, arguments=arguments)
    queue = client.vhost.queues["q"]
    client.connection.stop_delivering("test")
    before, turns = queue.unacked, 0
    settle(client)
    while queue.unacked:
        assert before - queue.unacked <= WORK_A_TURN_MAX + ACKED_AT_A_TIME_MAX
        before, turns = queue.unacked, turns + 1
        client.world.turn()
    client.run()
    assert turns > 1
    assert client.world.errors == []
    left = {"ack": 0, "reject": 0, "retry": 0, "dead-letter": 0}
    assert queue.message_count == left.get(way, MANY)
    assert client.vhost.queues["dead"].message_count == (MANY if way == "dead-letter" else 0)


def test_commit_of_very_much_takes_several_turns(client: FakeClient) -> None:
    take_all(client, 30_000)
    client.call(m.TxSelect(), m.TxSelectOk)
    publish_many(client, "dead", 30_000)
    client.send(ACK_ALL)
    queues = client.vhost.queues
    client.send(m.TxCommit())
    assert 0 < queues["dead"].message_count < 30_000
    assert client.methods() == [], "commit-ok comes when all of it is done"
    client.run()
    assert (queues["dead"].message_count, queues["q"].unacked) == (30_000, 0)
    assert client.methods() == [m.TxCommitOk()]


def test_acking_very_many_in_a_transaction_takes_several_turns(client: FakeClient) -> None:
    take_all(client, 2 * WORK_A_TURN_MAX)
    client.call(m.TxSelect(), m.TxSelectOk)
    client.send(ACK_ALL)
    settled = client.channel.transaction.settled  # type: ignore[union-attr]  # it is one
    assert 0 < len(settled) <= WORK_A_TURN_MAX
    for _ in range(1_000):
        client.send(ACK_ALL)  # there is nothing more to note
    client.send(m.TxCommit())
    client.run()
    assert (client.methods(), client.vhost.queues["q"].unacked) == ([m.TxCommitOk()], 0)


def test_acks_of_all_in_a_transaction_note_each_delivery_once(client: FakeClient) -> None:
    take_all(client, 1_000)
    client.call(m.TxSelect(), m.TxSelectOk)
    transaction = client.channel.transaction
    assert transaction is not None
    deliveries = client.channel.deliveries
    assert len(list(transaction.settle_up_to(500, None, deliveries))) == 500
    assert len(list(transaction.settle_up_to(1_000, False, deliveries))) == 500
    assert list(transaction.settle_up_to(1_000, None, deliveries)) == []
    assert list(transaction.settled.values()) == [None] * 500 + [False] * 500


def test_channel_waits_until_it_is_done(client: FakeClient) -> None:
    take_all(client)
    client.connection.stop_delivering("test")
    nack(client, requeue=True)
    client.send(m.QueueDeclare(queue="q", passive=True, arguments={}))
    assert client.methods() == []
    client.run()
    (answer,) = client.methods()
    assert isinstance(answer, m.QueueDeclareOk)
    assert answer.message_count == MANY


def test_channel_close_ok_comes_when_all_is_given_back(client: FakeClient) -> None:
    take_all(client)
    client.send(m.ChannelClose(reply_code=200, reply_text="", class_id=0, method_id=0))
    assert client.methods() == []
    client.run()
    assert client.methods() == [m.ChannelCloseOk()]
    assert client.vhost.queues["q"].message_count == MANY


def test_connection_close_ok_comes_when_all_is_given_back(client: FakeClient) -> None:
    take_all(client)
    queue = client.vhost.queues["q"]
    client.send(m.ConnectionClose(reply_code=200, reply_text="", class_id=0, method_id=0), 0)
    assert client.methods(0) == []
    client.run()
    assert client.methods(0) == [m.ConnectionCloseOk()]
    assert queue.message_count == MANY


def test_what_was_acked_stays_acked_though_the_connection_is_lost_meanwhile(client: FakeClient) -> None:
    take_all(client)
    queue = client.vhost.queues["q"]
    client.send(m.BasicAck(delivery_tag=MANY - 10, multiple=True))
    assert queue.unacked > 10
    client.hang_up()
    assert (queue.unacked, queue.message_count) == (0, 10)


def test_commit_is_carried_out_though_the_connection_is_lost_meanwhile(client: FakeClient) -> None:
    take_all(client, 10)
    client.call(m.TxSelect(), m.TxSelectOk)
    publish_many(client, "dead", MANY)
    client.send(m.TxCommit())
    queues = client.vhost.queues
    assert queues["dead"].message_count < MANY
    client.hang_up()
    assert (queues["dead"].message_count, queues["q"].message_count) == (MANY, 10)


def test_queue_delivers_nothing_until_all_is_given_back(client: FakeClient) -> None:
    take_all(client)
    other = FakeClient(client.node).open()
    other.send(m.BasicQos(prefetch_size=0, prefetch_count=5, global_=False))
    client.publish("", "q", b"last")
    client.send(m.BasicCancel(consumer_tag="c"))
    other.consume("q")
    nack(client, requeue=True)
    assert client.vhost.queues["q"].unacked > 0
    assert other.bodies() == []
    client.run()
    assert other.bodies() == [b"x"] * 5
    assert client.world.errors == []
