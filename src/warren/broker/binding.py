"""Bindings: each leads from an exchange to a queue or to another exchange."""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from itertools import chain
from typing import Protocol, TypeAlias

from warren.amqp.table import Table, encode_table

Identity: TypeAlias = tuple[bool, str, str, bytes]


class Destination(Protocol):
    """What a binding needs to know of the queue or exchange that it leads to."""

    is_queue: bool
    name: str
    deleted: bool
    retired: bool  # deleted as far as messages go, but its bindings stay
    incoming: Incoming


class BindingSource(Protocol):
    """What a binding needs to know of the exchange that it comes from."""

    name: str
    auto_delete: bool
    bindings: dict[Identity, Binding]
    incoming: Incoming
    is_remembered: bool

    def add(self, binding: Binding) -> bool: ...
    def discard(self, binding: Binding) -> bool: ...
    def forget_routes(self) -> None: ...


class Binding:
    """Immutable. An exchange has one binding for each `identity`: destination, routing key and arguments."""

    def __init__(
        self, source: BindingSource, destination: Destination, routing_key: str, arguments: Table
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments

    @property
    def identity(self) -> Identity:
        destination = self.destination
        return (destination.is_queue, destination.name, self.routing_key, encode_table(self.arguments))

    def __repr__(self) -> str:
        source, destination = getattr(self.source, "name", None), getattr(self.destination, "name", None)
        return f"<Binding from {source!r} to {destination!r} with key {self.routing_key!r}>"


class Incoming:
    """The bindings that lead to one queue or exchange, by the exchange that they come from."""

    def __init__(self) -> None:
        self.by_source: dict[BindingSource, dict[Binding, None]] = {}

    @property
    def sources(self) -> KeysView[BindingSource]:
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
