"""A binding: from an exchange to a queue or another exchange."""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, Union

from warren.amqp.table import Table, encode_table

if TYPE_CHECKING:
    from warren.broker.exchange.exchange import Exchange
    from warren.broker.queue import Queue

Destination: TypeAlias = Union["Queue", "Exchange"]
Identity: TypeAlias = tuple[bool, str, str, bytes]


class Binding:
    """Two bindings are the same if destination, key and arguments are. It never changes."""

    def __init__(
        self, source: Exchange, destination: Destination, routing_key: str, arguments: Table
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments

    @property
    def identity(self) -> Identity:
        destination = self.destination
        return (destination.is_queue, destination.name, self.routing_key, encode_table(self.arguments))


class Incoming:
    """The bindings that lead to a queue or an exchange, by the exchange that they come from."""

    def __init__(self) -> None:
        self.by_source: dict[Exchange, dict[Binding, None]] = {}

    @property
    def sources(self) -> KeysView[Exchange]:
        return self.by_source.keys()

    def __iter__(self) -> Iterator[Binding]:
        return chain.from_iterable(self.by_source.values())

    def __bool__(self) -> bool:
        return bool(self.by_source)

    def add(self, binding: Binding) -> None:
        bindings = self.by_source.get(binding.source)
        if bindings is None:
            bindings = self.by_source[binding.source] = {}
        bindings[binding] = None

    def discard(self, binding: Binding) -> None:
        bindings = self.by_source.get(binding.source, {})
        bindings.pop(binding, None)
        if not bindings:
            self.by_source.pop(binding.source, None)
