"""x-federation-upstream: like fanout, for messages that may still go on to the broker downstream.

A federation link of another broker declares such an exchange here, between a federated exchange and the
link's queue. Its arguments name that broker, and say how many links a message may pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.budget import Budget
from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination
from warren.broker.exchange.fanout import Fanout
from warren.broker.received_from import may_go_on

TYPE = "x-federation-upstream"
MAX_HOPS = "x-max-hops"
DOWNSTREAM_NAME, DOWNSTREAM_VHOST = "x-downstream-name", "x-downstream-vhost"


class FederationUpstream:
    by_properties = True

    def __init__(self, arguments: Table) -> None:
        self.fanout = Fanout(arguments)
        max_hops = arguments.get(MAX_HOPS)
        if max_hops is None:
            raise PreconditionFailed(f"Argument {MAX_HOPS} missing")
        if not isinstance(max_hops, int) or isinstance(max_hops, bool):
            raise PreconditionFailed(f"Argument {MAX_HOPS} must be of type long")
        self.max_hops = max_hops
        self.cluster_name = str(arguments.get(DOWNSTREAM_NAME, ""))
        self.vhost = str(arguments.get(DOWNSTREAM_VHOST, ""))

    def bind(self, binding: Binding) -> None:
        self.fanout.bind(binding)

    def unbind(self, binding: Binding) -> None:
        self.fanout.unbind(binding)

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        if not may_go_on(properties.headers, self.max_hops, self.cluster_name, self.vhost):
            return ()
        return self.fanout.route(routing_key, properties, budget)
