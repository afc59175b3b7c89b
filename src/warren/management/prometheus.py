"""`/metrics` for Prometheus, as RabbitMQ's plugin has it:

    /metrics                   of the whole broker; its size does not depend on how many queues there are
    /metrics/per-object        of each queue, channel, connection and exchange
    /metrics/detailed          only what the query names: ?family=queue_metrics&vhost=a
    /metrics/memory-breakdown  what the memory is used for

The first and the last need no login: they name no queue, vhost or user. The others need a user with the tag
`monitoring`; on a port of their own (`prometheus_port`), nobody has to log in, as with RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiohttp import web

from warren.broker.vhost import Vhost
from warren.management import prometheus_totals as totals
from warren.management.context import Context
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import Handler
from warren.management.prometheus_groups import DETAILED, EVERY_OBJECT, GROUPS, PLAIN, Objects, stream_lags
from warren.management.prometheus_shovels import by_shovel, together
from warren.management.prometheus_text import Family, family_of, send_families, single
from warren.management.rights import Right
from warren.management.schema import TEXT, rows
from warren.server.memory_kinds import kinds_of

DETAILS = (
    Parameter("family", rows(TEXT), "Names of RabbitMQ's families of metrics: give only these."),
    Parameter("vhost", rows(TEXT), "Names of vhosts: give only what is in these."),
)
CHURN, NODE_COARSE, NODE = "connection_churn_metrics", "node_coarse_metrics", "node_metrics"
OF_NODE = {
    NODE_COARSE: (
        "process_open_fds",
        "process_open_tcp_sockets",
        "process_resident_memory_bytes",
        "disk_space_available_bytes",
    ),
    NODE: (
        "process_max_fds",
        "process_max_tcp_sockets",
        "resident_memory_limit_bytes",
        "disk_space_available_limit_bytes",
        "erlang_uptime_seconds",
    ),
}
"""What RabbitMQ's families of a node have of the metrics that are in `/metrics`."""


class Prometheus:
    def __init__(self, context: Context) -> None:
        self.broker = context.broker
        self.node = context.node

    def endpoints(self, *, of_objects: Right = Right.MONITORING) -> list[Endpoint]:
        """`of_objects` is who may see metrics that name queues, vhosts and connections."""
        public = Right.PUBLIC
        return [
            _get("", self.all_together, "Metrics of the broker for Prometheus.", public),
            _get("/per-object", self.per_object, "Metrics of each queue, channel and so on.", of_objects),
            _get("/detailed", self.detailed, "The metrics that the query asks for.", of_objects, DETAILS),
            _get("/memory-breakdown", self.memory, "What the memory is used for.", public),
        ]

    async def all_together(self, request: web.Request) -> web.StreamResponse:
        gauges = totals.Gauges(self.node)
        await gauges.sum_up()
        return await send_families(request, self._all_together(gauges))

    def _all_together(self, gauges: totals.Gauges) -> Iterator[Family]:
        yield from self._of_node("aggregated")
        yield from totals.counters(self.node)
        yield from gauges.families()
        yield together(self.broker)

    async def per_object(self, request: web.Request) -> web.StreamResponse:
        return await send_families(request, self._per_object())

    def _per_object(self) -> Iterator[Family]:
        objects = Objects(self.node, list(self.node.vhosts.values()))
        yield from self._of_node("per-object")
        for group in EVERY_OBJECT:
            yield from GROUPS[group](objects, PLAIN)
        yield stream_lags(objects.queues)
        yield by_shovel(self.broker, objects.vhosts.objects)

    def _of_node(self, endpoint: str) -> Iterator[Family]:
        """What is the same whether objects are told one by one or not."""
        yield from totals.identity(self.broker, endpoint)
        yield from map(family_of, list(self.broker.metrics.by_name.values()))
        yield from totals.churn(self.broker, PLAIN)
        yield from totals.global_counters(self.node)

    async def detailed(self, request: web.Request) -> web.StreamResponse:
        names = dict.fromkeys(request.query.getall("family", []))
        wanted = set(request.query.getall("vhost", []))
        vhosts = [vhost for vhost in self.node.vhosts.values() if not wanted or vhost.name in wanted]
        return await send_families(request, self._detailed(list(names), vhosts))

    def _detailed(self, names: Sequence[str], vhosts: Sequence[Vhost]) -> Iterator[Family]:
        """The families of these names; names that are not known give nothing, as with RabbitMQ. A metric that
        is in two families is given once.
        """
        yield from totals.identity(self.broker, "detailed")
        objects, given = Objects(self.node, vhosts), set[str]()
        for name in names:
            for family in self._group(name, objects):
                if family.name not in given:
                    given.add(family.name)
                    yield family

    def _group(self, name: str, objects: Objects) -> Iterator[Family]:
        if name in GROUPS:
            yield from GROUPS[name](objects, DETAILED)
        elif name == CHURN:
            yield from totals.churn(self.broker, DETAILED)
        elif name == "stream_consumer_metrics":
            yield stream_lags(objects.queues)
        elif name == "shovel_metrics":
            yield by_shovel(self.broker, objects.vhosts.objects)
        for each in OF_NODE.get(name, ()):
            known = family_of(self.broker.metrics.by_name[PLAIN + each])
            yield Family(DETAILED + each, known.text, known.kind, known.samples)

    async def memory(self, request: web.Request) -> web.StreamResponse:
        kinds = kinds_of(self.node, self.broker.memory_alarm.use)
        families = [
            single(f"rabbitmq_memory_{kind}_bytes", f"Memory used for: {kind.replace('_', ' ')}", size)
            for kind, size in kinds.items()
        ]
        return await send_families(request, [*totals.identity(self.broker, "memory-breakdown"), *families])


def _get(
    path: str, handler: Handler, summary: str, right: Right, query: tuple[Parameter, ...] = ()
) -> Endpoint:
    return Endpoint(
        method="GET",
        path=f"/metrics{path}",
        handler=handler,
        summary=summary,
        right=right,
        query=query,
        gives=TEXT,
        content_type="text/plain",
    )
