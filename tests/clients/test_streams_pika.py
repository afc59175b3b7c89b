"""Streams as programs with pika use them: read from any offset or time, filtered, and through restarts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.clients.conftest import serve_until
from tests.clients.pika_client import connect, ready_count
from tests.clients.test_rules_restart import ENDS, Lives
from tests.support.process import Address

STREAM: dict[str, object] = {"x-queue-type": "stream"}
SMALL = STREAM | {"x-stream-max-segment-size-bytes": 10_000}
CONSUMERS = 20


@pytest.fixture
def connection(broker: Address) -> Iterator[BlockingConnection]:
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def publisher(connection: BlockingConnection) -> BlockingChannel:
    """A channel on which a message is safe once it is published."""
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def stream(connection: BlockingConnection, name: str) -> Iterator[str]:
    channel = connection.channel()
    channel.queue_declare(name, durable=True, arguments=SMALL)
    yield name
    channel.queue_delete(name)


class Reader:
    """A consumer on a channel of its own, that acks what it gets."""

    def __init__(
        self,
        connection: BlockingConnection,
        stream: str,
        *,
        prefetch: int = 50,
        tag: str = "",
        **arguments: Any,
    ) -> None:
        self.channel = connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.got: list[tuple[int, bytes]] = []
        named = {f"x-stream-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.channel.basic_consume(stream, self.take, consumer_tag=tag or None, arguments=named)

    def take(self, channel: BlockingChannel, method: Any, properties: BasicProperties, body: bytes) -> None:
        assert properties.headers is not None
        self.got.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)

    def wait_for(self, count: int) -> list[tuple[int, bytes]]:
        connection = self.channel.connection
        serve_until(lambda: connection.process_data_events(time_limit=1), lambda: len(self.got) >= count)
        return self.got


def put(channel: BlockingChannel, stream: str, numbers: range, **headers: Any) -> None:
    properties = BasicProperties(headers=headers) if headers else None
    for number in numbers:
        channel.basic_publish("", stream, b"%d" % number, properties)


def numbered(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, end)]


# --- reading ---


@pytest.mark.parametrize(
    ("offset", "first"),
    [("first", 0), ("last", 9), (4, 4), ("1h", 0), (datetime.now(UTC) - timedelta(hours=1), 0)],
    ids=["first", "last", "number", "interval", "timestamp"],
)
def test_consumer_begins_where_it_says(
    connection: BlockingConnection, publisher: BlockingChannel, stream: str, offset: object, first: int
) -> None:
    put(publisher, stream, range(10))
    reader = Reader(connection, stream, offset=offset)
    assert reader.wait_for(10 - first) == numbered(first, 10)
    put(publisher, stream, range(10, 12))
    assert reader.wait_for(12 - first) == numbered(first, 12)


def test_consumer_at_the_end_gets_each_message_as_it_comes(
    connection: BlockingConnection, publisher: BlockingChannel, stream: str
) -> None:
    """One at a time, and several that come while the disk is busy with the ones before."""
    reader = Reader(connection, stream, offset="next", prefetch=5)
    for number in range(30):
        put(publisher, stream, range(number, number + 1))
        reader.wait_for(number + 1)
    plain = connection.channel()
    for number in range(30, 300):
        plain.basic_publish("", stream, b"%d" % number)
    assert reader.wait_for(300) == numbered(0, 300)


def test_filters_choose_what_comes(
    connection: BlockingConnection, publisher: BlockingChannel, stream: str
) -> None:
    for number in range(60):
        values = (
            {} if number % 3 == 0 else {"x-stream-filter-value": "even" if number % 2 == 0 else "odd,big"}
        )
        put(publisher, stream, range(number, number + 1), **values)
    odd = [number for number in range(60) if number % 3 and number % 2]
    plain = [number for number in range(60) if number % 3 == 0]
    readers = {
        "odd": Reader(connection, stream, offset="first", filter="odd,big"),
        "both": Reader(connection, stream, offset="first", filter=["odd", "even"]),
        "odd or plain": Reader(connection, stream, offset="first", filter=["odd"], match_unfiltered=True),
    }
    expected = {
        "odd": odd,
        "both": [number for number in range(60) if number % 3],
        "odd or plain": sorted(odd + plain),
    }
    for name, reader in readers.items():
        assert [offset for offset, _ in reader.wait_for(len(expected[name]))] == expected[name]


def test_twenty_consumers_at_different_offsets_each_get_exactly_their_messages(
    broker: Address, connection: BlockingConnection, stream: str
) -> None:
    """While publishing goes on, over many segments."""
    there, coming = 600, 200
    publisher = connection.channel()
    for number in range(there):
        publisher.basic_publish("", stream, b"%d" % number)
    serve_until(lambda: None, lambda: ready_count(publisher, stream) == there)
    with connect(broker) as other:
        readers = {
            first: Reader(other, stream, offset=first, prefetch=1 + first % 40)
            for first in range(0, there, there // CONSUMERS)
        }
        for number in range(there, there + coming):
            publisher.basic_publish("", stream, b"%d" % number)
            if number % 50 == 0:
                other.process_data_events(time_limit=0)
        for first, reader in readers.items():
            assert reader.wait_for(there + coming - first) == numbered(first, there + coming)
        assert len(readers) == CONSUMERS


# --- what is not for streams ---


def test_consumer_without_prefetch_is_refused(connection: BlockingConnection, stream: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as raised:
        connection.channel().basic_consume(stream, lambda *_: None)
    assert raised.value.reply_code == 406


def test_get_ends_the_connection(broker: Address, stream: str) -> None:
    connection = connect(broker)
    with pytest.raises(ConnectionClosedByBroker) as raised:
        connection.channel().basic_get(stream)
    assert raised.value.reply_code == 540


# --- retention ---


def test_what_is_too_much_or_too_old_goes(
    connection: BlockingConnection, publisher: BlockingChannel, name: str
) -> None:
    """But for the last segment, and what is left can be read from its first offset on."""
    channel = connection.channel()
    limits: dict[str, dict[str, object]] = {
        f"{name}-size": {"x-max-length-bytes": 30_000},
        f"{name}-age": {"x-max-age": "1s"},
    }
    for stream, limit in limits.items():
        channel.queue_declare(stream, durable=True, arguments=SMALL | limit)
        for number in range(600):
            channel.basic_publish("", stream, b"%d" % number)
        put(publisher, stream, range(600, 601))
    for stream in limits:
        serve_until(
            lambda: connection.process_data_events(time_limit=0.05),
            lambda stream=stream: ready_count(channel, stream) < 500,  # type: ignore[misc]  # it is given
        )
        left = ready_count(channel, stream)
        assert left > 0
        reader = Reader(connection, stream, offset="first")
        assert [body for _, body in reader.wait_for(1)][-1] == b"%d" % reader.got[-1][0]
        assert reader.got[0][0] >= 601 - left
        channel.queue_delete(stream)


# --- restarts ---


@pytest.fixture(params=ENDS, ids=lambda end: end.name)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    end: signal.Signals = request.param
    return Lives(tmp_path / "data", end)


def test_stream_and_its_consumers_go_on_after_a_restart(lives: Lives) -> None:
    with lives.life() as channel:
        channel.queue_declare("s", durable=True, arguments=SMALL)
        put(channel, "s", range(30), **{"x-stream-filter-value": "a"})
        reader = Reader(channel.connection, "s", tag="me", offset="first", automatic_offset_tracking=True)
        reader.wait_for(30)
        reader.channel.close()
        put(channel, "s", range(30, 40))
    with lives.life() as channel:
        put(channel, "s", range(40, 45))
        reader = Reader(channel.connection, "s", tag="me", offset="first", automatic_offset_tracking=True)
        assert reader.wait_for(15) == numbered(30, 45)
        assert Reader(channel.connection, "s", offset="first").wait_for(45) == numbered(0, 45)
        filtered = Reader(channel.connection, "s", offset=20, filter="a")
        assert filtered.wait_for(10) == numbered(20, 30)
        assert ready_count(channel, "s") == 45
