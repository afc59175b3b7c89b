"""Connections, channels and names for the tests of what clients see on the wire.

Queues are exclusive where they can be; what is not has a name from `unique`, and is deleted when the test
ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.process import Address
from warren.amqp import methods as m

Connect: TypeAlias = Callable[..., AmqpClient]
Unique: TypeAlias = Callable[[], str]


def publish_numbers(channel: AmqpChannel, queue: str, count: int) -> None:
    """Messages whose bodies are their numbers, from 0."""
    for number in range(count):
        channel.publish("", queue, b"%d" % number)


def hold_messages(channel: AmqpChannel, count: int = 1) -> str:
    """A queue whose messages are all out on the channel; on a new one each body is its delivery tag."""
    queue = channel.declare().queue
    for number in range(1, count + 1):
        channel.publish("", queue, b"%d" % number)
        channel.get(queue, no_ack=False)
    return queue


def reopen(channel: AmqpChannel) -> None:
    """Requeues what the channel has not settled, and starts it anew."""
    channel.close()
    channel.call(m.ChannelOpen(), m.ChannelOpenOk)


@pytest.fixture
def unique(broker: Address) -> Iterator[Unique]:
    """Names of queues and exchanges that nobody else uses."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test-{uuid.uuid4().hex}")
        return names[-1]

    yield make
    if names:
        with AmqpClient.connect(broker) as client:
            channel = client.channel()
            for name in names:
                channel.call(m.QueueDelete(queue=name), m.QueueDeleteOk)
                channel.call(m.ExchangeDelete(exchange=name), m.ExchangeDeleteOk)


@pytest.fixture
def connect(broker: Address, unique: Unique) -> Iterator[Connect]:
    """Connects, and closes in the end; each connection is checked to end well."""
    with ExitStack() as clients:

        def make(**options: object) -> AmqpClient:
            client = AmqpClient.connect(broker, **options)  # type: ignore[arg-type]  # as connect is called
            clients.callback(client.close)
            return client

        yield make


@pytest.fixture
def client(connect: Connect) -> AmqpClient:
    return connect()


@pytest.fixture
def channel(client: AmqpClient) -> AmqpChannel:
    return client.channel()


@pytest.fixture
def second(client: AmqpClient) -> AmqpChannel:
    """Another channel of the same connection."""
    return client.channel(2)


@pytest.fixture
def other(connect: Connect) -> AmqpChannel:
    """A channel of another connection."""
    return connect().channel()


@pytest.fixture
def raw(broker: Address) -> Iterator[AmqpClient]:
    """A socket on which nothing has been said yet."""
    client = AmqpClient(broker)
    yield client
    client.abort()


@pytest.fixture(scope="session")
def platform(broker: Address) -> str:
    with AmqpClient.connect(broker) as client:
        return str(client.server_properties["platform"])


@pytest.fixture
def unlike_rabbitmq(platform: str) -> None:
    """For rules in which WarrenMQ differs from RabbitMQ on purpose."""
    if platform.startswith("Erlang"):
        pytest.skip("RabbitMQ does otherwise")
