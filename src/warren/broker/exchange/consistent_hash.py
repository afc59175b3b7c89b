"""x-consistent-hash: messages with the same key go to the same destination, and a new destination takes over
only its share of keys.

A binding key is a weight, a whole number. For each message every binding gets a score, from the hash of the
message's key and the binding's destination, scaled by the weight; the highest score wins (weighted rendezvous
hashing). Adding or removing a binding moves only the keys that it wins, or had won.

The key of a message is its routing key, or the header named by the exchange's argument `hash-header`, or the
property named by `hash-property` (correlation_id, message_id or timestamp).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination

PROPERTIES = ("correlation_id", "message_id", "timestamp")
HASH_RANGE = 2**64
WEIGHT_MAX = 2**63 - 1


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
        self.weights: dict[Binding, tuple[bytes, int]] = {}  # the destination, to be hashed, and the weight

    def bind(self, binding: Binding) -> None:
        weight = int(binding.routing_key) if binding.routing_key.isdecimal() else 0
        if not 1 <= weight <= WEIGHT_MAX:
            raise PreconditionFailed(
                f"The binding key must be an integer greater than 0, and not above {WEIGHT_MAX}: "
                f"'{binding.routing_key}'"
            )
        self.weights[binding] = (repr(binding.identity[:2]).encode(), weight)

    def unbind(self, binding: Binding) -> None:
        del self.weights[binding]

    def route(self, routing_key: str, properties: BasicProperties) -> Iterable[Destination]:
        alive = [
            binding
            for binding in self.weights
            if not binding.destination.deleted or binding.destination.retired
        ]
        if not alive:
            return []
        key = self._key(routing_key, properties).encode("utf-8", "surrogateescape")
        best = max(alive, key=lambda binding: _draw(key, *self.weights[binding]))
        return [best.destination]

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


def _draw(key: bytes, identity: bytes, weight: int) -> float:
    """The score of a binding for a key. A binding of twice the weight wins twice as often."""
    digest = hashlib.blake2b(key, digest_size=8, key=hashlib.blake2b(identity, digest_size=16).digest())
    uniform = (int.from_bytes(digest.digest()) + 1) / (HASH_RANGE + 1)
    return -weight / math.log(uniform) if uniform < 1 else math.inf
