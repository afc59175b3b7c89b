"""A broker inside a program: on either event loop, with a real client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import aio_pika
import pytest
import uvloop
from aio_pika.abc import AbstractRobustConnection
from aiormq.exceptions import AMQPConnectionError, ChannelAccessRefused, ConnectionClosed

import warren
from tests.support.fakes import quick_hash
from warren import commands, events
from warren.broker.access import Permissions
from warren.server.config import GUEST

T = TypeVar("T")
Scenario: TypeAlias = Callable[[warren.Broker], Awaitable[None]]
WAIT_SECONDS_MAX = 10


def on_asyncio(scenario: Awaitable[None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(wait(scenario))


def on_uvloop(scenario: Awaitable[None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wait(scenario))


async def wait(scenario: Awaitable[None]) -> None:
    await asyncio.wait_for(scenario, WAIT_SECONDS_MAX)


@pytest.fixture(params=[on_asyncio, on_uvloop])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario with a broker. Each test runs twice: on asyncio's own loop, and on uvloop."""
    on_loop = request.param

    def run_scenario(scenario: Scenario) -> None:
        async def with_broker() -> None:
            async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
                await scenario(broker)

        on_loop(with_broker())

    return run_scenario


class Seen:
    """The events of some kinds, and a way to wait for the next one."""

    def __init__(self, broker: warren.Broker, *kinds: type[events.Event]) -> None:
        self.queue: asyncio.Queue[events.Event] = asyncio.Queue()
        for kind in kinds:
            broker.subscribe(kind, self.queue.put_nowait)

    async def next(self, kind: type[T]) -> T:
        event = await self.queue.get()
        assert isinstance(event, kind), event
        return event


async def connect(broker: warren.Broker, user: str = "guest") -> AbstractRobustConnection:
    return await aio_pika.connect_robust(f"amqp://{user}:{user}@{broker.address}/", fail_fast="1")


def test_message_goes_through_and_everything_is_told(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: warren.Broker) -> None:
        seen = Seen(
            broker,
            events.ConnectionOpened,
            events.ConnectionClosed,
            events.QueueCreated,
            events.MessagePublished,
            events.MessageDelivered,
            events.MessageAcked,
        )
        connection = await connect(broker)
        opened = await seen.next(events.ConnectionOpened)
        assert (opened.user, opened.vhost) == ("guest", "/")
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        assert await seen.next(events.QueueCreated) == events.QueueCreated("/", "q")
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
        published = await seen.next(events.MessagePublished)
        assert (published.message.body, published.queues) == (b"hello", ("q",))
        async with queue.iterator() as messages:
            message = await anext(messages)
            assert message.body == b"hello"
            assert (await seen.next(events.MessageDelivered)).message is published.message
            await message.ack()
            assert (await seen.next(events.MessageAcked)).message is published.message
        await connection.close()
        closed = await seen.next(events.ConnectionClosed)
        assert closed.connection == opened.connection

    run(scenario)


