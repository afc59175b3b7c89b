"""The rules of queues through aio-pika: calls that time out, expiration, delays, arguments, live policies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import DeliveryError
from aio_pika.patterns import RPC
from aiormq.exceptions import ChannelPreconditionFailed

import warren
from tests.clients.conftest import WAIT_SECONDS_MAX
from tests.support.process import Address

SOON_S = 0.06
CALL_SECONDS = 1

Inbox = asyncio.Queue[AbstractIncomingMessage]


@pytest.fixture
async def connection(broker: Address) -> AsyncIterator[AbstractConnection]:
    async with await aio_pika.connect(broker.url()) as connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    return await connection.channel()


async def declare(channel: AbstractChannel, queue: str, **arguments: Any) -> AbstractQueue:
    """An exclusive queue; `message_ttl` is the argument `x-message-ttl`."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return await channel.declare_queue(queue, exclusive=True, arguments=named)


async def next_message(inbox: Inbox) -> AbstractIncomingMessage:
    return await asyncio.wait_for(inbox.get(), WAIT_SECONDS_MAX)


async def bodies(queue: AbstractQueue) -> list[bytes]:
    found = []
    while message := await queue.get(no_ack=True, fail=False):
        found.append(message.body)
    return found


# --- calls ---


@pytest.fixture
async def rpc(channel: AbstractChannel) -> AsyncIterator[RPC]:
    rpc = await RPC.create(channel)
    yield rpc
    await rpc.close()


async def multiply(*, left: int, right: int) -> int:
    return left * right


async def test_call_brings_its_result(rpc: RPC, name: str) -> None:
    await rpc.register(name, multiply, auto_delete=True)
    results = [rpc.call(name, {"left": number, "right": number}) for number in range(50)]
    assert await asyncio.gather(*results) == [number * number for number in range(50)]
    await rpc.unregister(multiply)


async def test_call_that_nobody_takes_in_time_comes_back_as_a_dead_letter(
    connection: AbstractConnection, rpc: RPC, name: str
) -> None:
    """Its time is over while the one that serves is busy; a headers exchange brings it back to the caller."""
    busy, free = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        busy.set()
        await free.wait()
        return "done"

    async with connection.channel() as serving_channel:
        await serving_channel.set_qos(prefetch_count=1)
        serving = await RPC.create(serving_channel)
        await serving.register(name, work, auto_delete=True)
        first = asyncio.ensure_future(rpc.call(name))
        await asyncio.wait_for(busy.wait(), WAIT_SECONDS_MAX)
        with pytest.raises(TimeoutError) as late:
            await asyncio.wait_for(rpc.call(name, expiration=CALL_SECONDS), WAIT_SECONDS_MAX)
        message: AbstractIncomingMessage = late.value.args[1]
        assert message.headers["x-first-death-reason"] == "expired"
        free.set()
        assert await asyncio.wait_for(first, WAIT_SECONDS_MAX) == "done"
        await serving.unregister(work)
        await serving.close()


async def test_direct_reply_finds_its_way_through_a_queue_with_limits(
    connection: AbstractConnection, channel: AbstractChannel, name: str
) -> None:
    queue = await declare(channel, name, max_length=10, message_ttl=60_000)

    async def answer(request: AbstractIncomingMessage) -> None:
        assert request.reply_to is not None
        reply = Message(request.body.upper(), correlation_id=request.correlation_id)
        await channel.default_exchange.publish(reply, request.reply_to)
        await request.ack()

    await queue.consume(answer)
    async with connection.channel() as asking:
        replies: Inbox = asyncio.Queue()
        reply_to = await asking.get_queue("amq.rabbitmq.reply-to", ensure=False)
        await reply_to.consume(replies.put, no_ack=True)
        question = Message(b"question", reply_to=reply_to.name, correlation_id="7", expiration=60)
        await asking.default_exchange.publish(question, queue.name)
        reply = await next_message(replies)
        assert (reply.body, reply.correlation_id) == (b"QUESTION", "7")


# --- time ---


async def test_expired_messages_become_dead_letters(channel: AbstractChannel, name: str) -> None:
    exchange = await channel.declare_exchange(f"{name}-dlx", ExchangeType.TOPIC, auto_delete=True)
    dead = await declare(channel, f"{name}-dead")
    await dead.bind(exchange, "#")
    queue = await declare(channel, name, dead_letter_exchange=exchange.name)
    letters: Inbox = asyncio.Queue()
    await dead.consume(letters.put, no_ack=True)
    for number in range(10):
        message = Message(b"%d" % number, expiration=SOON_S * (10 - number))
        await channel.default_exchange.publish(message, queue.name)
    got = [await next_message(letters) for _ in range(10)]
    assert sorted(int(letter.body) for letter in got) == list(range(10))
    for letter in got:
        deaths: Any = letter.headers["x-death"]
        assert [(death["queue"], death["reason"], death["exchange"]) for death in deaths] == [
            (name, "expired", "")
        ]
        assert (letter.exchange, letter.routing_key, letter.expiration) == (exchange.name, name, None)
    assert await bodies(queue) == []


