"""One client's connection to the HTTP API: aiohttp's, with what is known of the peer from the start.

A client that sends a request and is gone has no address any more when the request is read. Behind a proxy the
socket's address is the proxy's. So the peer is looked up when the connection is made, and is what requests
have as `remote`: logins, the audit log and the log go by it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from warren.server.peer import peer_of
from warren.server.proxy_header import ProxyHeader
from warren.server.tls import Tls
from warren.session.peer import Peer

IDLE_SECONDS_MAX = 75.0  # of a connection between two requests
OPTIONS: dict[str, Any] = {"access_log": None, "keepalive_timeout": IDLE_SECONDS_MAX}


class HttpConnection(web.RequestHandler):
    __slots__ = ("header", "peer", "tls")

    def __init__(self, server: web.Server, tls: Tls | None, header: ProxyHeader | None) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **OPTIONS)
        self.tls = tls  # what the socket is encrypted with, if it is
        self.header = header  # from a proxy in front of the client, if there is one
        self.peer: Peer | None = None  # None before the socket is open, or if the client was gone by then

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = peer_of(transport, self.tls, self.header)
        super().connection_made(transport)
        if self.peer is None and self.transport is not None:
            self.transport.abort()

    @property
    def peername(self) -> tuple[str, int] | None:
        """Where requests come from, for aiohttp."""
        return None if self.peer is None else (self.peer.host, self.peer.port)


def peer_of_request(request: web.Request) -> Peer | None:
    """Who asks; None if the client was gone when its connection was made."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection), "the service makes no others"
    return connection.peer
