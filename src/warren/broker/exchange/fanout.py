"""fanout: every binding matches."""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.budget import Budget
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination


class Fanout:
    by_properties = False

    def __init__(self, arguments: Table) -> None:
        self.bindings: dict[Binding, None] = {}

    def bind(self, binding: Binding) -> None:
        self.bindings[binding] = None

    def unbind(self, binding: Binding) -> None:
        del self.bindings[binding]

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        return [binding.destination for binding in self.bindings]
