"""headers: a binding matches if the message's headers equal the binding's arguments.

`x-match` says how many must be equal: `all` (the default), `any`, `all-with-x`, `any-with-x`. Only the last
two compare arguments whose names start with `x-`. For an argument without a value, the header need only be
present.

A binding is found by the arguments that it compares: with `any` by each of them, with `all` by one, the one
that fewest others are found by. So a message is compared with few of the bindings that it does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from warren.amqp.budget import Budget
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Value
from warren.broker.binding import Binding, Destination
from warren.broker.received_from import BOUND_FROM

MATCHES: dict[str, tuple[Callable[[Iterable[bool]], bool], bool]] = {
    "all": (all, False), "any": (any, False), "all-with-x": (all, True), "any-with-x": (any, True),
}  # fmt: skip
NO_HEADERS = ("x-match", BOUND_FROM)  # arguments that are about the binding itself
COMPARE_WORK = 2  # units of work for a header, and for a binding that it is compared with

Place: TypeAlias = Hashable
"""What bindings are found by: the name of a header, or the name and the value."""


class _Wish:
    """What one binding compares."""

    def __init__(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        if not isinstance(match, str) or match not in MATCHES:
            raise PreconditionFailed(
                f"Invalid x-match field value {match!r}; expected all, any, all-with-x or any-with-x"
            )
        self.decide, with_x = MATCHES[match]
        self.wanted = [
            (name, value)
            for name, value in binding.arguments.items()
            if name not in NO_HEADERS and (with_x or not name.startswith("x-"))
        ]
        self.places: list[Place] = []  # what the binding is found by

    def is_met(self, headers: Table) -> bool:
        return self.decide(
            name in headers and (value is None or _equal(value, headers[name])) for name, value in self.wanted
        )


class Headers:
    by_properties = True

    def __init__(self, arguments: Table) -> None:
        self.wishes: dict[Binding, _Wish] = {}
        self.found_by: dict[Place, dict[Binding, _Wish]] = {}
        self.unconditional: dict[Binding, None] = {}  # those that compare nothing, and match

    def bind(self, binding: Binding) -> None:
        wish = self.wishes[binding] = _Wish(binding)
        places = [_place(name, value) for name, value in wish.wanted]
        if wish.decide is all:
            places = sorted(places, key=lambda place: len(self.found_by.get(place, ())))[:1]
            if not places:
                self.unconditional[binding] = None
        wish.places = list(set(places))
        for place in wish.places:
            self.found_by.setdefault(place, {})[binding] = wish

    def unbind(self, binding: Binding) -> None:
        self.unconditional.pop(binding, None)
        for place in self.wishes.pop(binding).places:
            found = self.found_by[place]
            del found[binding]
            if not found:
                del self.found_by[place]

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        headers = properties.headers or {}
        found = dict(self.unconditional)
        for name, value in headers.items():
            for place in {name, _place(name, value)}:
                wishes = self.found_by.get(place, {})
                found.update({binding: None for binding, wish in wishes.items() if wish.is_met(headers)})
                budget.left -= COMPARE_WORK * (1 + len(wishes))
        return [binding.destination for binding in found]


def _place(name: str, value: Value) -> Place:
    """Where bindings with this argument are found. Equal values have the same place. An argument without a
    value, or with a table or an array, is found by its name alone.
    """
    if value is None or isinstance(value, (list, dict)):
        return name
    return name, isinstance(value, bool), bytes(value) if isinstance(value, bytearray) else value


def _equal(wanted: Value, value: Value) -> bool:
    """Integers of different types may be equal; True does not equal 1."""
    return wanted == value and isinstance(wanted, bool) == isinstance(value, bool)
