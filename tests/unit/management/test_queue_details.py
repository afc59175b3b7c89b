"""What only the answer about one queue tells: the messages that a restart keeps, and what each type adds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from tests.support.http_api import Api
from warren.management.queue_details import dead_letters_under_way


@pytest.fixture
async def channel(api: Api) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(api.broker.url) as connection:
        yield await connection.channel()


async def described(api: Api, name: str) -> dict[str, Any]:
    row: dict[str, Any] = (await api.get(f"/api/queues/%2F/{name}")).json
    return row


async def persistent(api: Api, name: str) -> tuple[int, int]:
    row = await described(api, name)
    return row["messages_persistent"], row["message_bytes_persistent"]


async def publish(channel: AbstractChannel, name: str, *sizes: int, persistent: bool) -> None:
    mode = aio_pika.DeliveryMode.PERSISTENT if persistent else aio_pika.DeliveryMode.NOT_PERSISTENT
    for size in sizes:
        message = aio_pika.Message(bytes(size), delivery_mode=mode)
        await channel.default_exchange.publish(message, name)


async def hold(_message: AbstractIncomingMessage) -> None:
    """Take a message, and do not ack it."""


@pytest.mark.parametrize("waiting", [1, 100])
async def test_persistent_messages_are_counted_apart(
    api: Api, channel: AbstractChannel, waiting: int
) -> None:
    """Those in memory, and those behind that are on disk only."""
    api.declare("q")
    assert await persistent(api, "q") == (0, 0)
    await publish(channel, "q", *[10] * waiting, persistent=True)
    assert await persistent(api, "q") == (waiting, 10 * waiting)
    await publish(channel, "q", *[7] * waiting, persistent=False)
    assert await persistent(api, "q") == (waiting, 10 * waiting)
    assert (await described(api, "q"))["messages"] == 2 * waiting


@pytest.mark.parametrize("waiting", [1, 100])
async def test_all_messages_of_a_quorum_queue_are_persistent(
    api: Api, channel: AbstractChannel, waiting: int
) -> None:
    api.declare("q", queue_type="quorum")
    await publish(channel, "q", *[10] * waiting, persistent=True)
    await publish(channel, "q", *[7] * waiting, persistent=False)
    assert await persistent(api, "q") == (2 * waiting, 17 * waiting)


async def test_transient_messages_alone_are_none_of_these(api: Api, channel: AbstractChannel) -> None:
    api.declare("q")
    await publish(channel, "q", 5, 6, persistent=False)
    assert await persistent(api, "q") == (0, 0)


async def test_queue_that_a_restart_deletes_keeps_nothing(api: Api, channel: AbstractChannel) -> None:
    await channel.declare_queue("brief", durable=False)
    await publish(channel, "brief", 5, persistent=True)
    assert await persistent(api, "brief") == (0, 0)


@pytest.mark.parametrize("mixed", [False, True])
async def test_unacked_messages_count_until_they_are_acked(
    api: Api, channel: AbstractChannel, mixed: bool
) -> None:
    api.declare("q")
    if mixed:
        await publish(channel, "q", 3, persistent=False)
    await publish(channel, "q", 10, 20, 30, persistent=True)
    queue = await channel.get_queue("q")
    taken: list[AbstractIncomingMessage] = []
    await channel.set_qos(prefetch_count=2 + mixed)

    async def take(message: AbstractIncomingMessage) -> None:
        taken.append(message)

    await queue.consume(take)
    while (await described(api, "q"))["messages_ready"] != 1:
        pass
    assert await persistent(api, "q") == (3, 60)
    await taken[-1].ack()
    while (await described(api, "q"))["messages_ready"] != 0:
        pass
    assert await persistent(api, "q") == (2, 40)


async def test_messages_that_died_count_until_they_are_safe_elsewhere(api: Api) -> None:
    api.declare("dead")
    queue = api.declare("q", queue_type="quorum", dead_letter_exchange="", dead_letter_routing_key="dead")
    await api.publish(queue, [b"12345", b"67"])
    entry = queue.get(no_ack=False)
    assert entry is not None
    assert dead_letters_under_way(queue) == (0, 0)
    queue.reject(entry)
    assert dead_letters_under_way(queue) == (1, 5)
    await api.end_turn()
    row = await described(api, "q")
    assert (row["messages_dlx"], row["message_bytes_dlx"], row["messages_persistent"]) == (0, 0, 1)


async def test_quorum_queue_tells_its_open_files_and_active_consumer(
    api: Api, channel: AbstractChannel
) -> None:
    api.declare("q", queue_type="quorum", single_active_consumer=True)
    row = await described(api, "q")
    assert (row["open_files"], row["single_active_consumer_ctag"]) == ({"warren": 0}, None)
    await publish(channel, "q", 5, persistent=True)
    assert (await described(api, "q"))["open_files"] == {"warren": 1}
    queue = await channel.get_queue("q")
    await queue.consume(hold, consumer_tag="first")
    await queue.consume(hold, consumer_tag="second")
    row = await described(api, "q")
    assert row["single_active_consumer_ctag"] == row["single_active_consumer_tag"] == "first"


async def test_stream_tells_its_readers(api: Api, channel: AbstractChannel) -> None:
    api.declare("s", queue_type="stream")
    assert (await described(api, "s"))["readers"] == {"warren": 0}
    await channel.set_qos(prefetch_count=10)
    await (await channel.get_queue("s")).consume(hold)
    row = await described(api, "s")
    assert row["readers"] == {"warren": 1}
    assert "messages_persistent" not in row


async def test_lists_do_without_all_that(api: Api) -> None:
    api.declare("q", queue_type="quorum")
    [row] = (await api.get("/api/queues")).json
    more = {"messages_persistent", "message_bytes_persistent", "incoming", "deliveries", "open_files"}
    assert row.keys().isdisjoint(more)
