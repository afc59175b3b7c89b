"""x-consistent-hash: messages with the same key go to the same destination, and a new destination takes over
only its share of keys.

A binding key is a weight, a whole number. For each message every binding gets a score, from the hash of the
message's key and the binding's destination, scaled by the weight; the highest score wins (weighted rendezvous
hashing). Adding or removing a binding moves only the keys that it wins, or had won.

The key of a message is its routing key, or the header named by the exchange's argument `hash-header`, or the
property named by `hash-property` (correlation_id, message_id or timestamp).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from operator import itemgetter

from warren.amqp.budget import Budget
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination

PROPERTIES = ("correlation_id", "message_id", "timestamp")
KEY_BYTES, DRAW_BYTES = 16, 8
DRAWS = 2 ** (8 * DRAW_BYTES)  # how many numbers can be drawn
WEIGHT_MAX = 2**63 - 1
DRAW_WORK = 2  # units of work for the draw of a binding


class ConsistentHash:
    def __init__(self, arguments: Table) -> None:
        self.header = _name(arguments, "hash-header")
        self.property = _name(arguments, "hash-property")
        if self.header and self.property:
            raise PreconditionFailed("hash-header and hash-property exclude each other")
        if self.property and self.property not in PROPERTIES:
            raise PreconditionFailed(
                f"Unsupported property: {self.property}; expected one of {', '.join(PROPERTIES)}"
            )
        self.by_properties = bool(self.header or self.property)
        self.by_weight: dict[int, dict[Binding, blake2b]] = {}  # each with the hash of its destination

    def bind(self, binding: Binding) -> None:
        weight = int(binding.routing_key) if binding.routing_key.isdecimal() else 0
        if not 1 <= weight <= WEIGHT_MAX:
            raise PreconditionFailed(
                f"The binding key must be an integer greater than 0, and not above {WEIGHT_MAX}: "
                f"'{binding.routing_key}'"
            )
        name = repr(binding.identity[:2]).encode()
        key = blake2b(name, digest_size=KEY_BYTES).digest()
        self.by_weight.setdefault(weight, {})[binding] = blake2b(key=key, digest_size=DRAW_BYTES)

    def unbind(self, binding: Binding) -> None:
        weight = int(binding.routing_key)
        del self.by_weight[weight][binding]
        if not self.by_weight[weight]:
            del self.by_weight[weight]

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        """Among bindings of one weight, the highest draw has the highest score."""
        key = self._key(routing_key, properties).encode("utf-8", "surrogateescape")
        best: list[tuple[float, Destination]] = []
        for weight, hashes in self.by_weight.items():
            budget.left -= DRAW_WORK * len(hashes)
            draws = [
                (_draw(hashed, key), binding.destination)
                for binding, hashed in hashes.items()
                if not binding.destination.deleted or binding.destination.retired
            ]
            if draws:
                draw, destination = max(draws, key=itemgetter(0))
                best.append((_score(draw, weight), destination))
        return [max(best, key=itemgetter(0))[1]] if best else []

    def _key(self, routing_key: str, properties: BasicProperties) -> str:
        if self.header:
            return str((properties.headers or {}).get(self.header, ""))
        if self.property:
            return str(getattr(properties, self.property) or "")
        return routing_key


def _name(arguments: Table, argument: str) -> str:
    value = arguments.get(argument, "")
    if not isinstance(value, str):
        raise PreconditionFailed(f"{argument} must be a string")
    return value


def _draw(hashed: blake2b, key: bytes) -> bytes:
    """A number that hash and key determine, as likely as any other. The hash is copied: that is quicker than
    to make it again for each key.
    """
    drawn = hashed.copy()
    drawn.update(key)
    return drawn.digest()


def _score(draw: bytes, weight: int) -> float:
    """The score of a binding that has drawn this number. One of twice the weight wins twice as often."""
    uniform = (int.from_bytes(draw) + 1) / (DRAWS + 1)
    return -weight / math.log(uniform) if uniform < 1 else math.inf
