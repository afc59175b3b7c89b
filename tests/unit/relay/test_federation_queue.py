"""Queue federation between brokers of our own: messages go where idle consumers are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

import warren
from tests.support.federation import (
    V,
    are_running,
    bind,
    bodies_of,
    count_in,
    declare_queue,
    federate,
    federation_of,
    publish,
    set_upstream,
    stations,
    take,
    until,
)
from warren.broker import commands as c
from warren.broker.making import make_queue
from warren.relay.federation_queue import LOOK_SECONDS, LOOK_SECONDS_MAX, QueueSide
from warren.session.connection import connections_of


async def begin(down: warren.Broker, up: warren.Broker, **upstream: Any) -> None:
    """A federated queue `q`, whose link runs."""
    declare_queue(down, "q")
    set_upstream(down, "up", up.url, **upstream)
    federate(down, "^q$", "queues")
    await until(lambda: are_running(down, 1))


def consumer_tags(broker: warren.Broker, queue: str) -> list[str]:
    return [consumer.tag for consumer in broker.node.vhosts[V].queues[queue].consumers]


def telling(name: str, got: asyncio.Queue[str]) -> Callable[[AbstractIncomingMessage], Awaitable[None]]:
    """A consumer's callback that tells its name."""

    async def tell(_message: AbstractIncomingMessage) -> None:
        await got.put(name)

    return tell


async def test_consumer_gets_messages_of_the_upstream_with_where_they_were(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up)
    bind(up, "amq.topic", "q", "k.*")
    await publish(up.url, "amq.topic", "k.1", b"one", headers={"CC": ["other"], "mine": 1})
    (message,) = await take(down.url, "q", 1)
    assert (message.body, message.exchange, message.routing_key) == (b"one", "", "q")
    assert message.headers == {
        "mine": 1,
        "x-original-cc": ["other"],
        "x-original-exchange": "amq.topic",
        "x-original-routing-key": "k.1",
        "x-received-from": [
            {"uri": f"amqp://{up.address}", "queue": "q", "redelivered": False, "visit-count": 1}
        ],
    }


