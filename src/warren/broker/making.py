"""Makes the vhosts, exchanges and queues that commands describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from warren.amqp.errors import PreconditionFailed
from warren.broker.classic_queue import ClassicQueue
from warren.broker.clock import Clock
from warren.broker.commands import Command, DeclareExchange, DeclareQueue
from warren.broker.declarations import check_exchange_type, is_durable
from warren.broker.events import Events
from warren.broker.exchange.delayed import Delayed
from warren.broker.exchange.exchange import Exchange, Router
from warren.broker.internal_queue import make_internal_queue, take_in
from warren.broker.queue import Queue
from warren.broker.queue_elsewhere import QueueElsewhere
from warren.broker.rules import STREAM, queue_type
from warren.broker.store import Store
from warren.broker.stream import Stream
from warren.broker.surroundings import Surroundings
from warren.broker.vhost import INTERNAL, PREDECLARED, Vhost, default_exchange


class Workshop(Protocol):
    """The parts of a node that are needed to make vhosts, exchanges and queues for it."""

    events: Events
    clock: Clock
    store: Store
    exchange_types: Mapping[str, type[Router]]
    vhosts: dict[str, Vhost]

    def surroundings_of(self, vhost: Vhost) -> Surroundings: ...


def make_vhost(node: Workshop, name: str, change: Callable[[Command], None]) -> Vhost:
    """A vhost with its predeclared exchanges. `change` is how it asks for changes of its own."""
    vhost = Vhost(name, node.events, change)
    vhost.surroundings = node.surroundings_of(vhost)
    vhost.add_exchange(default_exchange())
    for exchange, kind in PREDECLARED.items():
        wanted = DeclareExchange(vhost=name, name=exchange, type=kind, internal=exchange in INTERNAL)
        vhost.add_exchange(make_exchange(node, wanted))
    return vhost


def make_exchange(node: Workshop, wanted: DeclareExchange) -> Exchange:
    return Exchange(
        wanted.name,
        wanted.type,
        _make_router(node, wanted),
        durable=wanted.durable,
        auto_delete=wanted.auto_delete,
        internal=wanted.internal,
        arguments=wanted.arguments,
    )


def _make_router(node: Workshop, wanted: DeclareExchange) -> Router:
    check_exchange_type(node.exchange_types, wanted.type)
    router = node.exchange_types[wanted.type](wanted.arguments)
    if isinstance(router, Delayed):
        if router.inner_type not in node.exchange_types:
            raise PreconditionFailed(f"unknown exchange type '{router.inner_type}' in x-delayed-type")
        router.inner = node.exchange_types[router.inner_type](wanted.arguments)
        router.clock = node.clock
    return router


def make_queue(node: Workshop, wanted: DeclareQueue) -> Queue:
    """The queue that a command describes. The name alone makes it one that belongs to an exchange; the
    arguments say whether any other queue is a stream.
    """
    vhost = node.vhosts[wanted.vhost]
    if wanted.home:
        return _make_queue_elsewhere(vhost, wanted)
    internal = make_internal_queue(vhost, wanted.name, durable=wanted.durable)
    if internal is not None:
        return internal
    check_store(node, wanted)
    is_stream = queue_type(wanted.arguments) == STREAM
    return (Stream if is_stream else ClassicQueue)(
        wanted.name,
        wanted.vhost,
        vhost.surroundings,
        durable=is_durable(wanted),
        auto_delete=wanted.auto_delete,
        owner=wanted.owner,
        arguments=wanted.arguments,
    )


def _make_queue_elsewhere(vhost: Vhost, wanted: DeclareQueue) -> Queue:
    queue = QueueElsewhere(
        wanted.name,
        wanted.vhost,
        vhost.surroundings,
        home=wanted.home,
        durable=is_durable(wanted),
        auto_delete=wanted.auto_delete,
        owner=wanted.owner,
        arguments=wanted.arguments,
    )
    take_in(vhost, queue)
    return queue


def check_store(node: Workshop, wanted: DeclareQueue) -> None:
    """406 for a queue that this node's store cannot keep."""
    if queue_type(wanted.arguments) == STREAM and not node.store.keeps_streams:
        raise PreconditionFailed("a stream needs a broker with a data directory")
