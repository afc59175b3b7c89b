"""On which node of a cluster a relay runs: on exactly one, as far as its nodes know.

A relay that works with a queue of the cluster runs on the node that leads the queue, and moves with it; one
that publishes to an exchange, where the first queue is led that is bound to it. All others run on the first
node of those that are there. While nodes do not know the same, none may run a relay, or two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from warren.broker.exchange.exchange import Exchange
from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.relay.ends import End
from warren.relay.shovel_definition import ShovelDefinition
from warren.server.app import Broker

BINDINGS_MAX = 1_000  # of an exchange, to look at for its first queue: with more, any node is as good

DEFAULT_EXCHANGE = ""  # every queue is bound to it by its name

FindQueue = Callable[[], Queue | None]
"""Finds the queue that a relay works with; None if that is none of this broker's, or is not there."""


def why_elsewhere(broker: Broker, find: FindQueue) -> str:
    """Why another node is to run a relay; empty if this one is."""
    if broker.cluster is None:
        return ""
    queue = find()
    if queue is not None:
        return "" if queue.is_here else queue.not_here().text
    first = broker.cluster.first_node()
    if first == broker.node.name:
        return ""
    return f"node '{first}' runs it" if first else "too few nodes of the cluster are there"


def queue_of_shovel(broker: Broker, definition: ShovelDefinition) -> FindQueue:
    """Of its source, if that is a queue here; else that of its destination."""
    source, destination = end_here(definition.source), end_here(definition.destination)
    if source is not None and definition.source_queue:
        return partial(queue_named, broker, source.uri.vhost, definition.source_queue)
    if destination is None:
        return nothing
    vhost = destination.uri.vhost
    if definition.destination_queue:
        return partial(queue_named, broker, vhost, definition.destination_queue)
    if definition.destination_exchange is None:  # that of each message
        return nothing
    if definition.destination_exchange == DEFAULT_EXCHANGE:
        return partial(queue_named, broker, vhost, definition.destination_key or "")
    return partial(queue_behind, broker, vhost, definition.destination_exchange)


def end_here(ends: tuple[End, ...]) -> End | None:
    return next((end for end in ends if end.is_here), None)


def nothing() -> None:
    return None


def queue_named(broker: Broker, vhost: str, name: str) -> Queue | None:
    found: Vhost | None = broker.node.vhosts.get(vhost)
    return None if found is None else found.queues.get(name)


def queue_behind(broker: Broker, vhost: str, name: str) -> Queue | None:
    """The first one by name that is bound to an exchange."""
    found = broker.node.vhosts.get(vhost)
    exchange: Exchange | None = None if found is None else found.exchanges.get(name)
    if exchange is None or len(exchange.bindings) > BINDINGS_MAX:
        return None
    destinations = {binding.destination for binding in exchange.bindings.values()}
    queues = [each for each in destinations if isinstance(each, Queue)]
    return min(queues, key=lambda queue: queue.name, default=None)
