"""Which bindings a federated exchange has to have upstream: those that it has here.

A binding that federation made here, for a broker further down, goes on in the same way as messages come: as
many links as the `max-hops` of each link on the way allow, and never to a broker that it has been at. So it
counts down (`hops`) from the link with the lowest limit, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from warren.amqp.table import Int16, Table, encode_table
from warren.broker.binding import Binding
from warren.broker.received_from import BOUND_FROM, CLUSTER_NAME, VHOST, stations, was_at

Wanted: TypeAlias = dict[tuple[str, bytes], Table]
"""Arguments of bindings, by routing key and the arguments' bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The link that bindings go over."""

    cluster_name: str  # of this broker
    vhost: str  # here
    place: str  # this end of the link: vhost, exchange, and the letter of the exchange upstream
    upstream_name: str | None  # the name of the cluster upstream; None if it does not tell
    upstream_vhost: str
    max_hops: int


def wanted_bindings(bindings: Iterable[Binding], way: Way) -> Wanted:
    wanted: Wanted = {}
    for binding in bindings:
        if not binding.destination.deleted:
            hops = hops_left(binding.arguments, way)
            if hops > 0:
                arguments = told(binding.arguments, way, hops)
                wanted[binding.routing_key, encode_table(arguments)] = arguments
    return wanted


def hops_left(arguments: Table, way: Way) -> int:
    """How many links a message may have passed that comes by this binding; 0: the binding goes no further."""
    before = stations(arguments, BOUND_FROM)
    if not before:
        return way.max_hops
    last = before[0]
    hops = last.get("hops") if isinstance(last, dict) else None
    if not isinstance(hops, int):
        return 0
    if way.upstream_name is not None and was_at(before, way.upstream_name, way.upstream_vhost):
        return 0
    return min(hops - 1, way.max_hops)


def told(arguments: Table, way: Way, hops: int) -> Table:
    """The arguments with a note of where the binding comes from."""
    station: Table = {
        CLUSTER_NAME: way.cluster_name,
        VHOST: way.vhost,
        "exchange": way.place,
        "hops": Int16(hops),
    }
    return {**arguments, BOUND_FROM: [station, *stations(arguments, BOUND_FROM)]}
