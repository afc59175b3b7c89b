"""Transactions: publishes and acknowledgements take effect at commit."""

from __future__ import annotations

import pytest

from tests.semantics.conftest import hold_messages
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m


def select(channel: AmqpChannel) -> None:
    channel.call(m.TxSelect(), m.TxSelectOk)


def commit(channel: AmqpChannel) -> None:
    channel.call(m.TxCommit(), m.TxCommitOk)


def rollback(channel: AmqpChannel) -> None:
    channel.call(m.TxRollback(), m.TxRollbackOk)


def test_publishes_take_effect_at_commit(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = channel.declare().queue
    select(channel)
    for body in (b"1", b"2"):
        channel.publish("", queue, body)
    select(channel)
    assert second.drain(queue) == []
    commit(channel)
    assert second.drain(queue) == [b"1", b"2"]


def test_rollback_drops_publishes(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    select(channel)
    channel.publish("", queue, b"dropped")
    rollback(channel)
    channel.publish("", queue, b"kept")
    commit(channel)
    assert channel.drain(queue) == [b"kept"]


def test_publishes_that_were_not_committed_go_with_the_channel(
    channel: AmqpChannel, second: AmqpChannel
) -> None:
    queue = channel.declare().queue
    select(channel)
    channel.publish("", queue)
    channel.close()
    assert second.drain(queue) == []


def test_transaction_goes_on_after_commit(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = channel.declare().queue
    select(channel)
    channel.publish("", queue, b"1")
    commit(channel)
    channel.publish("", queue, b"2")
    select(channel)
    assert second.drain(queue) == [b"1"]
    commit(channel)
    assert second.drain(queue) == [b"2"]


ACKNOWLEDGEMENTS: list[tuple[m.Method, list[bytes], list[bytes]]] = [
    (m.BasicAck(delivery_tag=2, multiple=True), [b"3"], []),
    (m.BasicAck(delivery_tag=2), [b"1", b"3"], []),
    (m.BasicNack(delivery_tag=2, multiple=True, requeue=False), [b"3"], []),
    (m.BasicReject(delivery_tag=1, requeue=False), [b"2", b"3"], []),
    (m.BasicNack(delivery_tag=2, multiple=True, requeue=True), [b"1", b"2", b"3"], [b"1", b"2"]),
    (m.BasicReject(delivery_tag=1, requeue=True), [b"1", b"2", b"3"], [b"1"]),
]


def settle_in_transaction(channel: AmqpChannel, method: m.Method) -> str:
    """The queue of three messages of which some are settled, but not committed."""
    queue = hold_messages(channel, 3)
    select(channel)
    channel.send(method)
    return queue


@pytest.mark.parametrize(("method", "left", "requeued"), ACKNOWLEDGEMENTS, ids=str)
def test_acknowledgements_take_effect_at_commit(
    channel: AmqpChannel, second: AmqpChannel, method: m.Method, left: list[bytes], requeued: list[bytes]
) -> None:
    queue = settle_in_transaction(channel, method)
    select(channel)
    assert second.drain(queue) == []
    commit(channel)
    assert second.drain(queue) == requeued
    channel.close()
    assert second.drain(queue) == [body for body in left if body not in requeued]


@pytest.mark.parametrize("method", [method for method, _, _ in ACKNOWLEDGEMENTS], ids=str)
def test_acknowledgements_that_were_not_committed_are_void(
    channel: AmqpChannel, second: AmqpChannel, method: m.Method
) -> None:
    queue = settle_in_transaction(channel, method)
    channel.close()
    assert second.drain(queue) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("method", [method for method, _, _ in ACKNOWLEDGEMENTS], ids=str)
def test_rollback_drops_acknowledgements_and_does_not_requeue(
    channel: AmqpChannel, second: AmqpChannel, method: m.Method
) -> None:
    queue = settle_in_transaction(channel, method)
    rollback(channel)
    assert second.drain(queue) == []
    commit(channel)
    assert second.drain(queue) == []
    channel.close()
    assert second.drain(queue) == [b"1", b"2", b"3"]


def test_delivery_can_be_acked_again_after_rollback(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = settle_in_transaction(channel, m.BasicAck(delivery_tag=3, multiple=True))
    rollback(channel)
    channel.send(m.BasicAck(delivery_tag=3, multiple=True))
    commit(channel)
    channel.close()
    assert second.drain(queue) == []


def test_ack_of_a_tag_that_was_acked_in_the_same_transaction_is_406(channel: AmqpChannel) -> None:
    settle_in_transaction(channel, m.BasicAck(delivery_tag=2))
    channel.send(m.BasicAck(delivery_tag=2))
    assert channel.expect_close(406).reply_text == "PRECONDITION_FAILED - unknown delivery tag 2"


def test_return_comes_before_commit_ok(channel: AmqpChannel) -> None:
    select(channel)
    channel.publish("amq.direct", "nowhere", b"body", mandatory=True)
    select(channel)
    channel.send(m.TxCommit())
    assert channel.expect_content(m.BasicReturn).body == b"body"
    channel.expect(m.TxCommitOk)


def test_committed_publish_reaches_a_consumer(channel: AmqpChannel, second: AmqpChannel) -> None:
    queue = channel.declare().queue
    second.consume(queue, no_ack=True)
    select(channel)
    channel.publish("", queue, b"body")
    commit(channel)
    assert second.expect_delivery().body == b"body"
