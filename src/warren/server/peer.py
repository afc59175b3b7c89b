"""The peer of a connection, from its transport."""

from __future__ import annotations

import asyncio

from warren.server.proxy_header import ProxyHeader
from warren.server.tls import Tls
from warren.session.peer import Peer


def peer_of(
    transport: asyncio.BaseTransport, tls: Tls | None = None, header: ProxyHeader | None = None
) -> Peer | None:
    """None if the client has gone already. A proxy's `header` has the addresses of its client."""
    there, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if there is None or here is None:
        return None
    if header is not None:
        there, here = header.source or there, header.destination or here
    connection = transport.get_extra_info("ssl_object")
    return Peer(
        host=there[0],
        port=there[1],
        here_host=here[0],
        here_port=here[1],
        encryption=None if tls is None or connection is None else tls.encryption(connection),
    )