async def test_delayed_messages_come_in_the_order_of_their_times(channel: AbstractChannel, name: str) -> None:
    arguments: dict[str, Any] = {"x-delayed-type": "fanout"}
    exchange = await channel.declare_exchange(
        name, ExchangeType.X_DELAYED_MESSAGE, auto_delete=True, arguments=arguments
    )
    queue = await declare(channel, name)
    await queue.bind(exchange)
    inbox: Inbox = asyncio.Queue()
    await queue.consume(inbox.put, no_ack=True)
    delays = [600, 300, 0]
    await asyncio.gather(
        *(
            exchange.publish(Message(b"%d" % delay, headers={"x-delay": delay}), "any", mandatory=False)
            for delay in delays
        )
    )
    assert [(await next_message(inbox)).body for _ in delays] == [b"0", b"300", b"600"]


async def test_mandatory_message_that_waits_is_not_returned(channel: AbstractChannel, name: str) -> None:
    exchange = await channel.declare_exchange(
        name, ExchangeType.X_DELAYED_MESSAGE, arguments={"x-delayed-type": "direct"}
    )
    message = Message(b"waits", headers={"x-delay": 60_000})
    confirm = await exchange.publish(message, "nowhere", mandatory=True)
    assert type(confirm).__name__ == "Ack"
    await exchange.delete()


# --- arguments ---


async def test_refused_message_is_raised_where_it_was_published(channel: AbstractChannel, name: str) -> None:
    queue = await declare(channel, name, max_length=1, overflow="reject-publish")
    await channel.default_exchange.publish(Message(b"fits"), queue.name)
    with pytest.raises(DeliveryError):
        await channel.default_exchange.publish(Message(b"too much"), queue.name)
    assert await bodies(queue) == [b"fits"]


async def test_priorities_of_outstanding_publishes_count(channel: AbstractChannel, name: str) -> None:
    queue = await declare(channel, name, max_priority=5)
    await asyncio.gather(
        *(
            channel.default_exchange.publish(Message(b"%d" % number, priority=number % 6), queue.name)
            for number in range(60)
        )
    )
    order = [int(body) for body in await bodies(queue)]
    assert order == sorted(range(60), key=lambda number: -(number % 6))


async def test_same_arguments_of_any_width_redeclare_and_others_do_not(
    connection: AbstractConnection, channel: AbstractChannel, name: str
) -> None:
    await declare(channel, name, message_ttl=1000, max_priority=3)
    await declare(channel, name, max_priority=3, message_ttl=1000)
    with pytest.raises(ChannelPreconditionFailed, match="inequivalent arg 'x-message-ttl'"):
        await declare(await connection.channel(), name, message_ttl=1001, max_priority=3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"message_ttl": -1},
        {"message_ttl": "1000"},
        {"expires": 0},
        {"max_length": -1},
        {"overflow": "explode"},
        {"max_priority": 256},
        {"dead_letter_routing_key": "k"},
        {"retry_delay_max": 10},
        {"group_header": ""},
        {"single_active_consumer": "yes"},
    ],
    ids=str,
)
async def test_argument_that_makes_no_sense_is_406(
    channel: AbstractChannel, name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ChannelPreconditionFailed, match="invalid arg"):
        await declare(channel, name, **arguments)


# --- policies ---


async def test_policy_holds_at_once_and_only_as_long_as_it_is_there(tmp_path: Path, name: str) -> None:
    """In a broker within this very event loop."""
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        connection = await aio_pika.connect(broker.url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, durable=True)
            dead = await channel.declare_queue(f"{name}-dead", durable=True)

            async def publish(count: int) -> None:
                for number in range(count):
                    message = Message(b"%d" % number, delivery_mode=DeliveryMode.PERSISTENT)
                    await channel.default_exchange.publish(message, queue.name)

            await publish(5)
            definition: dict[str, Any] = {
                "max-length": 2,
                "dead-letter-exchange": "",
                "dead-letter-routing-key": dead.name,
            }
            put = warren.commands.PutPolicy(
                vhost="/", name="short", pattern=f"^{name}$", definition=definition, apply_to="queues"
            )
            broker.execute(put)
            letters: Inbox = asyncio.Queue()
            await dead.consume(letters.put, no_ack=True)
            assert [(await next_message(letters)).body for _ in range(3)] == [b"0", b"1", b"2"]
            await publish(1)
            assert (await next_message(letters)).body == b"3"
            assert await bodies(queue) == [b"4", b"0"]
            broker.execute(warren.commands.DeletePolicy(vhost="/", name="short"))
            await publish(5)
            assert await bodies(queue) == [b"0", b"1", b"2", b"3", b"4"]
