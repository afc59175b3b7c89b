"""direct: the routing key equals the binding key."""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.budget import Budget
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination


class Direct:
    by_properties = False

    def __init__(self, arguments: Table) -> None:
        self.by_key: dict[str, dict[Binding, None]] = {}

    def bind(self, binding: Binding) -> None:
        self.by_key.setdefault(binding.routing_key, {})[binding] = None

    def unbind(self, binding: Binding) -> None:
        bindings = self.by_key[binding.routing_key]
        del bindings[binding]
        if not bindings:
            del self.by_key[binding.routing_key]

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        return [binding.destination for binding in self.by_key.get(routing_key, ())]