def test_user_made_by_a_command_connects_and_is_held_to_its_permissions(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(broker: warren.Broker) -> None:
        broker.execute(commands.PutUser(name="me", password=quick_hash("me")))
        mine = Permissions("^mine-", "^mine-", "^mine-")
        broker.execute(commands.SetPermissions(user="me", vhost="/", permissions=mine))
        connection = await connect(broker, "me")
        channel = await connection.channel()
        await channel.declare_queue("mine-1")
        with pytest.raises(ChannelAccessRefused):
            await channel.declare_queue("yours-1")
        await connection.close()

    run(scenario)


def test_user_that_nobody_made_is_refused(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: warren.Broker) -> None:
        seen = Seen(broker, events.AuthenticationFailed)
        with pytest.raises(AMQPConnectionError):
            await connect(broker, "nobody")
        assert (await seen.next(events.AuthenticationFailed)).user == "nobody"

    run(scenario)


def test_topology_made_by_commands_is_there_for_clients(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: warren.Broker) -> None:
        broker.execute(commands.DeclareQueue(vhost="/", name="q"))
        broker.execute(commands.DeclareExchange(vhost="/", name="e", type="fanout"))
        broker.execute(commands.Bind(vhost="/", source="e", destination="q", to_queue=True))
        connection = await connect(broker)
        channel = await connection.channel()
        exchange = await channel.get_exchange("e")
        await exchange.publish(aio_pika.Message(b"hello"), "any")
        queue = await channel.get_queue("q")
        message = await queue.get(no_ack=True)
        assert message.body == b"hello"
        await connection.close()

    run(scenario)


def test_unsubscribed_callback_hears_nothing_more(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: warren.Broker) -> None:
        heard: list[events.Event] = []
        unsubscribe = broker.subscribe(events.QueueCreated, heard.append)
        broker.execute(commands.DeclareQueue(vhost="/", name="1"))
        unsubscribe()
        broker.execute(commands.DeclareQueue(vhost="/", name="2"))
        assert heard == [events.QueueCreated("/", "1")]

    run(scenario)


def test_end_of_the_broker_closes_its_connections_with_320(run: Callable[[Scenario], None]) -> None:
    async def scenario(broker: warren.Broker) -> None:
        connection = await aio_pika.connect(broker.url)
        closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        connection.close_callbacks.add(lambda _connection, error: closed.set_result(error))
        await broker.stop()
        error = await asyncio.wait_for(closed, WAIT_SECONDS_MAX)
        assert isinstance(error, ConnectionClosed)
        assert "CONNECTION_FORCED" in str(error)

    run(scenario)


def test_two_brokers_live_side_by_side(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            warren.Broker(port=0, data_dir=tmp_path / "1") as first,
            warren.Broker(port=0, data_dir=tmp_path / "2") as second,
        ):
            first.execute(commands.DeclareQueue(vhost="/", name="q"))
            assert first.port != second.port
            assert "q" not in second.node.vhosts["/"].queues

    on_asyncio(scenario())


def test_port_in_use_is_an_error_of_the_system(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with warren.Broker(port=0, data_dir=tmp_path) as first:
            with pytest.raises(OSError, match="in use"):
                await warren.Broker(port=first.port, data_dir=tmp_path).start()

    on_asyncio(scenario())


POLICY = commands.PutPolicy(vhost="/", name="p", pattern="^q", definition={"max-length": 5})
VHOST_LIMITS = commands.SetVhostLimits(vhost="/", max_queues=1)
USER_LIMITS = commands.SetUserLimits(user="guest", max_publish_rate=100)


def check_policies_and_limits(broker: warren.Broker) -> None:
    vhost = broker.node.vhosts["/"]
    assert vhost.queues["q"].rules.max_length == 5
    assert vhost.policies.names_of(vhost.queues["q"]) == ("p", None)
    assert vhost.limits.max_queues == 1
    assert broker.node.users["guest"].publishing is not None


def test_policies_and_limits_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with warren.Broker(port=0, data_dir=tmp_path) as broker:
            for command in (POLICY, VHOST_LIMITS, USER_LIMITS):
                broker.execute(command)
            broker.execute(commands.DeclareQueue(vhost="/", name="q", durable=True))
            check_policies_and_limits(broker)
        async with warren.Broker(port=0, data_dir=tmp_path) as broker:
            check_policies_and_limits(broker)
            broker.execute(commands.DeletePolicy(vhost="/", name="p"))
        async with warren.Broker(port=0, data_dir=tmp_path) as broker:
            assert broker.node.vhosts["/"].queues["q"].rules.max_length is None

    on_asyncio(scenario())


def test_policies_and_limits_of_the_configuration_are_made(tmp_path: Path) -> None:
    guest = replace(GUEST, limits=USER_LIMITS)

    async def scenario() -> None:
        async with warren.Broker(
            port=0, data_dir=tmp_path, policies=(POLICY,), vhost_limits=(VHOST_LIMITS,), users=(guest,)
        ) as broker:
            broker.execute(commands.DeclareQueue(vhost="/", name="q"))
            check_policies_and_limits(broker)

    on_asyncio(scenario())
