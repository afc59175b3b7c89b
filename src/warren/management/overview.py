"""`/api/overview`, the broker at a glance, and `/api/whoami`."""

from __future__ import annotations

import asyncio

from aiohttp import web

from warren.broker.session.handshake import COMPATIBLE_VERSION
from warren.broker.vhost import Vhost
from warren.management.auth import manager, visible_vhosts
from warren.management.context import Context
from warren.management.json_text import batches, json_response
from warren.management.queues import QUEUES_A_TURN
from warren.version import __version__


class Overview:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/overview", self.get), web.get("/api/whoami", self.whoami)]

    async def whoami(self, request: web.Request) -> web.StreamResponse:
        user = manager(request)
        return json_response({"name": user.name, "tags": sorted(user.tags)})

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhosts = visible_vhosts(self.node, manager(request))
        ready, unacked, consumers = await self._queue_totals(vhosts)
        return json_response(
            {
                "management_version": COMPATIBLE_VERSION,
                "rates_mode": "none",
                "product_name": "WarrenMQ",
                "product_version": __version__,
                "rabbitmq_version": COMPATIBLE_VERSION,
                "cluster_name": self.node.cluster_name,
                "node": self.node.cluster_name,
                "exchange_types": [{"name": name, "enabled": True} for name in self.node.exchange_types],
                "queue_totals": {
                    "messages": ready + unacked,
                    "messages_ready": ready,
                    "messages_unacknowledged": unacked,
                },
                "object_totals": self._object_totals(vhosts) | {"consumers": consumers},
                "statistics_db_event_queue": 0,
                "listeners": self._listeners(),
            }
        )

    async def _queue_totals(self, vhosts: list[Vhost]) -> tuple[int, int, int]:
        """Messages ready and out, and consumers; of very many queues, some in a turn."""
        ready = unacked = consumers = 0
        queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
        for batch in batches(queues, QUEUES_A_TURN):
            for queue in batch:
                ready += queue.message_count
                unacked += queue.unacked
                consumers += len(queue.consumers)
            await asyncio.sleep(0)
        return ready, unacked, consumers

    def _object_totals(self, vhosts: list[Vhost]) -> dict[str, int]:
        names = {vhost.name for vhost in vhosts}
        connections = [c for c in self.node.connections if c.vhost_name in names]
        return {
            "channels": sum(len(connection.open_channels()) for connection in connections),
            "connections": len(connections),
            "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
            "queues": sum(len(vhost.queues) for vhost in vhosts),
        }

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
