"""A message as it was published: immutable, and shared by all the queues it went to."""

from __future__ import annotations

from warren.amqp.properties import BasicProperties, decode_properties


class Message:
    """The names are short strings as on the wire, length octet included, since so they leave again."""

    __slots__ = ("body", "exchange", "persistent", "properties", "routing_key")

    def __init__(
        self, exchange: bytes, routing_key: bytes, properties: bytes, body: bytes, persistent: bool
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.persistent = persistent

    @property
    def exchange_name(self) -> str:
        return self.exchange[1:].decode("utf-8", "surrogateescape")

    @property
    def key(self) -> str:
        return self.routing_key[1:].decode("utf-8", "surrogateescape")

    def decode_properties(self) -> BasicProperties:
        return decode_properties(self.properties)
