"""aio-pika, the asyncio client: every exchange type, confirms, replies, and coming back after a cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import aio_pika
import pytest
from aio_pika import ExchangeType, Message
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractExchange,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import ChannelClosed, InvalidFrameError, ProbableAuthenticationError, PublishError
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity

from tests.clients.conftest import LARGE_BODY, WAIT_SECONDS_MAX
from tests.support.process import Address
from tests.support.proxy import proxy_to


@pytest.fixture
async def connection(broker: Address) -> AsyncIterator[AbstractConnection]:
    async with await aio_pika.connect(broker.url()) as connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel()


@pytest.fixture
async def queue(channel: AbstractChannel, name: str) -> AbstractQueue:
    return await channel.declare_queue(name, exclusive=True)


async def drain(queue: AbstractQueue) -> list[bytes]:
    bodies = []
    while message := await queue.get(no_ack=True, fail=False):
        bodies.append(message.body)
    return bodies


async def send(exchange: AbstractExchange, routing_key: str, **properties: Any) -> None:
    """Publish with a confirm, so that the message is where it belongs; its body is its routing key."""
    await exchange.publish(Message(routing_key.encode(), **properties), routing_key, mandatory=False)


async def is_there(connection: AbstractConnection, queue: str) -> bool:
    async with connection.channel() as channel:
        try:
            await channel.declare_queue(queue, passive=True)
        except ChannelNotFoundEntity:
            return False
        return True


async def test_direct_exchange_compares_the_whole_routing_key(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.DIRECT, auto_delete=True)
    await queue.bind(exchange, "red")
    for key in ("red", "Red", "red.", ""):
        await send(exchange, key)
    assert await drain(queue) == [b"red"]


async def test_fanout_exchange_copies_to_each_queue_whatever_the_routing_key(
    channel: AbstractChannel, name: str
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.FANOUT, auto_delete=True)
    queues = [await channel.declare_queue(exclusive=True) for _ in range(3)]
    for number, queue in enumerate(queues):
        await queue.bind(exchange, f"ignored-{number}")
    await send(exchange, "any")
    assert [await drain(queue) for queue in queues] == [[b"any"]] * 3


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "b.a", ""]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c"]),
        ("*.b", ["a.b", ".b"], ["b", "a.b.c"]),
        ("#", ["", "a", "a.b.c"], []),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "b.a", ""]),
        ("#.b", ["b", "a.b", "a.a.b"], ["b.a", ""]),
        ("a.#.b", ["a.b", "a.c.b", "a.b.c.b"], ["a", "a.c", "b.a.b"]),
        ("*.#.*", ["a.b", "a.b.c"], ["a", ""]),
        ("#.*.b", ["a.b", "c.a.b"], ["b", ""]),
    ],
)
async def test_topic_exchange_matches_words(
    channel: AbstractChannel,
    queue: AbstractQueue,
    name: str,
    pattern: str,
    matching: list[str],
    others: list[str],
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.TOPIC, auto_delete=True)
    await queue.bind(exchange, pattern)
    for key in [*matching, *others]:
        await send(exchange, key)
    assert await drain(queue) == [key.encode() for key in matching]


@pytest.mark.parametrize(
    ("binding", "headers", "matches"),
    [
        ({"x-match": "all", "a": 1, "b": "2"}, {"a": 1, "b": "2", "c": 3}, True),
        ({"x-match": "all", "a": 1, "b": "2"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "2"}, {"a": 0, "b": "2"}, True),
        ({"x-match": "any", "a": 1, "b": "2"}, {"a": 0, "c": 3}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": "1"}, False),
        ({"x-match": "all", "a": None}, {"a": "anything"}, True),
        ({"x-match": "all", "x-own": 1, "a": 1}, {"a": 1}, True),
        ({"x-match": "all-with-x", "x-own": 1, "a": 1}, {"a": 1}, False),
        ({"x-match": "any-with-x", "x-own": 1, "a": 1}, {"x-own": 1}, True),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
    ],
)
async def test_headers_exchange_compares_headers(
    channel: AbstractChannel,
    queue: AbstractQueue,
    name: str,
    binding: dict[str, Any],
    headers: dict[str, Any],
    matches: bool,
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.HEADERS, auto_delete=True)
    await queue.bind(exchange, "", arguments=binding)
    await send(exchange, "ignored", headers=headers)
    assert await drain(queue) == [b"ignored"] * matches


async def test_message_that_matches_several_bindings_reaches_a_queue_once(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.TOPIC, auto_delete=True)
    for pattern in ("a.#", "a.b", "*.b", "#"):
        await queue.bind(exchange, pattern)
    await send(exchange, "a.b")
    assert await drain(queue) == [b"a.b"]


async def test_unbound_queue_gets_nothing_more(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.DIRECT, auto_delete=True)
    await queue.bind(exchange, "stays")
    await queue.bind(exchange, "goes")
    await queue.unbind(exchange, "goes")
    for key in ("stays", "goes"):
        await send(exchange, key)
    assert await drain(queue) == [b"stays"]


async def test_exchange_bound_to_an_exchange_routes_on(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    source = await channel.declare_exchange(f"{name}-source", ExchangeType.TOPIC, auto_delete=True)
    target = await channel.declare_exchange(
        f"{name}-target", ExchangeType.DIRECT, auto_delete=True, internal=True
    )
    await target.bind(source, "logs.#")
    await queue.bind(target, "logs.error")
    for key in ("logs.error", "logs.info", "error"):
        await send(source, key)
    assert await drain(queue) == [b"logs.error"]
    await target.unbind(source, "logs.#")


async def test_circle_of_exchanges_delivers_once(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    ring = [await channel.declare_exchange(f"{name}-{number}", ExchangeType.FANOUT) for number in range(3)]
    for number, exchange in enumerate(ring):
        await exchange.bind(ring[number - 1])
        await queue.bind(exchange)
    await send(ring[0], "round")
    for exchange in ring:
        await exchange.delete()
    assert await drain(queue) == [b"round"]


async def test_internal_exchange_refuses_to_be_published_to(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.FANOUT, auto_delete=True, internal=True)
    await queue.bind(exchange)
    unchecked = await channel.get_exchange(name, ensure=False)
    with pytest.raises(ChannelAccessRefused):
        await send(unchecked, "refused")


async def test_alternate_exchange_takes_what_finds_no_queue(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    spare = await channel.declare_exchange(f"{name}-spare", ExchangeType.FANOUT, auto_delete=True)
    main = await channel.declare_exchange(
        name, arguments={"alternate-exchange": spare.name}, auto_delete=True
    )
    known = await channel.declare_queue(exclusive=True)
    await known.bind(main, "known")
    await queue.bind(spare)
    for key in ("known", "unknown"):
        await main.publish(Message(key.encode()), key, mandatory=True)
    assert (await drain(known), await drain(queue)) == ([b"known"], [b"unknown"])


async def test_auto_delete_exchange_goes_with_its_last_binding(
    channel: AbstractChannel, queue: AbstractQueue, name: str
) -> None:
    exchange = await channel.declare_exchange(name, ExchangeType.FANOUT, auto_delete=True)
    await queue.bind(exchange)
    assert (await channel.get_exchange(name)).name == name
    await queue.unbind(exchange)
    with pytest.raises(ChannelNotFoundEntity):
        await channel.get_exchange(name)


async def test_auto_delete_queue_goes_with_its_last_consumer(
    connection: AbstractConnection, channel: AbstractChannel, name: str
) -> None:
    queue = await channel.declare_queue(name, auto_delete=True)
    inboxes: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    tags = [await queue.consume(inboxes.put) for _ in range(2)]
    await queue.cancel(tags[0])
    assert await is_there(connection, name)
    await queue.cancel(tags[1])
    assert not await is_there(connection, name)


async def test_auto_delete_queue_that_never_had_a_consumer_stays(
    connection: AbstractConnection, name: str
) -> None:
    async with connection.channel() as other:
        await other.declare_queue(name, auto_delete=True)
    assert await is_there(connection, name)
    async with connection.channel() as other:
        await other.queue_delete(name)


async def test_cc_and_bcc_add_routing_keys_and_only_bcc_is_hidden(channel: AbstractChannel) -> None:
    to, copy, blind = [await channel.declare_queue(exclusive=True) for _ in range(3)]
    headers: dict[str, Any] = {"CC": [copy.name], "BCC": [blind.name]}
    await send(channel.default_exchange, to.name, headers=headers)
    for queue in (to, copy, blind):
        message = await queue.get(no_ack=True)
        assert message.headers == {"CC": [copy.name]}
        assert message.routing_key == to.name


async def test_many_outstanding_publishes_are_all_confirmed(
    channel: AbstractChannel, queue: AbstractQueue
) -> None:
    bodies = [b"%d" % number for number in range(500)]
    confirms = await asyncio.gather(
        *(channel.default_exchange.publish(Message(body), queue.name) for body in bodies)
    )
    assert [type(confirm).__name__ for confirm in confirms] == ["Ack"] * len(bodies)
    assert sorted(await drain(queue)) == sorted(bodies)


async def test_returned_message_is_raised_where_it_was_published(
    connection: AbstractConnection, name: str
) -> None:
    async with connection.channel(on_return_raises=True) as channel:
        with pytest.raises(PublishError) as returned:
            await channel.default_exchange.publish(Message(b"back"), name, mandatory=True)
        assert returned.value.message is not None
        assert returned.value.message.body == b"back"


async def test_return_callback_is_called_before_the_confirm(channel: AbstractChannel, name: str) -> None:
    returned: list[AbstractIncomingMessage] = []
    channel.return_callbacks.add(lambda _, message: returned.append(message))
    await channel.default_exchange.publish(Message(b"back", headers={"k": 1}), name, mandatory=True)
    [message] = returned
    assert (message.body, message.routing_key, message.headers) == (b"back", name, {"k": 1})


async def test_failed_processing_requeues_and_the_next_try_sees_it_redelivered(
    channel: AbstractChannel, queue: AbstractQueue
) -> None:
    await send(channel.default_exchange, queue.name)
    tries = []
    async with queue.iterator(timeout=WAIT_SECONDS_MAX) as messages:
        async for message in messages:
            tries.append(message.redelivered)
            if message.redelivered:
                await message.ack()
                break
            await message.nack(requeue=True)
    assert tries == [False, True]


async def test_consumer_is_told_when_its_queue_is_deleted(
    connection: AbstractConnection, channel: AbstractChannel, queue: AbstractQueue
) -> None:
    cancelled: asyncio.Queue[Any] = asyncio.Queue()
    deliveries: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    (await channel.get_underlay_channel()).on_consumer_cancel_callbacks.add(cancelled.put)
    tag = await queue.consume(deliveries.put)
    async with connection.channel() as other:
        await other.queue_delete(queue.name)
    assert (await asyncio.wait_for(cancelled.get(), WAIT_SECONDS_MAX)).consumer_tag == tag


async def test_reply_goes_straight_to_the_channel_that_asked(
    connection: AbstractConnection, channel: AbstractChannel, queue: AbstractQueue
) -> None:
    async def answer(request: AbstractIncomingMessage) -> None:
        assert request.reply_to is not None
        reply = Message(request.body.upper(), correlation_id=request.correlation_id)
        await channel.default_exchange.publish(reply, request.reply_to, mandatory=True)
        await request.ack()

    await queue.consume(answer)
    replies: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    async with connection.channel() as asking:
        reply_queue = await asking.get_queue("amq.rabbitmq.reply-to", ensure=False)
        await reply_queue.consume(replies.put, no_ack=True)
        await asking.default_exchange.publish(
            Message(b"question", correlation_id="42", reply_to="amq.rabbitmq.reply-to"), queue.name
        )
        reply = await asyncio.wait_for(replies.get(), WAIT_SECONDS_MAX)
    assert (reply.body, reply.correlation_id) == (b"QUESTION", "42")


async def test_transaction_left_by_an_error_is_rolled_back(
    connection: AbstractConnection, queue: AbstractQueue
) -> None:
    async def fail(channel: AbstractChannel) -> None:
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"dropped"), queue.name)
            raise LookupError

    async with connection.channel(publisher_confirms=False) as channel:
        with pytest.raises(LookupError):
            await fail(channel)
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"kept"), queue.name)
    assert await drain(queue) == [b"kept"]


@pytest.mark.parametrize(
    "value",
    [
        *[-128, 127, -(2**15), 2**16 - 1, -(2**31), 2**32 - 1, -(2**63), 2**63 - 1],
        *[1.5, -0.0, True, None, "text", bytearray(b"\x00\xff"), Decimal("12.34")],
        datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
        [1, [2.5, [None]], {"deep": {"er": "x" * 1000}}],
    ],
    ids=lambda value: str(value)[:30],
)
async def test_header_value_comes_back_as_it_was(
    channel: AbstractChannel, queue: AbstractQueue, value: Any
) -> None:
    await send(channel.default_exchange, queue.name, headers={"key": value})
    assert (await queue.get(no_ack=True)).headers == {"key": value}


async def test_large_bodies_of_two_channels_do_not_mix(connection: AbstractConnection) -> None:
    async def round_trip(body: bytes) -> bytes:
        async with connection.channel() as channel:
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(Message(body), queue.name)
            return (await queue.get(no_ack=True, timeout=WAIT_SECONDS_MAX)).body

    bodies = [LARGE_BODY, LARGE_BODY[::-1]]
    assert await asyncio.gather(*map(round_trip, bodies)) == bodies


async def test_secret_can_be_updated_on_a_connection_in_use(connection: AbstractConnection) -> None:
    answer = await connection.update_secret("guest", reason="rotated")
    assert type(answer).__name__ == "UpdateSecretOk"


async def test_wrong_password_is_told_as_an_authentication_error(broker: Address) -> None:
    with pytest.raises(ProbableAuthenticationError):
        await aio_pika.connect(broker.url().replace(":guest@", ":wrong@"))


async def test_unknown_vhost_closes_the_connection(broker: Address, name: str) -> None:
    # aio-pika does not read the code of a close in answer to connection.open; other clients' tests do.
    with pytest.raises(InvalidFrameError, match=r"Connection\.Close"):
        await aio_pika.connect(broker.url(name))


async def test_publish_to_a_missing_exchange_fails_its_confirm_and_spares_the_connection(
    connection: AbstractConnection, name: str
) -> None:
    async with connection.channel() as channel:
        exchange = await channel.get_exchange(name, ensure=False)
        with pytest.raises(ChannelClosed):
            await send(exchange, "lost")
    assert not await is_there(connection, name)


async def test_robust_connection_restores_queue_binding_and_consumer_after_a_cut(
    broker: Address, name: str
) -> None:
    received: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    async with (
        proxy_to(broker) as proxy,
        await aio_pika.connect_robust(proxy.address.url(), reconnect_interval=0.05) as robust,
        await aio_pika.connect(broker.url()) as steady,
    ):
        channel = await robust.channel()
        exchange = await channel.declare_exchange(name, ExchangeType.FANOUT, auto_delete=True)
        queue = await channel.declare_queue(exclusive=True, auto_delete=True)
        await queue.bind(exchange)
        await queue.consume(received.put, no_ack=True)
        restored = asyncio.Event()
        channel.reopen_callbacks.add(lambda _: restored.set())
        proxy.cut()
        await asyncio.wait_for(restored.wait(), WAIT_SECONDS_MAX)
        assert proxy.connection_count == 2
        publisher = await steady.channel()
        await send(await publisher.get_exchange(name), "after the cut")
        assert (await asyncio.wait_for(received.get(), WAIT_SECONDS_MAX)).body == b"after the cut"
