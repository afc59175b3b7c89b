"""`/api/overview`, the broker at a glance, and `/api/whoami`."""

from __future__ import annotations

from aiohttp import web

from warren.broker.rules import CLASSIC
from warren.management.auth import visible_vhosts
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.descriptions import exchange_types
from warren.management.endpoint import Endpoint
from warren.management.listeners import contexts_of, describe, listeners_of
from warren.management.listing import Row
from warren.management.message_stats import QUERY, stats_for
from warren.management.rights import Right, user_of
from warren.management.schema import TEXT, record, rows
from warren.management.totals import object_totals, queue_totals, queues_of
from warren.session.handshake import COMPATIBLE_VERSION
from warren.version import __version__

RETAINED = [60, 3600, 86400]  # seconds of samples that are kept: a minute, an hour, a day


class Overview:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            object_endpoint("/api/overview", self.get, "The broker at a glance.", QUERY),
            object_endpoint(
                "/api/whoami",
                self.whoami,
                "The user of the request.",
                gives=record({"name": TEXT, "tags": rows(TEXT)}),
            ),
        ]

    async def whoami(self, request: web.Request) -> web.StreamResponse:
        user = user_of(request)
        return send_object(request, {"name": user.name, "tags": sorted(user.tags)})

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhosts = visible_vhosts(self.node, request)
        stats = stats_for(self.context, request)
        totals = await queue_totals(queues_of(vhosts))
        told = self._general() | {
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
        }
        if Right.MONITORING.is_had_by(user_of(request)):
            told |= self._for_monitors()
        return send_object(request, told)

    def _general(self) -> Row:
        return {
            "management_version": COMPATIBLE_VERSION,
            "rates_mode": "basic",
            "sample_retention_policies": {"global": RETAINED, "basic": RETAINED, "detailed": []},
            "product_name": "WarrenMQ",
            "product_version": __version__,
            "rabbitmq_version": COMPATIBLE_VERSION,
            "release_series_support_status": "supported",
            "cluster_name": self.node.cluster_name,
            "cluster_tags": {},
            "node_tags": {},
            "exchange_types": exchange_types(self.node),
            "statistics_db_event_queue": 0,
            "disable_stats": False,
            "enable_queue_totals": False,
            "is_op_policy_updating_enabled": True,
            "default_queue_type": CLASSIC,
        }

    def _for_monitors(self) -> Row:
        broker = self.context.broker
        return {
            "node": self.node.name,
            "listeners": [describe(each, self.node.name) for each in listeners_of(broker)],
            "contexts": [{"node": self.node.name, **each} for each in contexts_of(broker)],
        }
