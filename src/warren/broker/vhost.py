"""A vhost: its exchanges, queues and bindings, and how a message is routed through them.

Commands change a vhost by its methods, after all checks. Work that may be long, such as removing very many
bindings, is spread over several turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from warren.amqp.budget import Budget
from warren.amqp.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from warren.amqp.properties import BasicProperties
from warren.broker.binding import Binding, BindingSource, Destination
from warren.broker.client import ClientId, Origin
from warren.broker.commands import COMMAND_WORK, Command, DeleteExchange, DeleteQueue
from warren.broker.consumer import Consumer
from warren.broker.events import (
    BindingCreated,
    BindingDeleted,
    Events,
    ExchangeCreated,
    ExchangeDeleted,
    MessagePublished,
    QueueCreated,
    QueueDeleted,
    QueueExpired,
)
from warren.broker.exchange.alternates import Alternates
from warren.broker.exchange.direct import Direct
from warren.broker.exchange.exchange import Exchange
from warren.broker.firehose import TRACE_EXCHANGE, Firehose
from warren.broker.history import History
from warren.broker.limits import VhostLimits, is_reached
from warren.broker.message import Message
from warren.broker.policy import Policies, Policy
from warren.broker.queue import Queue
from warren.broker.surroundings import Surroundings
from warren.broker.tally import VhostTally
from warren.broker.version import Version
from warren.broker.vhost_metadata import NO_METADATA

PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    TRACE_EXCHANGE: "topic",
}
INTERNAL = frozenset({TRACE_EXCHANGE})  # those of PREDECLARED that clients cannot publish to
NO_PROPERTIES = BasicProperties()
UNBIND_WORK, POLICY_WORK, TELL_WORK = 40, 80, 30  # units of work: a binding, a queue or exchange, a consumer
MATCH_WORK = 10  # units of work for asking an exchange where a message with one key goes


class Vhost:
    def __init__(self, name: str, events: Events, change: Callable[[Command], None]) -> None:
        self.name = name
        self.events = events
        self.change = change  # asks for a change that no client asked for, such as the end of an unused queue
        self.version = Version()  # goes up when a route may have changed, or a permission was taken away
        self.exchanges: dict[str, Exchange] = {}
        self.exchanges_by_wire_name: dict[bytes, Exchange] = {}  # by short strings with their length octet
        self.queues: dict[str, Queue] = {}  # those that clients use
        self.internal_queues: dict[str, Queue] = {}  # those that belong to an exchange
        self.elsewhere = 0  # how many of all these live on other nodes of the cluster, or are unavailable
        self.reply_queues: dict[str, Queue] = {}  # those behind amq.rabbitmq.reply-to
        self.exclusive_queues: dict[ClientId, dict[str, Queue]] = {}  # by the connection that owns them
        self.connections = 0  # open ones, for the limit
        self.surroundings: Surroundings  # what all queues of the vhost share; set by `make_vhost`
        self.policies = Policies()
        self.alternates = Alternates()
        self.limits = VhostLimits()
        self.metadata = NO_METADATA  # what operators say about it
        self.firehose: Firehose | None = None  # None while it is off
        self.tally = VhostTally()  # counts of all that clients did here
        self.octets = [0, 0]  # the bytes that `OCTETS` names, up to the last sample of each connection
        self.history: History | None = None  # samples of all these
        self.ended = False  # whether the vhost is deleted

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
        """Take an exchange out; return the bindings that have to be removed, those to it and from it."""
        if self.exchanges.pop(exchange.name, None) is None:
            return []
        del self.exchanges_by_wire_name[exchange.wire_name]
        exchange.deleted = True
        self.alternates.follow(exchange, None)
        self._routes_changed(exchange)
        self.events.emit(ExchangeDeleted(self.name, exchange.name))
        return [*exchange.bindings.values(), *exchange.incoming]

    # --- queues ---

    def all_queues(self) -> list[Queue]:
        """All queues: those of clients, and those that belong to an exchange."""
        return [*self.queues.values(), *self.internal_queues.values()]

    def find_queue(self, name: str) -> Queue:
        """The queue of this name, even if the caller may not use it; 404 if there is none."""
        queue = self.queues.get(name) or self.internal_queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        return queue

    def queue_for(self, client: ClientId | None, name: str) -> Queue:
        """The queue of this name, if this connection may consume from it, bind it and delete it: 405 if the
        queue is exclusive to another connection, or lives on another node, 403 if it belongs to an exchange.
        None stands for a caller without a connection, such as the HTTP API.
        """
        queue = self.bindable_queue(client, name)
        check_here(queue)
        return queue

    def bindable_queue(self, client: ClientId | None, name: str) -> Queue:
        """The same, also for a queue that lives on another node of the cluster."""
        queue = self.find_queue(name)
        check_owner(queue, client)
        if name in self.internal_queues:
            raise AccessRefused(f"{queue.what} belongs to an exchange; it can only be purged")
        return queue

    def check_queue_limit(self, name: str) -> None:
        """406 if the vhost may have no more queues."""
        if self.limits.max_queues is None:
            return
        if is_reached(self.limits.max_queues, len(self.queues)):
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' "
                f"({self.limits.max_queues}) is reached"
            )

    def add_queue(self, queue: Queue) -> None:
        if queue.internal:
            self.internal_queues[queue.name] = queue
        else:
            self.policies.apply_to_queue(queue)
            self.queues[queue.name] = queue
        if queue.owner is not None:
            self.exclusive_queues.setdefault(queue.owner, {})[queue.name] = queue
        self.elsewhere += not queue.is_here
        self.version.bump()
        if self.events.wants(QueueCreated):
            self.events.emit(QueueCreated(self.name, queue.name))

    def remove_queue(self, queue: Queue) -> int:
        """Delete a queue with its bindings and messages, and tell its consumers. Return how many messages it
        had.
        """
        there = self.internal_queues if queue.internal else self.queues
        if there.get(queue.name) is not queue:
            return 0
        del there[queue.name]
        queue.deleted, queue.retired, queue.replace = True, False, None
        self.elsewhere -= not queue.is_here
        self.policies.forget(queue)
        self._disown(queue)
        self._routes_changed(*queue.incoming.sources)
        self._remove_bindings(list(queue.incoming))
        self.surroundings.turns.spread(self._telling(queue.consumers))
        self.version.bump()
        self.events.emit(QueueDeleted(self.name, queue.name))
        count, steps = queue.purge()
        queue.end()
        self.surroundings.turns.spread(steps)
        return count

    def retire_queue(self, queue: Queue, replace: Callable[[], object] | None = None) -> None:
        """Another node leads the queue from now on. Until another object takes the place of this one
        (`replace_queue`), it takes and gives no messages, and changes nothing on disk. `replace` has that
        done, for whoever cannot wait (`Queue.stands`).
        """
        if queue.is_here and not queue.deleted:
            queue.replace = replace
            queue.is_here, queue.deleted, queue.retired = False, True, True
            queue.detach()
            self.elsewhere += 1
            self.version.bump()  # channels look again where their messages go

    def replace_queue(self, old: Queue, make: Callable[[], Queue]) -> Queue:
        """The queue is led by another node from now on, or by this one: another object stands for it, which
        `make` makes when the old one has ended. Its definition and its bindings stay. Consumers of the old
        one are told that it is gone here.
        """
        bindings, consumers = list(old.incoming), old.consumers
        old.deleted, old.retired, old.replace = True, False, None
        old.detach()
        self.surroundings.turns.spread(old.purge()[1])
        self.elsewhere -= not old.is_here
        old.is_here = False
        self.policies.forget(old)
        self._routes_changed(*old.incoming.sources)
        for binding in bindings:
            binding.source.discard(binding)
        self.surroundings.turns.spread(self._telling(consumers))
        old.end()
        new = old.replaced_by = make()
        new.paused = old.paused
        (self.internal_queues if new.internal else self.queues)[new.name] = new
        self.elsewhere += not new.is_here
        if not new.internal:
            self.policies.apply_to_queue(new)
        for binding in bindings:
            binding.source.add(Binding(binding.source, new, binding.routing_key, binding.arguments))
        self._routes_changed(*new.incoming.sources)
        return new

    def _disown(self, queue: Queue) -> None:
        """An exclusive queue does not belong to its connection any more."""
        if queue.owner is not None:
            owned = self.exclusive_queues.get(queue.owner, {})
            owned.pop(queue.name, None)
            if not owned:
                self.exclusive_queues.pop(queue.owner, None)

    def _telling(self, consumers: list[Consumer]) -> Iterator[int]:
        """Tell consumers that their queue is gone. Some may have been cancelled meanwhile."""
        for consumer in consumers:
            if not consumer.cancelled:
                consumer.queue_is_gone()
            yield TELL_WORK

    def expire_queue(self, name: str) -> None:
        """Nobody has used the queue of this name for too long."""
        self.events.emit(QueueExpired(self.name, name))
        self.ask_for(DeleteQueue(vhost=self.name, name=name))

    def remove_if_abandoned(self, queue: Queue) -> None:
        if queue.is_abandoned and not queue.deleted and not queue.unavailable:
            self.ask_for(DeleteQueue(vhost=self.name, name=queue.name))

    def ask_for(self, command: Command) -> None:
        """Ask for a change, unless the vhost is deleted, and all that is in it goes anyway."""
        if not self.ended:
            self.change(command)

    def end(self) -> None:
        """The vhost is deleted: remove all that is in it, over several turns if it is much."""
        self.surroundings.turns.spread(self._ending(), self._has_ended)

    def _ending(self) -> Iterator[int]:
        for queue in self.all_queues():
            self.remove_queue(queue)
            yield COMMAND_WORK
        for exchange in list(self.exchanges.values()):
            self.remove_exchange(exchange)
            yield COMMAND_WORK

    def _has_ended(self) -> None:
        """Let go of what the vhost shares with its queues, since that refers back to the vhost."""
        del self.surroundings

    # --- policies ---

    def put_policy(self, policy: Policy) -> bool:
        """Add or replace a policy; return whether that changed anything."""
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
        """A policy changed: apply the policies to all queues and exchanges that it matched before or matches
        now.
        """
        self.surroundings.turns.spread(self._applying(before, after))

    def _applying(self, before: Policy, after: Policy) -> Iterator[int]:
        """Each queue and exchange gets what the policies say when its turn comes. So if policies change again
        meanwhile, it does not matter which of the changes is done first.
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

    def bind(self, binding: Binding) -> bool:
        """Add a binding; return whether it is new."""
        source = binding.source
        if not source.add(binding):
            return False
        self._routes_changed(source)
        if self.events.wants(BindingCreated):
            self.events.emit(
                BindingCreated(self.name, source.name, binding.destination.name, binding.routing_key)
            )
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; return whether it was there. An auto-delete exchange goes with its last binding,
        and then the bindings to that exchange, and so on.
        """
        found = binding.source.bindings.get(binding.identity)
        if found is None:
            return False
        self._remove_bindings([found])
        return True

    def _remove_bindings(self, bindings: list[Binding]) -> None:
        """Remove bindings, over several turns if they are many. At least one is removed at once. A queue or
        an exchange to which the others lead is deleted already, so that they have no effect.
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
                    self.ask_for(DeleteExchange(vhost=self.name, name=source.name))
            yield UNBIND_WORK

    # --- routes ---

    def _routes_changed(self, *exchanges: BindingSource) -> None:
        """Forget all remembered routes through these exchanges: a route would keep a deleted queue alive."""
        pending = list(exchanges)
        while pending:
            exchange = pending.pop()
            if exchange.is_remembered:
                exchange.forget_routes()
                pending += [*exchange.incoming.sources, *self.alternates.of(exchange)]
        self.version.bump()

    def route(self, exchange: Exchange, routing_key: bytes) -> list[Queue]:
        """The queues that a routing key leads to. The exchange remembers them until a binding on the way
        changes. `warren perf throughput` watches this.
        """
        key = routing_key[1:].decode("utf-8", "surrogateescape")
        if not exchange.name or self.depends_on_properties(exchange):
            return self.walk(exchange, [key], NO_PROPERTIES)
        queues = exchange.routes.get(routing_key)
        if queues is None:
            queues = self.walk(exchange, [key], NO_PROPERTIES)
            exchange.remember(routing_key, queues)
        return queues

    def check_route(self, exchange: Exchange, queues: list[Queue]) -> None:
        """405 if a client's message would go to a queue on another node of the cluster. To be called if there
        are any queues `elsewhere`.
        """
        check_here(*queues)
        if exchange.seen is not None:  # what it has seen is where its own queue is
            own = (self.internal_queues.get(name) for name in exchange.internal_queues())
            check_here(*(queue for queue in own if queue is not None))

    def depends_on_properties(self, exchange: Exchange) -> bool:
        """Whether the route from this exchange depends on more than the routing key and bindings, so that it
        cannot be remembered.
        """
        if not exchange.name:
            return False
        if exchange.routes_by_properties is None:
            exchange.routes_by_properties = self._leads_to_properties(exchange)
        return exchange.routes_by_properties

    def _leads_to_properties(self, exchange: Exchange) -> bool:
        """Whether this exchange, or one that it leads to, routes by properties, or is the default exchange.
        All of these are marked as remembered, so that a change of one makes this one forget the answer.
        """
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
        """The exchanges to which an exchange leads directly, by a binding or as its alternate."""
        neighbours = set(exchange.leads_to)
        if exchange.alternate in self.exchanges:
            neighbours.add(self.exchanges[exchange.alternate])
        return neighbours

    def walk(self, exchange: Exchange, keys: list[str], properties: BasicProperties) -> list[Queue]:
        """Every queue that a message reaches by bindings and alternate exchanges, each once. Bindings of
        exchanges may form loops. The turn's budget is charged for the way.
        """
        budget = self.surroundings.turns.budget
        queues: dict[Queue, None] = {}
        pending, seen = [exchange], {exchange.name}
        while pending:
            this = pending.pop()
            matched = [d for key in keys for d in self._match(this, key, properties, budget)]
            budget.left -= MATCH_WORK * len(keys) + len(matched)
            if not matched and this.alternate in self.exchanges:
                matched = [self.exchanges[this.alternate]]
            for destination in matched:
                if destination.is_queue:
                    queues[cast("Queue", destination)] = None
                elif destination.name not in seen:
                    seen.add(destination.name)
                    pending.append(cast("Exchange", destination))
        return list(queues)

    def _match(
        self, exchange: Exchange, key: str, properties: BasicProperties, budget: Budget
    ) -> Iterable[Destination]:
        if exchange.name:
            routed = exchange.router.route(key, properties, budget)
            return [found for found in routed if not found.deleted or found.retired]
        queue = self.queues.get(key) or self.reply_queues.get(key)
        return () if queue is None else (queue,)

    # --- the firehose, and events of single messages ---

    def tell_published(
        self, message: Message, queues: list[Queue], origin: Origin, extra_keys: list[str] | None
    ) -> None:
        """Tell the firehose and subscribers of a message that was published. To be called if
        `events.published` is set. `extra_keys` are those of CC and BCC headers, if known.
        """
        if self.firehose is not None:
            self.firehose.published(message, queues, origin, extra_keys)
        if self.events.publishing.is_next():
            self.events.emit(MessagePublished(self.name, message, tuple(queue.name for queue in queues)))

    def trace_delivered(self, message: Message, queue: str, origin: Origin, *, redelivered: bool) -> None:
        if self.firehose is not None:
            self.firehose.delivered(message, queue, origin, redelivered=redelivered)

    def trace_route(self, routing_key: bytes) -> list[Queue]:
        """The queues that get the firehose's copies with this key."""
        return self.route(self.exchanges[TRACE_EXCHANGE], routing_key)

    def __repr__(self) -> str:
        return f"<Vhost {self.name!r}: {len(self.queues)} queues, {len(self.exchanges)} exchanges>"


def check_owner(queue: Queue, client: ClientId | None) -> None:
    """405 if the queue is exclusive to another connection."""
    if queue.owner is not None and queue.owner != client:
        raise locked(queue)


def check_here(*queues: Queue) -> None:
    """405 if one of these queues lives on another node of the cluster, or cannot be used now."""
    for queue in queues:
        if not queue.is_here:
            raise queue.not_here()
        if queue.unavailable:
            raise ResourceLocked(f"{queue.what} {queue.unavailable}")


def locked(queue: Queue) -> ResourceLocked:
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {queue.what}. "
        "It could be originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )


def default_exchange() -> Exchange:
    """The exchange to which every queue is bound by its name. `Vhost._match` does that, without bindings."""
    return Exchange("", "direct", Direct({}))
