"""Short words for what the tests of pika do over and over."""

from __future__ import annotations

from typing import Any

import pika
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.conftest import serve_until
from tests.support.process import Address


def connect(broker: Address, **options: Any) -> BlockingConnection:
    return BlockingConnection(pika.ConnectionParameters(host=broker.host, port=broker.port, **options))


def publish(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def ready_count(channel: BlockingChannel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def hold(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    """Take so many without acknowledging them; gives their delivery tags."""
    return [channel.basic_get(queue)[0].delivery_tag for _ in range(count)]


def drain(channel: BlockingChannel, queue: str) -> list[tuple[bytes, bool]]:
    """Take all that is ready, as pairs of body and redelivered."""
    taken = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append((got[2], got[0].redelivered))
    return taken


class Inbox:
    """A consumer that keeps what it gets."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: Any) -> None:
        self.channel = channel
        self.deliveries: list[tuple[Any, Any, bytes]] = []
        self.tag = channel.basic_consume(queue, self.take, **options)

    def take(self, _channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.deliveries.append((method, properties, body))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.deliveries]

    def wait_for(self, count: int) -> None:
        serve_until(
            lambda: self.channel.connection.process_data_events(time_limit=1),
            lambda: len(self.deliveries) >= count,
        )
