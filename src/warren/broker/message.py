"""A message as it was published: immutable, and shared by all the queues it went to."""

from __future__ import annotations

from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.traits import expiration_of, priority_of


class Message:
    """The names are short strings as on the wire, length octet included, since so they leave again.

    `time_ms` is when it came, since 1970; of a `scheduled` message, when it is due. `expiration_ms` is its
    own, or -1. A message that `died` was dead-lettered by this broker, which wrote its x-death header.
    """

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
        self.time_ms = time_ms
        self.died = died
        self.scheduled = scheduled
        self.expiration_ms = expiration_of(properties)
        self.priority = priority_of(properties)

    def came_at(self, time_ms: int) -> Message:
        """The same message with another time: what is in a transaction comes when that is committed."""
        return Message(self.exchange, self.routing_key, self.properties, self.body, self.persistent, time_ms)

    @property
    def exchange_name(self) -> str:
        return self.exchange[1:].decode("utf-8", "surrogateescape")

    @property
    def key(self) -> str:
        return self.routing_key[1:].decode("utf-8", "surrogateescape")

    def decode_properties(self) -> BasicProperties:
        return decode_properties(self.properties)
