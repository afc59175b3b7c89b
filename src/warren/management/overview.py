"""`/api/overview`, the broker at a glance, and `/api/whoami`."""

from __future__ import annotations

from aiohttp import web

from warren.management.auth import visible_vhosts
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.json_text import json_response
from warren.management.message_stats import QUERY, Spans, Stats
from warren.management.rights import user_of
from warren.management.schema import TABLE, TEXT, record, rows
from warren.management.totals import object_totals, queue_totals
from warren.session.handshake import COMPATIBLE_VERSION
from warren.version import __version__


class Overview:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/overview",
                handler=self.get,
                summary="The broker at a glance.",
                query=QUERY,
                gives=TABLE,
            ),
            Endpoint(
                method="GET",
                path="/api/whoami",
                handler=self.whoami,
                summary="The user of the request.",
                gives=record({"name": TEXT, "tags": rows(TEXT)}),
            ),
        ]

    async def whoami(self, request: web.Request) -> web.StreamResponse:
        user = user_of(request)
        return json_response({"name": user.name, "tags": sorted(user.tags)})

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhosts = visible_vhosts(self.node, request)
        stats = Stats(self.context.broker.sampler.timeline, Spans.of(request))
        totals = await queue_totals(vhosts)
        return json_response(
            {
                "management_version": COMPATIBLE_VERSION,
                "rates_mode": "basic",
                "sample_retention_policies": {"global": [60, 3600, 86400], "basic": [60, 3600, 86400]},
                "product_name": "WarrenMQ",
                "product_version": __version__,
                "rabbitmq_version": COMPATIBLE_VERSION,
                "cluster_name": self.node.cluster_name,
                "node": self.node.cluster_name,
                "exchange_types": [{"name": name, "enabled": True} for name in self.node.exchange_types],
                "queue_totals": {
                    "messages": totals.ready + totals.unacked,
                    "messages_ready": totals.ready,
                    "messages_unacknowledged": totals.unacked,
                    **stats.lengths_of_vhosts(vhosts),
                },
                "message_stats": {},
                **stats.of_vhosts(vhosts),
                "churn_rates": stats.of_churn(self.context.broker.churn, self.node),
                "object_totals": object_totals(self.node, vhosts) | {"consumers": totals.consumers},
                "statistics_db_event_queue": 0,
                "listeners": self._listeners(),
            }
        )

    def _listeners(self) -> list[dict[str, object]]:
        broker = self.context.broker
        addresses = {"amqp": broker.address} | {n: service.address for n, service in broker.services.items()}
        listeners: list[dict[str, object]] = []
        for protocol, address in addresses.items():
            host, _, port = address.rpartition(":")
            listeners.append(
                {
                    "node": self.node.cluster_name,
                    "protocol": protocol,
                    "ip_address": host.strip("[]"),
                    "port": int(port),
                }
            )
        return listeners
