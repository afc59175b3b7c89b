"""A message as it was published: immutable, and shared by all the queues it went to."""

from __future__ import annotations

from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.traits import expiration_of, priority_of


class Message:
    """Names are short strings as on the wire, length octet included, since so they leave again."""

    __slots__ = (
        "body", "died", "exchange", "expiration_ms", "persistent", "priority", "properties", "routing_key",
        "scheduled", "time_ms",
    )  # fmt: skip

    def __init__(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
        time_ms: int = 0,
        died: bool = False,
        scheduled: bool = False,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.persistent = persistent
        self.time_ms = time_ms  # when the message came, since 1970; of a scheduled one, when it is due
        self.died = died  # whether this broker dead-lettered it, and so wrote its x-death header
        self.scheduled = scheduled
        self.expiration_ms = expiration_of(properties)  # -1 for a message that does not expire by itself
        self.priority = priority_of(properties)

    def came_at(self, time_ms: int) -> Message:
        """The same message with another time: what is in a transaction comes when that is committed."""
        return Message(self.exchange, self.routing_key, self.properties, self.body, self.persistent, time_ms)

    def waiting_until(self, due_ms: int) -> Message:
        """The same message, to be kept until it is due."""
        return Message(
            self.exchange,
            self.routing_key,
            self.properties,
            self.body,
            self.persistent,
            due_ms,
            self.died,
            scheduled=True,
        )

    @property
    def exchange_name(self) -> str:
        return self.exchange[1:].decode("utf-8", "surrogateescape")

    @property
    def key(self) -> str:
        return self.routing_key[1:].decode("utf-8", "surrogateescape")

    def decode_properties(self) -> BasicProperties:
        return decode_properties(self.properties)

    def __repr__(self) -> str:
        return f"<Message to {self.exchange_name!r} with key {self.key!r}, {len(self.body)} bytes>"


def publish_message(
    exchange: bytes,
    routing_key: bytes,
    properties: bytes,
    body: bytes,
    persistent: bool,
    time_ms: int,
    expiration_ms: int,
    priority: int,
) -> Message:
    """A message as `Message` makes it, but its expiration and priority are known already. A call of __init__
    would cost as much as the rest of a publish (`warren perf throughput` watches it).
    """
    message = Message.__new__(Message)
    message.exchange = exchange
    message.routing_key = routing_key
    message.properties = properties
    message.body = body
    message.persistent = persistent
    message.time_ms = time_ms
    message.expiration_ms = expiration_ms
    message.priority = priority
    return message
