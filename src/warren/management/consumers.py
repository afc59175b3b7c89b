"""`/api/consumers`: consumers as RabbitMQ describes them, for those who see their connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiohttp import web

from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.management.connections import visible_connections, visible_connections_of_vhost
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.listing import Row, list_endpoint, send_list
from warren.management.paths import VHOST
from warren.management.peers import channel_name, connection_details
from warren.server.pace import at_a_pace
from warren.server.queue_figures import consumers_on
from warren.session.channel import Channel
from warren.session.connection import Connection
from warren.session.consumer import ChannelConsumer


class Consumers:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            list_endpoint("/api/consumers", self.all, "The consumers that the user sees."),
            list_endpoint(f"/api/consumers/{VHOST}", self.of_vhost, "The consumers in a vhost."),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_connections(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_connections_of_vhost(self.node, request))

    async def _send(self, request: web.Request, connections: Iterable[Connection]) -> web.StreamResponse:
        found = [each async for each in at_a_pace(_consumers_of(connections))]
        return await send_list(
            request,
            found,
            lambda each: describe(self.node, *each),
            lambda each: each[2].tag,
            order=lambda each: (channel_name(each[0], each[1]), each[2].tag),
        )


def _consumers_of(connections: Iterable[Connection]) -> Iterator[tuple[Connection, Channel, ChannelConsumer]]:
    for connection in connections:
        for channel in connection.open_channels():
            for consumer in list(channel.consumers.values()):
                yield connection, channel, consumer


def single_active_tag(queue: Queue) -> str | None:
    """The tag of the single active consumer, if the queue has one."""
    if not queue.rules.single_active_consumer:
        return None
    return next((each.tag for each in consumers_on(queue) if queue.is_active(each)), None)


def describe(node: Node, connection: Connection, channel: Channel, consumer: ChannelConsumer) -> Row:
    queue = consumer.queue
    single, active = queue.rules.single_active_consumer, queue.is_active(consumer)
    timeout_ms = queue.rules.consumer_timeout
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.name, "vhost": queue.vhost},
        "channel_details": channel_details(node, connection, channel),
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch_count,
        "active": active,
        "activity_status": "waiting" if not active else "single_active" if single else "up",
        "arguments": consumer.arguments,
        "consumer_timeout": node.limits.consumer_timeout_ms if timeout_ms is None else timeout_ms,
    }


def channel_details(node: Node, connection: Connection, channel: Channel) -> Row:
    """A channel as RabbitMQ names it in descriptions of other objects."""
    told = connection_details(connection)
    return {
        "name": channel_name(connection, channel),
        "number": channel.number,
        "node": node.name,
        "connection_name": told["name"],
        "peer_host": told["peer_host"],
        "peer_port": told["peer_port"],
        "user": connection.user_name,
    }
