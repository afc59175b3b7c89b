"""`/api/channels`: channels as RabbitMQ describes them, for those who see their connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiohttp import web

from warren.broker.node import Node
from warren.management.columns import object_endpoint, send_object
from warren.management.connections import (
    named_connection,
    visible_connections,
    visible_connections_of_vhost,
)
from warren.management.consumers import describe as describe_consumer
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import ObjectNotFound
from warren.management.listing import Row, list_endpoint, send_list
from warren.management.message_stats import QUERY, stats_for
from warren.management.paths import NAME, VHOST
from warren.management.peers import channel_name, connection_details
from warren.server.pace import at_a_pace
from warren.session.channel import Channel
from warren.session.connection import Connection


class Channels:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            list_endpoint("/api/channels", self.all, "The channels that the user sees.", QUERY),
            list_endpoint(f"/api/vhosts/{VHOST}/channels", self.of_vhost, "The channels of a vhost.", QUERY),
            list_endpoint(
                f"/api/connections/{NAME}/channels",
                self.of_connection,
                "The channels of one connection.",
                QUERY,
            ),
            object_endpoint(
                f"/api/channels/{NAME}", self.get, "One channel, by the name `connection (number)`.", QUERY
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_connections(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_connections_of_vhost(self.node, request))

    async def of_connection(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, [named_connection(self.node, request)])

    async def _send(self, request: web.Request, connections: Iterable[Connection]) -> web.StreamResponse:
        found = [each async for each in at_a_pace(_channels_of(connections))]
        stats = stats_for(self.context, request)
        return await send_list(
            request,
            found,
            lambda each: describe(self.node, *each) | stats.of_channel(each[1]),
            lambda each: channel_name(*each),
            order=lambda each: (each[0].vhost_name, channel_name(*each)),
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The consumers of the channel are told as well. As with RabbitMQ's usual settings, rates are not
        broken down by exchanges and queues.
        """
        name = request.match_info["name"]
        async for connection, channel in at_a_pace(_channels_of(visible_connections(self.node, request))):
            if channel_name(connection, channel) == name:
                consumers = [
                    describe_consumer(self.node, connection, channel, each)
                    for each in channel.consumers.values()
                ]
                told = describe(self.node, connection, channel)
                told |= {"consumer_details": consumers, "publishes": [], "deliveries": []}
                return send_object(request, told | stats_for(self.context, request).of_channel(channel))
        raise ObjectNotFound(f"no channel '{name}'")


def _channels_of(connections: Iterable[Connection]) -> Iterator[tuple[Connection, Channel]]:
    for connection in connections:
        for channel in connection.open_channels():
            yield connection, channel


def describe(node: Node, connection: Connection, channel: Channel) -> Row:
    deliveries, confirms, transaction = channel.deliveries, channel.confirms, channel.transaction
    return {
        "name": channel_name(connection, channel),
        "number": channel.number,
        "connection_details": connection_details(connection),
        "node": node.name,
        "user": connection.user_name,
        "user_who_performed_action": connection.user_name,
        "vhost": connection.vhost_name,
        "state": _state(connection, channel),
        "confirm": confirms.on,
        "transactional": transaction is not None,
        "consumer_count": len(channel.consumers),
        "prefetch_count": channel.prefetch_count,
        "global_prefetch_count": deliveries.prefetch_count,
        "messages_unacknowledged": deliveries.outstanding,
        "messages_unconfirmed": confirms.published - confirms.confirmed if confirms.on else 0,
        "messages_uncommitted": 0 if transaction is None else len(transaction.publishes),
        "acks_uncommitted": 0 if transaction is None else len(transaction.settled),
    }


def _state(connection: Connection, channel: Channel) -> str:
    if channel.discarding:
        return "closing"
    return "flow" if connection.held_by is not None else "running"
