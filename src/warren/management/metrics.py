"""`/metrics`: metrics of the whole broker in the format of Prometheus, with RabbitMQ's names where RabbitMQ
has one of the same meaning.

As in RabbitMQ this needs no login: metrics are totals, and name no queue, vhost or user.
"""

from __future__ import annotations

from aiohttp import web

from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.rights import Right
from warren.management.schema import TEXT
from warren.management.totals import object_totals, queue_totals
from warren.server.metrics import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsText:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/metrics",
                handler=self.get,
                summary="Metrics for Prometheus.",
                right=Right.PUBLIC,
                gives=TEXT,
                content_type="text/plain",
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        counted = await self._counted()
        known = self.context.broker.metrics.by_name.values()
        text = "".join(map(to_text, [*known, *counted]))
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _counted(self) -> list[Metric]:
        """Metrics that are counted over several turns of the loop."""
        vhosts = list(self.node.vhosts.values())
        totals = await queue_totals(vhosts)
        objects = object_totals(self.node, vhosts)
        figures = {
            "rabbitmq_queue_messages_ready": ("Messages that wait in queues", totals.ready),
            "rabbitmq_queue_messages_unacked": ("Messages that are out with clients", totals.unacked),
            "rabbitmq_consumers": ("Consumers", totals.consumers),
            "rabbitmq_connections": ("Connections", objects["connections"]),
            "rabbitmq_channels": ("Channels", objects["channels"]),
            "rabbitmq_queues": ("Queues", objects["queues"]),
        }
        return [_fixed(name, text, number) for name, (text, number) in figures.items()]


def _fixed(name: str, text: str, number: int) -> Metric:
    return Metric(name=name, text=text, read=lambda: number)


def to_text(metric: Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
    for value, number in metric.samples():
        label = "" if value is None else f'{{{metric.label}="{value}"}}'
        lines.append(f"{metric.name}{label} {number}")
    return "\n".join(lines) + "\n"
