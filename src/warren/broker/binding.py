"""A binding: from an exchange to a queue or another exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, Union

from warren.amqp.table import Table, encode_table

if TYPE_CHECKING:
    from warren.broker.exchange.exchange import Exchange
    from warren.broker.queue import Queue

Destination: TypeAlias = Union["Queue", "Exchange"]
Identity: TypeAlias = tuple[bool, str, str, bytes]


@dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """Two bindings are the same if destination, key and arguments are."""

    source: Exchange
    destination: Destination
    routing_key: str
    arguments: Table = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        destination = self.destination
        return (destination.is_queue, destination.name, self.routing_key, encode_table(self.arguments))
