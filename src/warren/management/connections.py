"""`/api/connections`: connections as RabbitMQ describes and closes them.

Users see and close their own connections. Those with the tag `monitoring` see all connections, and
administrators may close all.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from warren.broker.access import User
from warren.broker.node import Node
from warren.management.auth import visible_vhost
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import NotAuthorised, ObjectNotFound
from warren.management.listing import Row, list_endpoint, send_list
from warren.management.message_stats import QUERY, stats_for
from warren.management.paths import NAME, USER, VHOST
from warren.management.rights import Right, user_of
from warren.server.pace import at_a_pace
from warren.session.connection import Connection, connections_of
from warren.session.peer import Peer
from warren.session.state import State

REASON = "X-Reason"
CLOSED_BY = "Closed via management plugin"  # RabbitMQ's words, if the header gives no reason
NOT_SEEN = "User not authorised to access object"
STATES = {State.OPEN: "running", State.AWAITING_OPEN: "opening", State.CLOSING: "closing"}


class Connections:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        one, of_user = f"/api/connections/{NAME}", f"/api/connections/username/{USER}"
        return [
            list_endpoint("/api/connections", self.all, "The connections that the user sees.", QUERY),
            list_endpoint(
                f"/api/vhosts/{VHOST}/connections", self.of_vhost, "The connections to a vhost.", QUERY
            ),
            list_endpoint(of_user, self.of_user, "The connections of a user.", QUERY),
            Endpoint(
                method="DELETE",
                path=of_user,
                handler=self.close_of_user,
                summary="Close all connections of a user; the header `X-Reason` says why.",
                done=(204,),
            ),
            object_endpoint(one, self.get, "One connection.", QUERY),
            Endpoint(
                method="DELETE",
                path=one,
                handler=self.close,
                summary="Close a connection; the header `X-Reason` says why.",
                done=(204,),
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_connections(self.node, request))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, visible_connections_of_vhost(self.node, request))

    async def of_user(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["user"]
        _check_may_see(user_of(request), name)
        return await self._send(
            request, (each for each in connections_of(self.node) if each.user_name == name)
        )

    async def _send(self, request: web.Request, connections: Iterable[Connection]) -> web.StreamResponse:
        found = [each async for each in at_a_pace(connections) if each.vhost_name]
        stats = stats_for(self.context, request)
        return await send_list(
            request,
            found,
            lambda each: describe(self.node, each) | stats.of_connection(each),
            order=lambda each: (each.vhost_name, each.name),
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        """What the connection does not have is an empty text here, and null in lists, as in RabbitMQ."""
        connection = named_connection(self.node, request)
        stats = stats_for(self.context, request)
        told = describe(self.node, connection) | stats.of_connection(connection)
        return send_object(request, {name: "" if value is None else value for name, value in told.items()})

    async def close(self, request: web.Request) -> web.StreamResponse:
        connection = named_connection(self.node, request)
        _check_may_close(user_of(request), connection.user_name)
        connection.force_close(_reason(request))
        return web.Response(status=204)

    async def close_of_user(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["user"]
        _check_may_close(user_of(request), name)
        async for connection in at_a_pace(connections_of(self.node)):
            if connection.user_name == name:
                connection.force_close(_reason(request))
        return web.Response(status=204)


# --- who may see and close what ---


def visible_connections(node: Node, request: web.Request) -> Iterable[Connection]:
    user = user_of(request)
    if Right.MONITORING.is_had_by(user):
        return connections_of(node)
    return (each for each in connections_of(node) if each.user_name == user.name)


def visible_connections_of_vhost(node: Node, request: web.Request) -> Iterable[Connection]:
    """Those to the vhost that the path names."""
    vhost = visible_vhost(node, request).name
    return (each for each in visible_connections(node, request) if each.vhost_name == vhost)


def named_connection(node: Node, request: web.Request) -> Connection:
    """The connection that the path names, if the user may see it."""
    name = request.match_info["name"]
    for connection in connections_of(node):
        if connection.name == name and connection.vhost_name:
            _check_may_see(user_of(request), connection.user_name)
            return connection
    raise ObjectNotFound(f"no connection '{name}'")


def _check_may_see(user: User, owner: str) -> None:
    if user.name != owner and not Right.MONITORING.is_had_by(user):
        raise NotAuthorised(NOT_SEEN)


def _check_may_close(user: User, owner: str) -> None:
    if user.name != owner and not Right.ADMINISTRATOR.is_had_by(user):
        raise NotAuthorised(NOT_SEEN)


def _reason(request: web.Request) -> str:
    return request.headers.get(REASON, CLOSED_BY)


# --- as JSON ---


def describe(node: Node, connection: Connection) -> Row:
    peer = connection.peer
    properties = connection.client_properties
    told: Row = {
        "name": connection.name,
        "node": node.name,
        "user": connection.user_name,
        "user_who_performed_action": connection.user_name,
        "vhost": connection.vhost_name,
        "protocol": "Direct 0-9-1" if peer.is_direct else "AMQP 0-9-1",
        "type": "direct" if peer.is_direct else "network",
        "state": _state(connection),
        "auth_mechanism": connection.mechanism,
        "connected_at": connection.connected_ms,
        "peer_host": peer.host,
        "peer_port": peer.port,
        "host": peer.here_host,
        "port": peer.here_port,
        **_encryption(peer),
        "client_properties": properties,
        "channels": len(connection.channels),
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "timeout": connection.liveness.interval_seconds,
    }
    given = properties.get("connection_name")
    return told if given is None else told | {"user_provided_name": given}


def _encryption(peer: Peer) -> Row:
    """As in RabbitMQ, what a connection does not have is null: encryption, or a client's certificate."""
    used = peer.encryption
    shown = None if used is None else used.certificate
    return {
        "ssl": used is not None,
        "ssl_protocol": used and used.protocol,
        "ssl_key_exchange": used and used.key_exchange,
        "ssl_cipher": used and used.cipher,
        "ssl_hash": used and used.hash,
        "peer_cert_subject": shown and shown.subject,
        "peer_cert_issuer": shown and shown.issuer,
        "peer_cert_validity": shown and shown.validity,
    }


def _state(connection: Connection) -> str:
    """RabbitMQ's word for it: `blocked` by an alarm, or slowed down by `flow`."""
    if connection.state is State.OPEN and connection.blocked:
        return "blocked"
    if connection.state is State.OPEN and connection.held_by is not None:
        return "flow"
    return STATES.get(connection.state, "starting")
