"""Confirms, settling and recovering on one channel."""

from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from tests.support.frames import published
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties


@pytest.fixture
def client() -> FakeClient:
    """A client whose vhost has the queue q."""
    made = FakeClient(make_node(FakeWorld())).open()
    made.declare("q")
    return made


def publish_numbers(client: FakeClient, count: int) -> None:
    for number in range(count):
        client.publish("", "q", b"%d" % number)


# --- publishing ---


def test_all_messages_of_one_read_are_confirmed_with_one_ack(client: FakeClient) -> None:
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.connection.feed(published("", "q", b"x") * 5)
    assert client.methods() == [m.BasicAck(delivery_tag=5, multiple=True)]
    client.publish("", "q", b"x")
    assert client.methods() == [m.BasicAck(delivery_tag=6, multiple=False)]


def test_return_leaves_before_the_confirm(client: FakeClient) -> None:
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("", "nowhere", b"x", mandatory=True)
    assert [type(method) for method in client.methods()] == [m.BasicReturn, m.BasicAck]


def test_messages_taken_before_the_channel_failed_are_confirmed_before_its_close(client: FakeClient) -> None:
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.connection.feed(published("", "q", b"x") * 2 + published("missing", "k", b"x"))
    confirm, close = client.methods()
    assert confirm == m.BasicAck(delivery_tag=2, multiple=True)
    assert isinstance(close, m.ChannelClose)


def test_each_message_goes_by_its_own_key_and_properties(client: FakeClient) -> None:
    client.declare("other")
    for number, (key, priority) in enumerate([("q", 1), ("other", 1), ("q", 2), ("q", 2), ("other", 2)]):
        client.publish("", key, b"%d" % number, BasicProperties(priority=priority))
    client.consume("q", "1")
    client.consume("other", "2")
    found = [(c.method.routing_key, c.body, c.properties.priority) for c in client.contents()]  # type: ignore[attr-defined]
    assert sorted(found) == [
        ("other", b"1", 1),
        ("other", b"4", 2),
        ("q", b"0", 1),
        ("q", b"2", 2),
        ("q", b"3", 2),
    ]


@pytest.mark.parametrize("expiration", ["", "-1", "1.5", "soon", " 1", "3153600000001"])
def test_bad_expiration_closes_the_channel_with_406(client: FakeClient, expiration: str) -> None:
    client.publish("", "q", b"x", BasicProperties(expiration=expiration))
    client.expect_close(406)


# --- settling ---


def test_cancelled_consumers_messages_stay_out_until_settled(client: FakeClient) -> None:
    publish_numbers(client, 3)
    client.consume("q")
    client.send(m.BasicCancel(consumer_tag="c"))
    queue = client.vhost.queues["q"]
    assert (queue.unacked, queue.message_count) == (3, 0)
    client.send(m.BasicNack(delivery_tag=2, multiple=True, requeue=True))
    assert (queue.unacked, queue.message_count) == (1, 2)


def test_messages_given_back_are_delivered_again_in_their_order(client: FakeClient) -> None:
    publish_numbers(client, 5)
    client.consume("q")
    client.frames()
    client.send(m.BasicNack(delivery_tag=0, multiple=True, requeue=True))
    found = [(c.body, c.method.delivery_tag, c.method.redelivered) for c in client.contents()]  # type: ignore[attr-defined]
    assert found == [(b"%d" % number, number + 6, True) for number in range(5)]


@pytest.mark.parametrize(
    "method",
    [
        m.BasicAck(delivery_tag=4),
        m.BasicAck(delivery_tag=4, multiple=True),
        m.BasicAck(delivery_tag=0),
        m.BasicNack(delivery_tag=2**64 - 1),
        m.BasicReject(delivery_tag=1),
    ],
)
def test_tag_that_is_not_outstanding_closes_the_channel_with_406(
    client: FakeClient, method: m.Method
) -> None:
    publish_numbers(client, 3)
    client.consume("q")
    client.send(m.BasicAck(delivery_tag=1))
    client.frames()
    client.send(method)
    close = client.methods()[0]
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 406
    assert "unknown delivery tag" in close.reply_text


def test_tag_0_with_multiple_stands_for_all_even_if_there_are_none(client: FakeClient) -> None:
    client.send(m.BasicAck(delivery_tag=0, multiple=True))
    assert client.methods() == []


def test_prefetch_limit_of_the_channel_is_shared_and_freed_by_acks(client: FakeClient) -> None:
    client.declare("other")
    client.call(m.BasicQos(prefetch_count=3, global_=True), m.BasicQosOk)
    client.consume("q", "1")
    client.consume("other", "2")
    client.frames()
    for _ in range(3):
        client.publish("", "q", b"q")
        client.publish("", "other", b"other")
    assert len(client.bodies()) == 3
    client.send(m.BasicAck(delivery_tag=1))
    assert len(client.bodies()) == 1


def test_prefetch_in_bytes_lets_one_large_message_through_alone(client: FakeClient) -> None:
    client.call(m.BasicQos(prefetch_size=100), m.BasicQosOk)
    client.consume("q")
    client.frames()
    for size in (500, 60, 40, 1):
        client.publish("", "q", bytes(size))
    assert [len(body) for body in client.bodies()] == [500]
    client.send(m.BasicAck(delivery_tag=1))
    assert [len(body) for body in client.bodies()] == [60, 40]


# --- recovering ---


def test_recover_without_requeue_delivers_again_to_the_same_consumer(client: FakeClient) -> None:
    publish_numbers(client, 2)
    client.consume("q", "mine")
    client.frames()
    client.send(m.BasicRecover(requeue=False))
    found = [(c.method.consumer_tag, c.body, c.method.redelivered) for c in client.contents()]  # type: ignore[attr-defined]
    assert found == [("mine", b"0", True), ("mine", b"1", True)]


def test_recover_without_requeue_delivers_nothing_to_a_cancelled_consumer(client: FakeClient) -> None:
    publish_numbers(client, 1)
    client.consume("q")
    client.send(m.BasicCancel(consumer_tag="c"))
    client.frames()
    client.send(m.BasicRecover(requeue=False))
    assert client.methods() == [m.BasicRecoverOk()]
    assert client.vhost.queues["q"].message_count == 1


def test_recover_with_requeue_returns_all_to_the_queue(client: FakeClient) -> None:
    publish_numbers(client, 3)
    client.call(m.BasicGet(queue="q"), m.BasicGetOk)
    client.call(m.BasicGet(queue="q"), m.BasicGetOk)
    client.call(m.BasicRecover(requeue=True), m.BasicRecoverOk)
    client.consume("q")
    assert client.bodies() == [b"0", b"1", b"2"]
