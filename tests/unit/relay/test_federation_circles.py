"""Brokers that are federated in circles: each message gets everywhere once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import warren
from tests.support.federation import (
    are_running,
    bind,
    bindings_of,
    bodies_of,
    count_in,
    declare_exchange,
    federate,
    named_broker,
    publish,
    set_upstream,
    stations,
    take,
    until,
)

NAMES = ("a", "b", "c")


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[warren.Broker]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(named_broker(name, tmp_path)) for name in NAMES]


def federated(broker: warren.Broker, *upstreams: warren.Broker, max_hops: int = 1) -> None:
    declare_exchange(broker, "x")
    bind(broker, "x", "q", "#")
    for upstream in upstreams:
        set_upstream(broker, upstream.node.cluster_name, upstream.url, max_hops=max_hops)
    federate(broker, "^x$")


async def all_published(brokers: list[warren.Broker], count: int) -> list[bytes]:
    """Each broker publishes so many messages. The bodies of all."""
    for broker in brokers:
        bodies = [f"{broker.node.cluster_name}{number}".encode() for number in range(count)]
        await publish(broker.url, "x", "k", *bodies)
    names = [broker.node.cluster_name for broker in brokers]
    return sorted(f"{name}{number}".encode() for name in names for number in range(count))


def are_idle(brokers: list[warren.Broker]) -> bool:
    """Whether no message is on its way."""
    queues = [queue for broker in brokers for queue in broker.node.vhosts["/"].queues.values()]
    return not any(
        queue.message_count or queue.unacked for queue in queues if queue.name.startswith("federation")
    )


async def test_a_pair_that_is_federated_both_ways(three: list[warren.Broker]) -> None:
    pair = three[:2]
    federated(pair[0], pair[1])
    federated(pair[1], pair[0])
    await until(lambda: all(are_running(broker, 1) for broker in pair))
    await until(lambda: all(len(bindings_of(broker, "x")) == 2 for broker in pair))
    bodies = await all_published(pair, 10)
    for broker in pair:
        await until(lambda: are_idle(pair) and count_in(broker, "q") == len(bodies))  # noqa: B023 - awaited at once
        assert sorted(bodies_of(await take(broker.url, "q", len(bodies)))) == bodies


async def test_each_message_gets_once_to_each_broker_of_a_ring(three: list[warren.Broker]) -> None:
    for broker, upstream in zip(three, [three[2], *three[:2]], strict=True):
        federated(broker, upstream, max_hops=2)
    await until(lambda: all(are_running(broker, 1) for broker in three))
    # of its own queue, of the next broker's, and of the one after that
    await until(lambda: all(len(bindings_of(broker, "x")) == 3 for broker in three))
    bodies = await all_published(three, 10)
    for broker in three:
        await until(lambda: are_idle(three) and count_in(broker, "q") == len(bodies))  # noqa: B023 - awaited at once
    for broker in three:
        messages = await take(broker.url, "q", len(bodies))
        assert sorted(bodies_of(messages)) == bodies
        hops = [stations(message) for message in messages]
        assert sorted(hops) == [0] * 10 + [1] * 10 + [2] * 10


async def test_messages_go_as_far_as_max_hops_allows(three: list[warren.Broker]) -> None:
    first, second, third = three
    federated(third, second)
    federated(second, first)
    federated(first)
    await until(lambda: are_running(second, 1) and are_running(third, 1))
    await until(lambda: len(bindings_of(second, "x")) == 2)
    await publish(first.url, "x", "k", b"from the first")
    await publish(second.url, "x", "k", b"from the second")
    assert sorted(bodies_of(await take(second.url, "q", 2))) == [b"from the first", b"from the second"]
    assert bodies_of(await take(third.url, "q", 1)) == [b"from the second"]
    await until(lambda: are_idle(three))
    assert count_in(third, "q") == 0


async def test_every_broker_is_an_upstream_of_every_other(three: list[warren.Broker]) -> None:
    for broker in three:
        federated(broker, *[other for other in three if other is not broker])
    await until(lambda: all(are_running(broker, 2) for broker in three))
    await until(lambda: all(len(bindings_of(broker, "x")) == 3 for broker in three))
    bodies = await all_published(three, 5)
    for broker in three:
        await until(lambda: are_idle(three) and count_in(broker, "q") == len(bodies))  # noqa: B023 - awaited at once
        assert sorted(bodies_of(await take(broker.url, "q", len(bodies)))) == bodies