async def test_connections_of_a_link_say_whose_they_are(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    for broker in (up, down):
        [connection] = connections_of(broker.node)
        assert connection.client_properties["connection_name"] == "Federation link (upstream: up, queue: q)"


async def test_messages_stay_where_they_are_without_a_consumer_here(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up)
    await publish(up.url, "", "q", b"one")
    assert consumer_tags(up, "q") == []
    async with await aio_pika.connect(down.url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("q")
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def keep(message: AbstractIncomingMessage) -> None:
            await got.put(message.body)

        tag = await queue.consume(keep, no_ack=True)
        assert await got.get() == b"one"
        assert consumer_tags(up, "q") == ["federation-link-up"]
        await queue.cancel(tag)
        await until(lambda: consumer_tags(up, "q") == [])
    await publish(up.url, "", "q", b"two")
    assert (count_in(up, "q"), count_in(down, "q")) == (1, 0)


async def test_nothing_is_taken_while_there_are_messages_here(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    await publish(down.url, "", "q", b"one", b"two")
    await publish(up.url, "", "q", b"three")
    async with await aio_pika.connect(down.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.get_queue("q")
        got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(got.put)
        first = await got.get()
        assert count_in(up, "q") == 1
        await first.ack()
        second = await got.get()
        assert (first.body, second.body) == (b"one", b"two")
        assert consumer_tags(up, "q") == []  # the queue is empty, but its consumer is busy
        await second.ack()
        third = await got.get()
        assert third.body == b"three"
        await third.ack()


async def test_consumers_upstream_come_first(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    async with await aio_pika.connect(up.url) as above, await aio_pika.connect(down.url) as below:
        got: asyncio.Queue[str] = asyncio.Queue()
        for name, connection in (("up", above), ("down", below)):
            channel = await connection.channel()
            queue = await channel.get_queue("q")
            await queue.consume(telling(name, got), no_ack=True)
        await until(lambda: len(consumer_tags(up, "q")) == 2)
        await publish(up.url, "", "q", *[b""] * 20)
        assert [await got.get() for _ in range(20)] == ["up"] * 20


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
async def test_many_messages_come_once_each_and_in_order(
    up: warren.Broker, down: warren.Broker, ack_mode: str
) -> None:
    await begin(down, up, ack_mode=ack_mode, prefetch_count=50)
    bodies = [str(number).encode() for number in range(500)]
    await publish(up.url, "", "q", *bodies)
    assert bodies_of(await take(down.url, "q", 500)) == bodies
    await until(lambda: not count_in(up, "q") and not up.node.vhosts[V].queues["q"].unacked)


async def test_messages_do_not_go_back_and_forth(up: warren.Broker, down: warren.Broker) -> None:
    """Both brokers are upstreams of each other, and only one has a consumer."""
    await begin(down, up)
    set_upstream(up, "down", down.url)
    federate(up, "^q$", "queues")
    await until(lambda: are_running(up, 1))
    await publish(up.url, "", "q", b"one", b"two")
    messages = await take(down.url, "q", 2)
    assert bodies_of(messages) == [b"one", b"two"]
    assert [stations(message) for message in messages] == [1, 1]
    await publish(down.url, "", "q", b"three")
    (message,) = await take(up.url, "q", 1)
    assert message.body == b"three"


async def test_message_that_comes_again_counts_its_visits(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up)
    before = [{"uri": f"amqp://{up.address}", "queue": "q", "visit-count": 4}, {"uri": "amqp://other"}]
    await publish(up.url, "", "q", b"one", headers={"x-received-from": before})
    (message,) = await take(down.url, "q", 1)
    stations: Any = message.headers["x-received-from"]
    assert [station.get("visit-count") for station in stations] == [5, None]
    assert "x-original-exchange" not in message.headers


async def test_queue_upstream_may_have_another_name_and_stays(up: warren.Broker, down: warren.Broker) -> None:
    await begin(down, up, queue="theirs")
    await publish(up.url, "", "theirs", b"one")
    assert bodies_of(await take(down.url, "q", 1)) == [b"one"]
    down.execute(c.DeletePolicy(vhost=V, name="federated"))
    await until(lambda: not federation_of(down).all() and not federation_of(down).ending)
    assert "theirs" in up.node.vhosts[V].queues


async def test_exclusive_queues_and_streams_and_queues_of_links_are_not_federated(
    up: warren.Broker, down: warren.Broker
) -> None:
    set_upstream(down, "up", up.url)
    federate(down, ".*", "queues")
    arguments: list[dict[str, Any]] = [{"x-queue-type": "stream"}, {"x-internal-purpose": "federation"}]
    for number, given in enumerate(arguments):
        down.execute(c.DeclareQueue(vhost=V, name=f"q{number}", durable=True, arguments=given))
    async with await aio_pika.connect(down.url) as connection:
        await (await connection.channel()).declare_queue(exclusive=True)
        declare_queue(down, "q")
        assert [running.link.key.place.name for running in federation_of(down).all()] == ["q"]
        await until(lambda: are_running(down, 1))


async def test_a_consumer_that_is_busy_is_looked_at_less_and_less_often(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up, prefetch_count=1)
    await publish(up.url, "", "q", b"one", b"two")
    async with await aio_pika.connect(down.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.get_queue("q")
        got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(got.put)
        first = await got.get()
        (running,) = federation_of(down).all()
        side = running.link.side
        assert isinstance(side, QueueSide)
        await until(lambda: side.look_seconds == LOOK_SECONDS_MAX)
        await first.ack()
        await (await got.get()).ack()
        await until(lambda: side.is_consuming)
        assert side.look_seconds == LOOK_SECONDS


async def test_a_link_looks_at_the_object_that_stands_for_its_queue(
    up: warren.Broker, down: warren.Broker
) -> None:
    await begin(down, up)
    (running,) = federation_of(down).all()
    side = running.link.side
    assert isinstance(side, QueueSide)
    vhost = down.node.vhosts[V]
    command = c.DeclareQueue(vhost=V, name="q", durable=True, arguments={})
    new = vhost.replace_queue(vhost.queues["q"], lambda: make_queue(down.node, command))
    assert side.queue is new
    del vhost.queues["q"]
    assert side.queue is new, "it is deleted just now"
    vhost.queues["q"] = new
