"""A vhost: its exchanges, queues and bindings, and the way of a message through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from warren.amqp.errors import NotFound, PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.broker.binding import Binding, Destination
from warren.broker.commands import COMMAND_WORK, Command, DeleteExchange, DeleteQueue
from warren.broker.consumer import Consumer
from warren.broker.events import (
    BindingCreated,
    BindingDeleted,
    Events,
    ExchangeCreated,
    ExchangeDeleted,
    QueueCreated,
    QueueDeleted,
    QueueExpired,
)
from warren.broker.exchange.alternates import Alternates
from warren.broker.exchange.direct import Direct
from warren.broker.exchange.exchange import Exchange
from warren.broker.firehose import TRACE_EXCHANGE, Firehose
from warren.broker.limits import VhostLimits, is_reached
from warren.broker.policy import Policies, Policy
from warren.broker.queue import Queue
from warren.broker.surroundings import Surroundings
from warren.broker.version import Version

PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    TRACE_EXCHANGE: "topic",
}
INTERNAL = frozenset({TRACE_EXCHANGE})  # of these
NO_PROPERTIES = BasicProperties()
UNBIND_WORK, POLICY_WORK, TELL_WORK = 40, 80, 30


class Vhost:
    """`version` goes up with everything that could lead a message elsewhere, or take away the right to
    send it. What goes without a command, such as a queue with its last consumer, is told to `record`.
    `firehose` is there while it is on.
    """

    def __init__(self, name: str, events: Events, record: Callable[[Command], None]) -> None:
        self.name = name
        self.events = events
        self.record = record
        self.version = Version()
        self.exchanges: dict[str, Exchange] = {}
        self.exchanges_by_wire_name: dict[bytes, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.reply_queues: dict[str, Queue] = {}
        self.clients_queues = 0
        self.connections = 0
        self.surroundings: Surroundings
        self.policies = Policies()
        self.alternates = Alternates()
        self.limits = VhostLimits()
        self.firehose: Firehose | None = None

    # --- exchanges ---

    def find_exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")
        return exchange

    def add_exchange(self, exchange: Exchange) -> None:
        self.policies.apply_to_exchange(exchange)
        self.exchanges[exchange.name] = exchange
        self.exchanges_by_wire_name[exchange.wire_name] = exchange
        self.alternates.follow(exchange, exchange.alternate)
        self._routes_changed(*self.alternates.of(exchange))
        self.events.emit(ExchangeCreated(self.name, exchange.name, exchange.type))

    def remove_exchange(self, exchange: Exchange) -> None:
        self._remove_bindings(self._forget_exchange(exchange))

    def _forget_exchange(self, exchange: Exchange) -> list[Binding]:
        """Take it out; the bindings that have to go with it."""
        if self.exchanges.pop(exchange.name, None) is None:
            return []
        del self.exchanges_by_wire_name[exchange.wire_name]
        exchange.deleted = True
        self.alternates.follow(exchange, None)
        self._routes_changed(exchange)
        self.record(DeleteExchange(vhost=self.name, name=exchange.name))
        for name in exchange.internal_queues():
            if name in self.queues:
                self.remove_queue(self.queues[name])
        self.events.emit(ExchangeDeleted(self.name, exchange.name))
        return [*exchange.bindings.values(), *exchange.incoming]

    # --- queues ---

    def find_queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        return queue

    def check_queue_limit(self, name: str) -> None:
        """406 if there may be no more queues."""
        if self.limits.max_queues is None:
            return
        if is_reached(self.limits.max_queues, self.clients_queues):
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' "
                f"({self.limits.max_queues}) is reached"
            )

    def add_queue(self, queue: Queue) -> None:
        self.policies.apply_to_queue(queue)
        self.queues[queue.name] = queue
        self.clients_queues += not queue.internal
        self.version.bump()
        if self.events.wants(QueueCreated):
            self.events.emit(QueueCreated(self.name, queue.name))

    def remove_queue(self, queue: Queue) -> int:
        """Delete it with its bindings and messages; its consumers are told. How many messages it had."""
        if queue.deleted:
            return 0
        queue.deleted = True
        if self.queues.pop(queue.name, None) is not None:
            self.clients_queues -= not queue.internal
        self.policies.forget(queue)
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue.name, None)
        self._routes_changed(*queue.incoming.sources)
        self._remove_bindings(list(queue.incoming))
        self.surroundings.turns.spread(self._telling(queue.consumers))
        self.version.bump()
        self.record(DeleteQueue(vhost=self.name, name=queue.name))
        self.events.emit(QueueDeleted(self.name, queue.name))
        count = queue.purge()
        queue.end()
        return count

    def _telling(self, consumers: list[Consumer]) -> Iterator[int]:
        """Consumers whose queue is gone, of which some may have gone themselves since."""
        for consumer in consumers:
            if consumer.channel.consumers.get(consumer.tag) is consumer:
                consumer.channel.queue_is_gone(consumer)
            yield TELL_WORK

    def expire_queue(self, queue: Queue) -> None:
        """Nobody has used it for too long."""
        self.surroundings.turns.budget.left -= COMMAND_WORK
        self.events.emit(QueueExpired(self.name, queue.name))
        self.remove_queue(queue)

    def remove_if_abandoned(self, queue: Queue) -> None:
        if queue.is_abandoned:
            self.remove_queue(queue)

    def end(self) -> None:
        """Everything in it goes, and what it shares with its queues, which would keep it."""
        for queue in list(self.queues.values()):
            self.remove_queue(queue)
        for exchange in list(self.exchanges.values()):
            self.remove_exchange(exchange)
        del self.surroundings

    # --- policies ---

    def put_policy(self, policy: Policy) -> bool:
        """Whether it is another than before."""
        before = self.policies.find(policy.name, operator=policy.operator)
        if before == policy:
            return False
        self.policies.put(policy)
        self._apply_policies(policy if before is None else before, policy)
        return True

    def remove_policy(self, policy: Policy) -> None:
        self.policies.remove(policy)
        self._apply_policies(policy, policy)

    def _apply_policies(self, before: Policy, after: Policy) -> None:
        """To all that either of them is for: for nothing else it can make a difference."""
        self.surroundings.turns.spread(self._applying(before, after))

    def _applying(self, before: Policy, after: Policy) -> Iterator[int]:
        """Each gets what the policies say when its turn comes. So if they change again meanwhile, it does not
        matter in which order changes come to an end.
        """
        for exchange in list(self.exchanges.values()):
            if before.is_for_exchange(exchange) or after.is_for_exchange(exchange):
                self.policies.apply_to_exchange(exchange)
                if not exchange.deleted:
                    self.alternates.follow(exchange, exchange.alternate)
                    self._routes_changed(exchange)
            yield POLICY_WORK
        for queue in list(self.queues.values()):
            concerned = before.is_for_queue(queue) or after.is_for_queue(queue)
            if concerned and not queue.deleted:
                self.policies.apply_to_queue(queue)
            yield POLICY_WORK if concerned else 1

    # --- bindings ---

    def bind(self, binding: Binding) -> None:
        source = binding.source
        if source.add(binding):
            self._routes_changed(source)
            if self.events.wants(BindingCreated):
                self.events.emit(
                    BindingCreated(self.name, source.name, binding.destination.name, binding.routing_key)
                )

    def unbind(self, binding: Binding) -> None:
        """Remove it if it is there. An auto-delete exchange goes with its last binding, and so on."""
        found = binding.source.bindings.get(binding.identity)
        if found is not None:
            self._remove_bindings([found])

    def _remove_bindings(self, bindings: list[Binding]) -> None:
        """Of a queue or an exchange that is gone, and leads nowhere any more, or a single one: at least the
        first is removed at once.
        """
        if bindings:
            self.surroundings.turns.spread(self._removing(bindings))

    def _removing(self, bindings: list[Binding]) -> Iterator[int]:
        while bindings:
            binding = bindings.pop()
            source = binding.source
            if source.discard(binding):
                self._routes_changed(source)
                if self.events.wants(BindingDeleted):
                    names = source.name, binding.destination.name, binding.routing_key
                    self.events.emit(BindingDeleted(self.name, *names))
                if source.auto_delete and not source.bindings:
                    bindings += self._forget_exchange(source)
            yield UNBIND_WORK

    # --- routes ---

    def _routes_changed(self, *exchanges: Exchange) -> None:
        """Routes that lead through these are forgotten at once: a queue in one of them may be gone, and would
        be kept by it.
        """
        pending = list(exchanges)
        while pending:
            exchange = pending.pop()
            if exchange.is_remembered:
                exchange.forget_routes()
                pending += [*exchange.incoming.sources, *self.alternates.of(exchange)]
        self.version.bump()

    def route(self, exchange: Exchange, routing_key: bytes) -> list[Queue]:
        """Where a key leads, remembered by exchange and key until a binding on the way changes."""
        key = routing_key[1:].decode("utf-8", "surrogateescape")
        if not exchange.name or self.depends_on_properties(exchange):
            return self.walk(exchange, [key], NO_PROPERTIES)
        queues = exchange.routes.get(routing_key)
        if queues is None:
            queues = self.walk(exchange, [key], NO_PROPERTIES)
            exchange.remember(routing_key, queues)
        return queues

    def depends_on_properties(self, exchange: Exchange) -> bool:
        """Whether this exchange, or one that it leads to, looks at more than the routing key and bindings."""
        if not exchange.name:
            return False
        if exchange.routes_by_properties is None:
            exchange.routes_by_properties = self._leads_to_properties(exchange)
        return exchange.routes_by_properties

    def _leads_to_properties(self, exchange: Exchange) -> bool:
        """All that a message can come to on the way is noted as remembered."""
        pending, seen = [exchange], {exchange}
        found = False
        while pending:
            this = pending.pop()
            this.is_remembered = True
            found = found or this.router.by_properties or not this.name
            for neighbour in self._neighbours(this) - seen:
                seen.add(neighbour)
                pending.append(neighbour)
        return found

    def _neighbours(self, exchange: Exchange) -> set[Exchange]:
        neighbours = set(exchange.leads_to)
        if exchange.alternate in self.exchanges:
            neighbours.add(self.exchanges[exchange.alternate])
        return neighbours

    def walk(self, exchange: Exchange, keys: list[str], properties: BasicProperties) -> list[Queue]:
        """Every queue that a message reaches, once, by bindings and alternate exchanges, in loops too."""
        queues: dict[Queue, None] = {}
        pending, seen = [exchange], {exchange.name}
        while pending:
            this = pending.pop()
            matched = [d for key in keys for d in self._match(this, key, properties)]
            if not matched and this.alternate in self.exchanges:
                matched = [self.exchanges[this.alternate]]
            for destination in matched:
                if isinstance(destination, Queue):
                    queues[destination] = None
                elif destination.name not in seen:
                    seen.add(destination.name)
                    pending.append(destination)
        return list(queues)

    def _match(self, exchange: Exchange, key: str, properties: BasicProperties) -> Iterable[Destination]:
        if exchange.name:
            return [found for found in exchange.router.route(key, properties) if not found.deleted]
        queue = self.queues.get(key) or self.reply_queues.get(key)
        return () if queue is None or queue.internal else (queue,)


def default_exchange() -> Exchange:
    """Every queue is bound to it by its name; that is in the routing, not in bindings."""
    return Exchange("", "direct", Direct({}))
