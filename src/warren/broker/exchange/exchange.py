"""An exchange: its name and properties, its bindings, and the router of its type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from warren.amqp.budget import Budget
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.binding import Binding, Destination, Identity, Incoming
from warren.broker.deduplication import Seen
from warren.broker.history import History
from warren.broker.queue import Queue
from warren.broker.rules import ALTERNATE_EXCHANGE, exchange_rules_of
from warren.broker.tally import Tally

ROUTES_CACHED_MAX = 10_000
ROUTED_QUEUES_CACHED_MAX = 200_000  # in all the routes of an exchange together
TOPIC_TYPE = "topic"
DELAYED_TYPE = "x-delayed-message"
INNER_TYPE = "x-delayed-type"  # the argument that says how a delayed exchange routes messages that are due


def seen_by(arguments: Table) -> Seen | None:
    """What the exchange's deduplication has seen; None if it does not deduplicate."""
    rules = exchange_rules_of(arguments)
    if not rules.message_deduplication:
        return None
    return Seen(rules.cache_size, rules.cache_ttl, rules.deduplication_header)


class Router(Protocol):
    """How one type of exchange routes. A router is made for each exchange, with its declared arguments.

    Arguments or bindings that make no sense raise PreconditionFailed. `route` may name a destination twice,
    or one that is deleted: the vhost leaves these out. A router that chooses one of several destinations has
    to pass deleted ones by itself. A router that looks at more than the bindings that match charges the
    turn's budget for it.
    """

    by_properties: bool  # whether the route depends on more than the routing key, and cannot be remembered

    def __init__(self, arguments: Table) -> None: ...
    def bind(self, binding: Binding) -> None: ...
    def unbind(self, binding: Binding) -> None: ...
    def route(
        self, routing_key: str, properties: BasicProperties, budget: Budget
    ) -> Iterable[Destination]: ...


class Exchange:
    """An exchange of any type; what differs between types is in the router."""

    is_queue = False  # a binding's destination is a queue or an exchange

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
        self.type = type_name
        self.wire_name = encode_name(name)  # a short string with its length octet
        self.router = router
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal  # whether clients cannot publish to it
        self.arguments = arguments or {}
        self.bindings: dict[Identity, Binding] = {}  # from this exchange
        self.incoming = Incoming()  # bindings from other exchanges to this one
        self.leads_to: Counter[Exchange] = Counter()  # destinations of bindings, with the number of these
        self.deleted = False
        self.retired = False  # as queues can be
        self.tally = Tally()  # what clients published to it, and how many queues got that
        self.history: History | None = None  # samples of these counts
        self.seen = seen_by(self.arguments)  # what deduplication has seen; None if it is off
        self.policy: str | None = None  # the name of the policy in force
        self.policy_alternate: str | None = None  # the alternate exchange that the policy names
        self.routes: dict[bytes, list[Queue]] = {}  # remembered, by routing key with its length octet
        self.routed_queues = 0  # in all remembered routes together
        self.routes_by_properties: bool | None = None  # of `Vhost.depends_on_properties`; None if not known
        self.is_remembered = False  # whether this exchange, or one that leads to it, remembers anything
        routes_as = self.arguments.get(INNER_TYPE) if type_name == DELAYED_TYPE else type_name
        self.is_topic = routes_as == TOPIC_TYPE  # topic permissions are checked for these

    def internal_queues(self) -> list[str]:
        """The names of the queues that belong to this exchange."""
        names = []
        if self.type == DELAYED_TYPE:
            names.append(f"amq.delayed.{self.name}")
        if self.seen is not None:
            names.append(f"amq.dedup.{self.name}")
        return names

    @property
    def alternate(self) -> str | None:
        """The name of the alternate exchange, from the arguments or else from the policy."""
        name = self.arguments.get(ALTERNATE_EXCHANGE)
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
        """Add a binding; return whether it is new. An equal binding to a deleted destination, which is not
        removed yet, is replaced.
        """
        identity = binding.identity
        before = self.bindings.get(identity)
        if before is not None and (not before.destination.deleted or before.destination.retired):
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
        """Remove a binding; return whether it was there."""
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

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} of type {self.type!r}>"
