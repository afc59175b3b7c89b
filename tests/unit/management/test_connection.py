from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from warren.management.connection import HttpConnection
from warren.server.proxy_header import ProxyHeader


class FakeTransport(asyncio.Transport):
    """Knows its addresses as long as the client is there."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.8", 1), "sockname": ("192.0.2.1", 2)})
        self.is_aborted = False

    def lose(self) -> None:
        self._extra: dict[str, Any] = {}

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        """aiohttp closes it in the end."""


async def nobody(_request: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError("nobody asks")


async def test_address_is_still_known_when_the_client_has_gone() -> None:
    transport = FakeTransport()
    connection = HttpConnection(web.Server(nobody), None, None)
    connection.connection_made(transport)
    transport.lose()
    assert connection.peername == ("192.0.2.8", 1)
    connection.connection_lost(None)


async def test_address_is_that_of_the_proxys_client() -> None:
    transport, header = FakeTransport(), ProxyHeader()
    header.take(b"PROXY TCP4 192.0.2.9 192.0.2.1 3 4\r\n")
    connection = HttpConnection(web.Server(nobody), None, header)
    connection.connection_made(transport)
    assert connection.peername == ("192.0.2.9", 3)
    connection.connection_lost(None)


async def test_client_that_was_gone_at_once_is_not_served() -> None:
    transport = FakeTransport()
    transport.lose()
    connection = HttpConnection(web.Server(nobody), None, None)
    connection.connection_made(transport)
    assert transport.is_aborted
    assert connection.peername is None
    connection.connection_lost(None)
