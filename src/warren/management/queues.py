"""`/api/queues`: queues as RabbitMQ describes them."""

from __future__ import annotations

from aiohttp import web

from warren.broker.queue import Queue
from warren.broker.rules import queue_type
from warren.broker.vhost import Vhost
from warren.management.auth import manager, visible_vhost, visible_vhosts
from warren.management.context import Context
from warren.management.json_text import json_response, send_rows
from warren.management.paths import QUEUE, VHOST


class Queues:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/queues", self.all),
            web.get(f"/api/queues/{VHOST}", self.of_vhost),
            web.get(f"/api/queues/{VHOST}/{QUEUE}", self.get),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_vhosts(self.node, manager(request)))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [self._vhost(request)])

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhost = self._vhost(request)
        return json_response(describe(vhost, vhost.find_queue(request.match_info["queue"])))

    def _vhost(self, request: web.Request) -> Vhost:
        return visible_vhost(self.node, manager(request), request.match_info["vhost"])

    async def _send(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        queues = [(vhost, queue) for vhost in vhosts for queue in vhost.all_queues()]
        return await send_rows(
            request, (describe(vhost, queue) for vhost, queue in queues if not queue.deleted)
        )


def describe(vhost: Vhost, queue: Queue) -> dict[str, object]:
    policy, operator_policy = vhost.policies.names_of(queue)
    exclusive = queue.exclusive_consumer
    ready = queue.message_count
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue_type(queue.arguments),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "internal": queue.internal,
        "arguments": queue.arguments,
        "messages": ready + queue.unacked,
        "messages_ready": ready,
        "messages_unacknowledged": queue.unacked,
        "message_bytes_ready": queue.message_bytes,
        "consumers": len(queue.consumers),
        "exclusive_consumer_tag": None if exclusive is None else exclusive.tag,
        "policy": policy,
        "operator_policy": operator_policy,
        "state": "running",
    }
