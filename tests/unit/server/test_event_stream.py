"""The broker's own events in a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aio_pika
import pytest

import warren
from tests.support.happenings import Happenings
from tests.support.http_api import USERS
from warren import commands, events
from warren.amqp.table import Table
from warren.broker.message import Message
from warren.broker.parameters import Json
from warren.server import event_stream
from warren.server.config_error import ConfigError
from warren.server.event_stream import NAME, OF_MESSAGES, OF_OTHERS, name_of
from warren.storage.format import Record, records

Start: TypeAlias = Callable[..., AbstractAsyncContextManager[warren.Broker]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    @asynccontextmanager
    async def started(**settings: Any) -> AsyncIterator[warren.Broker]:
        given: dict[str, Any] = {"events_stream": True, "users": USERS} | settings
        async with warren.Broker(port=0, data_dir=tmp_path / "data", **given) as broker:
            yield broker

    return started


def written(data_dir: Path) -> list[Record]:
    """All messages in the stream, read after the broker has stopped."""
    found: list[Record] = []
    for manifest in (data_dir / "queues").glob("*/queue.json"):
        if json.loads(manifest.read_text())["declare_queue"]["name"] == NAME:
            for segment in sorted(manifest.parent.glob("*.seg")):
                found += records(segment.read_bytes())
    return found


def named(data_dir: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(record.message.body) for record in written(data_dir) if record.message.key == name]


async def publish(broker: warren.Broker, count: int, queue: str = "q") -> None:
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue)
        for i in range(count):
            message = aio_pika.Message(b"hello", message_id=str(i))
            await channel.default_exchange.publish(message, queue)


def wants_messages(broker: warren.Broker) -> bool:
    """Whether publishing makes events, which every message would pay for."""
    flags = broker.node.events
    return any((flags.published, flags.delivered, flags.acked, flags.died))


def test_names_are_the_words_with_dots() -> None:
    assert name_of(events.QueueCreated) == "queue.created"
    assert name_of(events.VhostLimitsChanged) == "vhost.limits.changed"
    assert {*OF_MESSAGES, *OF_OTHERS} == {
        kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)
    } - {events.Event}
    assert events.MessagePublished in OF_MESSAGES
    assert events.QueuePurged in OF_OTHERS


async def test_it_is_off_unless_wanted(start: Start, tmp_path: Path) -> None:
    async with start(events_stream=False) as broker:
        assert not wants_messages(broker)
        broker.execute(commands.DeclareQueue(vhost="/", name="q"))
        assert NAME not in broker.node.vhosts["/"].queues
    assert written(tmp_path / "data") == []


async def test_event_is_a_message_with_its_name_its_fields_and_when(start: Start, tmp_path: Path) -> None:
    async with start() as broker:
        before_ms = broker.world.time_ms()
        broker.execute(commands.DeclareQueue(vhost="/", name="q"))
        after_ms = broker.world.time_ms()
    [record] = [record for record in written(tmp_path / "data") if record.message.key == "queue.created"]
    properties = record.message.decode_properties()
    assert json.loads(record.message.body) == {"vhost": "/", "queue": "q"}
    assert properties.headers == {"event": "queue.created", "vhost": "/", "queue": "q"}
    assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)
    assert before_ms <= record.time_ms
    assert properties.timestamp in {before_ms // 1000, after_ms // 1000}
    assert record.message.persistent


async def test_of_messages_one_in_so_many_of_a_kind_is_written_without_its_body(
    start: Start, tmp_path: Path
) -> None:
    async with start(events_sample=10) as broker:
        await publish(broker, 25)
    found = named(tmp_path / "data", "message.published")
    assert [event["message_id"] for event in found] == ["0", "10", "20"]
    assert found[0] == {
        "vhost": "/",
        "queues": ["q"],
        "exchange": "",
        "routing_key": "q",
        "message_id": "0",
        "body_bytes": 5,
    }


async def test_sample_of_0_is_no_message_events_and_costs_none(start: Start, tmp_path: Path) -> None:
    async with start(events_sample=0) as broker:
        assert not wants_messages(broker)
        await publish(broker, 3)
    assert named(tmp_path / "data", "message.published") == []
    assert named(tmp_path / "data", "connection.opened") != []


async def test_messages_of_the_stream_itself_make_no_events(start: Start, tmp_path: Path) -> None:
    async with start(events_sample=1) as broker:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(aio_pika.Message(b"mine"), NAME)
        stream = broker.node.vhosts["/"].queues[NAME]
        message = Message(b"\0", b"\0", b"\0\0", b"", persistent=True)
        broker.node.events.emit(
            events.MessageDelivered("/", stream.name, message, "tag", 1, redelivered=False)
        )
    assert {record.message.key for record in written(tmp_path / "data")}.isdisjoint(
        {"message.published", "message.delivered"}
    )


async def test_what_ends_with_the_broker_is_written_too(start: Start, tmp_path: Path) -> None:
    async with start() as broker:
        connection = await aio_pika.connect(broker.url)
        await broker.stop()
        await connection.close()
    assert len(named(tmp_path / "data", "connection.closed")) == 1


async def test_events_beyond_what_may_wait_are_counted(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "WAITING_MAX", 5)
    async with start() as broker:
        for i in range(8):
            broker.execute(commands.DeclareQueue(vhost="/", name=f"q{i}"))
    assert len(named(tmp_path / "data", "queue.created")) == 5
    assert named(tmp_path / "data", "events.lost") == [{"count": 3}]


async def test_failure_is_written_as_text(start: Start, tmp_path: Path) -> None:
    async with start() as broker:
        broker.node.events.emit(events.Failure("c", ValueError("ours")))
    assert named(tmp_path / "data", "failure") == [{"connection": "c", "error": "ValueError('ours')"}]


async def test_exchange_of_a_dead_letter_does_not_hide_that_of_the_message(
    start: Start, tmp_path: Path
) -> None:
    message = Message(b"\1e", b"\1k", b"\0\0", b"body", persistent=False)
    async with start() as broker:
        broker.node.events.emit(events.MessageDeadLettered("/", "q", message, "rejected", "dlx"))
    [found] = named(tmp_path / "data", "message.dead.lettered")
    assert (found["exchange"], found["to_exchange"], found["reason"]) == ("e", "dlx", "rejected")


async def test_stream_that_somebody_deleted_is_no_trouble(start: Start, tmp_path: Path) -> None:
    async with start() as broker:
        broker.execute(commands.DeleteQueue(vhost="/", name=NAME))
        broker.execute(commands.DeclareQueue(vhost="/", name="q"))
    assert written(tmp_path / "data") == []


async def test_it_needs_the_vhost(start: Start) -> None:
    with pytest.raises(ConfigError, match="events_stream: there is no vhost '/'"):
        async with start(vhosts=("other",), users=()):
            pass


async def test_stream_stays_as_its_user_has_declared_it(start: Start) -> None:
    arguments: Table = {"x-queue-type": "stream", "x-max-age": "1D"}
    async with start(events_stream=False) as broker:
        broker.execute(commands.DeclareQueue(vhost="/", name=NAME, durable=True, arguments=arguments))
    async with start() as broker:
        assert broker.node.vhosts["/"].queues[NAME].arguments == arguments


async def test_shovels_are_told_of(start: Start, tmp_path: Path) -> None:
    definition: dict[str, Json] = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://"}
    async with start() as broker:
        with Happenings(broker, events.ShovelStopped) as happenings:
            broker.execute(
                commands.SetParameter(
                    vhost="/", component="shovel", name="s", value=definition | {"src-delete-after": 0}
                )
            )
            await happenings.until(events.ShovelStopped)
    assert named(tmp_path / "data", "shovel.stopped") == [
        {"vhost": "/", "shovel": "s", "reason": "it has carried all that it was to carry"}
    ]
