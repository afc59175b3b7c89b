"""One client's connection to the HTTP API: aiohttp's, with what is known of the peer from the start.

A client that sends a request and is gone has no address any more when the request is read. Behind a proxy the
socket's address is the proxy's. So the peer is looked up when the connection is made, and is what requests
have as `remote`: logins, the audit log and the log go by it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from warren.management.errors import BadRequest
from warren.management.json_text import json_response
from warren.server.descriptors import Descriptors
from warren.server.peer import peer_of
from warren.server.proxy_header import ProxyHeader
from warren.server.tls import Tls
from warren.session.peer import Peer

IDLE_SECONDS_MAX = 75.0  # of a connection between two requests
LINE_BYTES_MAX = 64 * 1024  # of a request's first line: filters and columns may be long
OPTIONS: dict[str, Any] = {
    "access_log": None,
    "keepalive_timeout": IDLE_SECONDS_MAX,
    "max_line_size": LINE_BYTES_MAX,
}


class Visitors:
    """Counts the connections of a service that are open, in the broker's descriptors."""

    def __init__(self, descriptors: Descriptors) -> None:
        self.descriptors = descriptors
        self.count = 0
        descriptors.counters.append(self.descriptors_taken)

    def descriptors_taken(self) -> int:
        """Two for each connection: its socket, and a file that it may be reading."""
        return 2 * self.count

    def has_room(self) -> bool:
        return self.descriptors.has_room()


class HttpConnection(web.RequestHandler):
    __slots__ = ("header", "is_counted", "peer", "tls", "visitors")

    def __init__(
        self, server: web.Server, visitors: Visitors, tls: Tls | None, header: ProxyHeader | None
    ) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **OPTIONS)
        self.visitors = visitors
        self.is_counted = False
        self.tls = tls  # what the socket is encrypted with, if it is
        self.header = header  # from a proxy in front of the client, if there is one
        self.peer: Peer | None = None  # None before the socket is open, or if the client was gone by then

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client that has gone already, or for whom no descriptor is left, is not served."""
        self.peer = peer_of(transport, self.tls, self.header)
        is_welcome = self.peer is not None and self.visitors.has_room()
        self.visitors.count += 1
        self.is_counted = True
        super().connection_made(transport)
        if not is_welcome and self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.is_counted:
            self.visitors.count -= 1
            self.is_counted = False
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What cannot be read as a request gets JSON, too, as all that the API answers."""
        answer = super().handle_error(request, status, exc, message)
        if status != BadRequest.status:
            return answer
        told = json_response({"error": BadRequest.error, "reason": message or ""}, status=status)
        told.force_close()
        return told

    @property
    def peername(self) -> tuple[str, int] | None:
        """Where requests come from, for aiohttp."""
        return None if self.peer is None else (self.peer.host, self.peer.port)


def peer_of_request(request: web.Request) -> Peer | None:
    """Who asks; None if the client was gone when its connection was made."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection), "the service makes no others"
    return connection.peer
