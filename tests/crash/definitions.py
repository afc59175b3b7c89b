"""What clients know about exchanges, queues and bindings, and whether the broker agrees after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from tests.crash.ledger import Rule, Violation


@dataclass(frozen=True, slots=True)
class QueueThing:
    name: str
    durable: bool = True

    def __str__(self) -> str:
        return f"{'durable' if self.durable else 'transient'} queue '{self.name}'"


@dataclass(frozen=True, slots=True)
class ExchangeThing:
    name: str
    type: str
    durable: bool = True

    def __str__(self) -> str:
        return f"{'durable' if self.durable else 'transient'} exchange '{self.name}'"


@dataclass(frozen=True, slots=True)
class BindingThing:
    """The routing key is used for no other queue, so that it can be tried whether the binding is there."""

    exchange: ExchangeThing
    queue: QueueThing
    routing_key: str

    @property
    def durable(self) -> bool:
        return self.exchange.durable and self.queue.durable

    def names(self) -> tuple[str, str, str]:
        return self.queue.name, self.exchange.name, self.routing_key

    def __str__(self) -> str:
        return f"binding of queue '{self.queue.name}' to '{self.exchange.name}' with key '{self.routing_key}'"


Thing: TypeAlias = QueueThing | ExchangeThing | BindingThing


class Presence(Enum):
    THERE = auto()
    CHANGING = auto()  # a method that makes or deletes it is on its way
    AWAY = auto()


class Definitions:
    def __init__(self) -> None:
        self.known: dict[Thing, Presence] = {}

    def declare(self, thing: Thing) -> None:
        """It is about to be declared."""
        self.known[thing] = Presence.CHANGING

    def declared(self, thing: Thing) -> None:
        self.known[thing] = Presence.THERE

    def delete(self, thing: Thing) -> None:
        """It is about to be deleted, and what hangs on it goes along."""
        for each in (thing, *self.bindings_of(thing)):
            if self.is_there(each):
                self.known[each] = Presence.CHANGING

    def absent(self, thing: Thing) -> None:
        """It is deleted, or was never there."""
        for each in (thing, *self.bindings_of(thing)):
            self.known[each] = Presence.AWAY

    def bindings_of(self, thing: Thing) -> list[BindingThing]:
        return [
            known
            for known in self.known
            if isinstance(known, BindingThing) and thing in {known.exchange, known.queue}
        ]

    def is_there(self, thing: Thing) -> bool:
        return self.known.get(thing) is Presence.THERE

    def has_ends(self, binding: BindingThing) -> bool:
        return self.is_there(binding.exchange) and self.is_there(binding.queue)

    def restart(self) -> None:
        """The broker was restarted: what is transient is gone."""
        for thing in self.known:
            if not thing.durable:
                self.known[thing] = Presence.AWAY

    def check(self, found: dict[Thing, bool]) -> list[Violation]:
        """What is wrong. What is there now is what is expected from now on."""
        violations = []
        for thing, there in found.items():
            known = self.known[thing]
            if known is Presence.THERE and not there:
                violations.append(Violation(Rule.UNDEFINED, f"{thing} is not there"))
            if known is Presence.AWAY and there:
                violations.append(Violation(Rule.REDEFINED, f"{thing} is there again"))
            self.known[thing] = Presence.THERE if there else Presence.AWAY
        return violations
