"""`/api/queues`: queues as RabbitMQ describes them."""

from __future__ import annotations

from aiohttp import web

from warren.broker.queue import Queue
from warren.broker.rules import queue_type
from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.json_text import json_response
from warren.management.listing import LIST, QUERY, send_list
from warren.management.message_stats import QUERY as STATS_QUERY
from warren.management.message_stats import Spans, Stats
from warren.management.paths import QUEUE, VHOST
from warren.management.schema import TABLE


class Queues:
    def __init__(self, context: Context) -> None:
        self.node = context.node
        self.timeline = context.broker.sampler.timeline

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/queues",
                handler=self.all,
                summary="The queues of all vhosts that the user sees.",
                query=(*QUERY, *STATS_QUERY),
                gives=LIST,
            ),
            Endpoint(
                method="GET",
                path=f"/api/queues/{VHOST}",
                handler=self.of_vhost,
                summary="The queues of a vhost.",
                query=(*QUERY, *STATS_QUERY),
                gives=LIST,
            ),
            Endpoint(
                method="GET",
                path=f"/api/queues/{VHOST}/{QUEUE}",
                handler=self.get,
                summary="One queue.",
                query=STATS_QUERY,
                gives=TABLE,
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_vhosts(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [visible_vhost(self.node, request)])

    async def get(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        queue = vhost.find_queue(request.match_info["queue"])
        return json_response(describe(vhost, queue) | self._stats(request).of_queue(queue))

    async def _send(self, request: web.Request, vhosts: list[Vhost]) -> web.StreamResponse:
        queues = [(vhost, queue) for vhost in vhosts for queue in vhost.all_queues()]
        stats = self._stats(request)
        return await send_list(
            request,
            queues,
            lambda each: describe(*each) | stats.of_queue(each[1]),
            lambda each: each[1].name,
        )

    def _stats(self, request: web.Request) -> Stats:
        return Stats(self.timeline, Spans.of(request))


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
        "state": "paused" if queue.paused else "running",
    }
