"""What a tap takes from a queue: everything, whatever the broker counts, and however late deliveries are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.unit.moving.late_path import LatePath
from tests.unit.moving.pair import Pair, bodies, channel_of, messages_in, publish, uri_of
from warren.amqp.methods import BasicCancelOk, BasicQosOk
from warren.client.uri import Uri
from warren.moving.queues import QueueInfo
from warren.moving.tap import Tap


def classic(name: str, *, auto_delete: bool = False) -> QueueInfo:
    return QueueInfo("/", name, "classic", durable=True, auto_delete=auto_delete)


def taken(source: Uri, queue: QueueInfo, *, batch: int = 1000) -> Iterator[list[bytes]]:
    """The bodies of batches, each acked before the next."""
    with closing(Tap(source, queue, batch=batch)) as tap:
        while held := tap.take():
            yield [delivery.message.body for delivery in held]
            tap.settle(len(held))


@pytest.mark.parametrize(
    "until",
    [BasicCancelOk, BasicQosOk],
    ids=["as of classic queues", "as of quorum queues: even after the cancel-ok"],
)
def test_late_deliveries_are_taken_though_the_broker_counts_none(
    pair: Pair, queue: str, until: type[BasicCancelOk | BasicQosOk]
) -> None:
    publish(pair.there, queue, bodies(20))
    with LatePath(uri_of(pair.there), until=until) as path:
        found = [body for batch in taken(path.uri, classic(queue)) for body in batch]
    assert found == bodies(20)
    assert messages_in(pair.there, queue) == []


def test_queue_that_goes_with_its_last_consumer_is_not_consumed(pair: Pair) -> None:
    name = f"moving-{uuid.uuid4().hex}"
    channel = channel_of(pair.there)
    channel.queue_declare(name, durable=True, auto_delete=True)
    publish(pair.there, name, bodies(10))
    with closing(Tap(uri_of(pair.there), classic(name, auto_delete=True), batch=4)) as tap:
        assert [delivery.message.body for delivery in tap.take()] == bodies(4)
        tap.settle(2)
    assert channel.queue_declare(name, passive=True).method.message_count == 8
    batches = list(taken(uri_of(pair.there), classic(name, auto_delete=True), batch=4))
    assert [body for batch in batches for body in batch] == bodies(10)[2:]
    assert [len(batch) for batch in batches] == [4, 4]
    channel.connection.close()


@pytest.mark.parametrize("batch", [1, 4])
def test_no_more_than_a_batch_is_out(pair: Pair, queue: str, batch: int) -> None:
    publish(pair.there, queue, bodies(20))
    batches = list(taken(uri_of(pair.there), classic(queue), batch=batch))
    assert [body for each in batches for body in each] == bodies(20)
    assert max(len(each) for each in batches) == batch


def test_what_was_not_settled_is_given_back_and_counted(pair: Pair, queue: str) -> None:
    publish(pair.there, queue, bodies(5))
    with closing(Tap(uri_of(pair.there), classic(queue), batch=100)) as tap:
        assert [delivery.message.body for delivery in tap.take()] == bodies(1)
        tap.settle(1)
        assert tap.take()
        assert (tap.left(), tap.others()) == (4, 0)
    assert [got.body for got in messages_in(pair.there, queue)] == bodies(5)[1:]
