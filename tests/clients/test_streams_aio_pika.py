"""Streams through aio-pika: many readers at once, filters, and a robust connection over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aiormq.abc import FieldTable
from aiormq.exceptions import ChannelPreconditionFailed

from tests.clients.conftest import WAIT_SECONDS_MAX
from tests.support.process import Address

SMALL: FieldTable = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 10_000}
CONSUMERS = 20


@pytest.fixture
async def connection(broker: Address) -> AsyncIterator[AbstractConnection]:
    async with await aio_pika.connect(broker.url()) as connection:
        yield connection


@pytest.fixture
async def stream(connection: AbstractConnection, name: str) -> AsyncIterator[AbstractQueue]:
    channel = await connection.channel()
    queue = await channel.declare_queue(name, durable=True, arguments=SMALL)
    yield queue
    await queue.delete(if_unused=False, if_empty=False)


async def put(channel: AbstractChannel, stream: str, numbers: range, **headers: Any) -> None:
    messages = (Message(b"%d" % number, headers=headers) for number in numbers)
    await asyncio.gather(*(channel.default_exchange.publish(message, stream) for message in messages))


async def read(
    connection: AbstractConnection, stream: str, count: int, *, prefetch: int = 20, **arguments: Any
) -> list[int]:
    """The offsets of the first so many that a new consumer gets; bodies are checked to be the same."""
    async with AsyncExitStack() as stack:
        channel = await connection.channel()
        stack.push_async_callback(channel.close)
        await channel.set_qos(prefetch_count=prefetch)
        queue = await channel.get_queue(stream, ensure=False)
        inbox: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        named = {f"x-stream-{name.replace('_', '-')}": value for name, value in arguments.items()}
        await queue.consume(inbox.put, arguments=named)
        offsets = []
        for _ in range(count):
            message = await asyncio.wait_for(inbox.get(), WAIT_SECONDS_MAX)
            offset = message.headers["x-stream-offset"]
            assert isinstance(offset, int)
            assert message.body == b"%d" % offset
            offsets.append(offset)
            await message.ack()
        return offsets


async def test_twenty_consumers_at_different_offsets_each_get_exactly_their_messages(
    connection: AbstractConnection, stream: AbstractQueue
) -> None:
    """While publishing goes on."""
    channel = await connection.channel()
    there, coming = 200, 60
    await put(channel, stream.name, range(there))
    firsts = range(0, there, there // CONSUMERS)
    readers = [
        read(connection, stream.name, there + coming - first, prefetch=1 + first % 30, offset=first)
        for first in firsts
    ]
    *found, _ = await asyncio.gather(*readers, put(channel, stream.name, range(there, there + coming)))
    assert found == [list(range(first, there + coming)) for first in firsts]


async def test_filters_choose_what_comes(connection: AbstractConnection, stream: AbstractQueue) -> None:
    channel = await connection.channel()
    for number in range(30):
        value = {"x-stream-filter-value": "abc"[number % 3]}
        await put(channel, stream.name, range(number, number + 1), **value)
    assert await read(connection, stream.name, 10, offset="first", filter="b") == list(range(1, 30, 3))
    both = [number for number in range(30) if number % 3]
    assert await read(connection, stream.name, 20, offset=0, filter=["b", "c"]) == both


async def test_offset_that_makes_no_sense_is_refused(
    connection: AbstractConnection, stream: AbstractQueue
) -> None:
    with pytest.raises(ChannelPreconditionFailed, match="x-stream-offset"):
        await read(connection, stream.name, 1, offset="begin")


async def test_iterator_reads_on_as_messages_come(
    connection: AbstractConnection, stream: AbstractQueue
) -> None:
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1)
    queue = await channel.get_queue(stream.name, ensure=False)
    publishing = await connection.channel()
    got = []
    async with queue.iterator(arguments={"x-stream-offset": "next"}, timeout=WAIT_SECONDS_MAX) as messages:
        await put(publishing, stream.name, range(1))
        async for message in messages:
            await message.ack()
            got.append(message.headers["x-stream-offset"])
            if len(got) == 20:
                break
            await put(publishing, stream.name, range(len(got), len(got) + 1))
    assert got == list(range(20))
