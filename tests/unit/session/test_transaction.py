from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.broker.node import Limits
from warren.broker.queue import Queue


@pytest.fixture
def client() -> FakeClient:
    """A client with a tx channel, whose vhost has the queue q."""
    made = FakeClient(make_node(FakeWorld())).open()
    made.declare("q")
    made.call(m.TxSelect(), m.TxSelectOk)
    return made


def the_queue(client: FakeClient) -> Queue:
    return client.vhost.queues["q"]


def three_delivered(client: FakeClient) -> None:
    for number in range(3):
        client.publish("", "q", b"%d" % number)
    client.call(m.TxCommit(), m.TxCommitOk)
    client.consume("q")
    assert client.bodies() == [b"0", b"1", b"2"]


def test_publishes_take_effect_at_commit_in_their_order(client: FakeClient) -> None:
    client.publish("", "q", b"1")
    client.publish("", "q", b"2")
    assert the_queue(client).message_count == 0
    client.call(m.TxCommit(), m.TxCommitOk)
    assert the_queue(client).message_count == 2
    client.consume("q")
    assert client.bodies() == [b"1", b"2"]


def test_time_of_a_message_runs_from_the_commit(client: FakeClient) -> None:
    client.declare("short-lived", arguments={"x-message-ttl": 1_000})
    client.publish("", "short-lived", b"by the queue")
    client.publish("", "q", b"by its own", BasicProperties(expiration="1000"))
    client.world.advance(10)
    client.call(m.TxCommit(), m.TxCommitOk)
    queues = [client.vhost.queues["short-lived"], the_queue(client)]
    client.world.advance(0.9)
    assert [queue.message_count for queue in queues] == [1, 1]
    client.world.advance(0.2)
    assert [queue.message_count for queue in queues] == [0, 0]


def test_rollback_drops_publishes(client: FakeClient) -> None:
    client.publish("", "q", b"1")
    client.call(m.TxRollback(), m.TxRollbackOk)
    client.call(m.TxCommit(), m.TxCommitOk)
    assert the_queue(client).message_count == 0


def test_acks_take_effect_at_commit(client: FakeClient) -> None:
    three_delivered(client)
    client.send(m.BasicAck(delivery_tag=2, multiple=True))
    assert the_queue(client).unacked == 3
    client.call(m.TxCommit(), m.TxCommitOk)
    assert the_queue(client).unacked == 1


def test_rollback_drops_acks_and_requeues_nothing(client: FakeClient) -> None:
    three_delivered(client)
    client.send(m.BasicAck(delivery_tag=0, multiple=True))
    client.send(m.TxRollback())
    assert client.methods() == [m.TxRollbackOk()]
    assert (the_queue(client).unacked, the_queue(client).message_count) == (3, 0)
    client.send(m.BasicAck(delivery_tag=1))
    client.call(m.TxCommit(), m.TxCommitOk)
    assert the_queue(client).unacked == 2


def test_rejects_take_effect_at_commit(client: FakeClient) -> None:
    three_delivered(client)
    client.send(m.BasicNack(delivery_tag=1, requeue=False))
    client.send(m.BasicReject(delivery_tag=2, requeue=True))
    assert client.bodies() == []
    client.send(m.TxCommit())
    assert client.bodies() == [b"1"]
    assert the_queue(client).unacked == 2


def test_first_word_about_a_tag_counts(client: FakeClient) -> None:
    three_delivered(client)
    client.send(m.BasicReject(delivery_tag=2, requeue=True))
    client.send(m.BasicAck(delivery_tag=0, multiple=True))
    client.send(m.TxCommit())
    assert client.bodies() == [b"1"]


@pytest.mark.parametrize(
    "again", [m.BasicAck(delivery_tag=2), m.BasicReject(delivery_tag=2), m.BasicAck(delivery_tag=9)]
)
def test_tag_settled_in_this_transaction_or_unknown_closes_the_channel_with_406(
    client: FakeClient, again: m.Method
) -> None:
    three_delivered(client)
    client.send(m.BasicAck(delivery_tag=2))
    client.send(again)
    client.expect_close(406)


def test_closing_the_channel_is_a_rollback(client: FakeClient) -> None:
    three_delivered(client)
    client.publish("", "q", b"lost")
    client.send(m.BasicAck(delivery_tag=0, multiple=True))
    client.call(m.ChannelClose(reply_code=200), m.ChannelCloseOk)
    assert (the_queue(client).message_count, the_queue(client).unacked) == (3, 0)


def test_mandatory_message_without_a_route_is_returned_at_commit(client: FakeClient) -> None:
    client.publish("", "nowhere", b"1", mandatory=True)
    assert client.frames() == []
    client.send(m.TxCommit())
    (returned,) = client.contents()
    assert isinstance(returned.method, m.BasicReturn)
    assert returned.body == b"1"


def test_queue_deleted_before_commit_gets_nothing(client: FakeClient) -> None:
    client.declare("gone")
    client.publish("", "gone", b"1", mandatory=True)
    gone = client.vhost.queues["gone"]
    client.call(m.QueueDelete(queue="gone"), m.QueueDeleteOk)
    client.send(m.TxCommit())
    assert [type(content.method) for content in client.contents()] == [m.BasicReturn]
    assert gone.message_count == 0


def test_recover_leaves_what_is_acked_in_the_transaction_alone(client: FakeClient) -> None:
    three_delivered(client)
    client.send(m.BasicAck(delivery_tag=1))
    client.send(m.BasicRecover(requeue=True))
    assert client.bodies() == [b"1", b"2"]
    client.call(m.TxCommit(), m.TxCommitOk)
    assert the_queue(client).unacked == 2


@pytest.mark.parametrize("method", [m.TxCommit(), m.TxRollback()])
def test_channel_that_is_not_transactional_closes_with_406(method: m.Method) -> None:
    client = FakeClient(make_node(FakeWorld())).open()
    client.send(method)
    client.expect_close(406)


@pytest.mark.parametrize("first", [m.TxSelect(), m.ConfirmSelect()])
def test_tx_and_confirm_exclude_each_other(first: m.Method) -> None:
    client = FakeClient(make_node(FakeWorld())).open()
    client.send(first)
    client.frames()
    client.send(m.ConfirmSelect() if isinstance(first, m.TxSelect) else m.TxSelect())
    client.expect_close(406)


def limited(limits: Limits) -> FakeClient:
    made = FakeClient(make_node(FakeWorld(), limits)).open()
    made.declare("q")
    made.call(m.TxSelect(), m.TxSelectOk)
    return made


@pytest.mark.parametrize("limits", [Limits(transaction_messages_max=3), Limits(transaction_bytes_max=14)])
def test_transaction_holds_no_more_than_it_may_and_then_begins_anew(limits: Limits) -> None:
    client = limited(limits)
    for _ in range(2):
        for _ in range(3):
            client.publish("", "q", b"12")
        client.call(m.TxCommit(), m.TxCommitOk)
    assert the_queue(client).message_count == 6


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        (Limits(transaction_messages_max=3), "3 messages"),
        (Limits(transaction_bytes_max=14), "14 bytes"),
    ],
)
def test_transaction_that_is_too_large_is_406_and_rolled_back(limits: Limits, shown: str) -> None:
    client = limited(limits)
    for _ in range(4):
        client.publish("", "q", b"12")
    assert client.expect_close(406).reply_text == (
        f"PRECONDITION_FAILED - transaction is larger than configured max size {shown}"
    )
    assert the_queue(client).message_count == 0
    assert client.vhost.queues["q"].consumers == []
