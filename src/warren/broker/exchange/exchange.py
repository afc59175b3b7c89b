"""An exchange: a name, a type's way of routing, and its bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.binding import Binding, Destination, Identity, Incoming
from warren.broker.deduplication import Seen
from warren.broker.queue import Queue
from warren.broker.rules import exchange_rules_of

ROUTES_CACHED_MAX = 10_000
ROUTED_QUEUES_CACHED_MAX = 200_000  # in all the routes of an exchange together
TOPIC_TYPE = "topic"
DELAYED_TYPE = "x-delayed-message"
INNER_TYPE = "x-delayed-type"  # the argument that says how a delayed exchange routes in the end


def seen_by(arguments: Table) -> Seen | None:
    """For an exchange that drops what comes again."""
    rules = exchange_rules_of(arguments)
    if not rules.message_deduplication:
        return None
    return Seen(rules.cache_size, rules.cache_ttl, rules.deduplication_header)


class Router(Protocol):
    """How one type of exchange routes. One is made for each exchange, with its declared arguments.

    `by_properties`: the route depends on more than the routing key, so it cannot be remembered by key.
    Arguments or bindings that make no sense raise PreconditionFailed.
    """

    by_properties: bool

    def __init__(self, arguments: Table) -> None: ...
    def bind(self, binding: Binding) -> None: ...
    def unbind(self, binding: Binding) -> None: ...
    def route(self, routing_key: str, properties: BasicProperties) -> Iterable[Destination]: ...


class Exchange:
    """`is_remembered`: this exchange, or one that leads to it, remembers something that its bindings say."""

    is_queue = False

    def __init__(
        self,
        name: str,
        type_name: str,
        router: Router,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        self.name = name
        self.wire_name = encode_name(name)
        self.type = type_name
        self.router = router
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        self.bindings: dict[Identity, Binding] = {}
        self.incoming = Incoming()
        self.leads_to: Counter[Exchange] = Counter()  # exchanges, by how many bindings
        self.deleted = False
        self.seen = seen_by(self.arguments)
        self.policy: str | None = None  # the name of the one in force
        self.policy_alternate: str | None = None
        self.routes: dict[bytes, list[Queue]] = {}
        self.routed_queues = 0
        self.routes_by_properties: bool | None = None  # not known
        self.is_remembered = False
        routes_as = self.arguments.get(INNER_TYPE) if type_name == DELAYED_TYPE else type_name
        self.is_topic = routes_as == TOPIC_TYPE

    def internal_queues(self) -> list[str]:
        """The names of the queues that belong to it."""
        names = []
        if self.type == DELAYED_TYPE:
            names.append(f"amq.delayed.{self.name}")
        if self.seen is not None:
            names.append(f"amq.dedup.{self.name}")
        return names

    @property
    def alternate(self) -> str | None:
        """As its arguments say, or else the policy."""
        name = self.arguments.get("alternate-exchange")
        return name if isinstance(name, str) else self.policy_alternate

    def remember(self, routing_key: bytes, queues: list[Queue]) -> None:
        self.routed_queues += len(queues)
        if len(self.routes) >= ROUTES_CACHED_MAX or self.routed_queues > ROUTED_QUEUES_CACHED_MAX:
            self.routes.clear()
            self.routed_queues = len(queues)
        self.routes[routing_key] = queues

    def forget_routes(self) -> None:
        self.is_remembered = False
        self.routes_by_properties = None
        self.routes.clear()
        self.routed_queues = 0

    def add(self, binding: Binding) -> bool:
        """Whether it is new. One to a destination that is gone, and is only not removed yet, gives way."""
        identity = binding.identity
        before = self.bindings.get(identity)
        if before is not None and not before.destination.deleted:
            return False
        if before is not None:
            self.discard(before)
        self.router.bind(binding)
        self.bindings[identity] = binding
        binding.destination.incoming.add(binding)
        if isinstance(binding.destination, Exchange):
            self.leads_to[binding.destination] += 1
        return True

    def discard(self, binding: Binding) -> bool:
        """Whether it was there."""
        identity = binding.identity
        if self.bindings.get(identity) is not binding:
            return False
        del self.bindings[identity]
        self.router.unbind(binding)
        binding.destination.incoming.discard(binding)
        if isinstance(binding.destination, Exchange):
            self.leads_to[binding.destination] -= 1
            if not self.leads_to[binding.destination]:
                del self.leads_to[binding.destination]
        return True
