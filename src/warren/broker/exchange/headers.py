"""headers: a binding matches if the message's headers equal the binding's arguments.

`x-match` says how many must be equal: `all` (the default), `any`, `all-with-x`, `any-with-x`. Only the last
two compare arguments whose names start with `x-`. For an argument without a value, the header need only be
present.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination
from warren.broker.received_from import BOUND_FROM

MATCHES = {"all": (all, False), "any": (any, False), "all-with-x": (all, True), "any-with-x": (any, True)}
NO_HEADERS = ("x-match", BOUND_FROM)  # arguments that are about the binding itself


class Headers:
    by_properties = True

    def __init__(self, arguments: Table) -> None:
        self.bindings: dict[Binding, None] = {}

    def bind(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        if not isinstance(match, str) or match not in MATCHES:
            raise PreconditionFailed(
                f"Invalid x-match field value {match!r}; expected all, any, all-with-x or any-with-x"
            )
        self.bindings[binding] = None

    def unbind(self, binding: Binding) -> None:
        del self.bindings[binding]

    def route(self, routing_key: str, properties: BasicProperties) -> Iterable[Destination]:
        headers = properties.headers or {}
        return [b.destination for b in self.bindings if matches(b.arguments, headers)]


def matches(wanted: Table, headers: Table) -> bool:
    decide, with_x = MATCHES[str(wanted.get("x-match", "all"))]
    names = [name for name in wanted if name not in NO_HEADERS and (with_x or not name.startswith("x-"))]
    return decide(
        name in headers and (wanted[name] is None or _equal(wanted[name], headers[name])) for name in names
    )


def _equal(wanted: object, value: object) -> bool:
    """Integers of different types may be equal; True does not equal 1."""
    return wanted == value and isinstance(wanted, bool) == isinstance(value, bool)
