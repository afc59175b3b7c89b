from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from warren.management.connection import HttpConnection, Visitors
from warren.server.descriptors import REFUSED_MAX, Descriptors
from warren.server.log import get_logger
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


@pytest.fixture
def visitors() -> Visitors:
    return Visitors(Descriptors(10_000, 100, get_logger(), lambda: 0.0))


async def nobody(_request: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError("nobody asks")


async def test_address_is_still_known_when_the_client_has_gone(visitors: Visitors) -> None:
    transport = FakeTransport()
    connection = HttpConnection(web.Server(nobody), visitors, None, None)
    connection.connection_made(transport)
    transport.lose()
    assert connection.peername == ("192.0.2.8", 1)
    connection.connection_lost(None)


async def test_address_is_that_of_the_proxys_client(visitors: Visitors) -> None:
    transport, header = FakeTransport(), ProxyHeader()
    header.take(b"PROXY TCP4 192.0.2.9 192.0.2.1 3 4\r\n")
    connection = HttpConnection(web.Server(nobody), visitors, None, header)
    connection.connection_made(transport)
    assert connection.peername == ("192.0.2.9", 3)
    connection.connection_lost(None)


async def test_client_that_was_gone_at_once_is_not_served(visitors: Visitors) -> None:
    transport = FakeTransport()
    transport.lose()
    connection = HttpConnection(web.Server(nobody), visitors, None, None)
    connection.connection_made(transport)
    assert transport.is_aborted
    assert connection.peername is None
    connection.connection_lost(None)


async def test_client_for_whom_no_descriptor_is_left_is_not_served(visitors: Visitors) -> None:
    others = visitors.descriptors.connections_max
    visitors.descriptors.counters.append(lambda: others)
    transports = [FakeTransport() for _ in range(REFUSED_MAX)]
    connections = [HttpConnection(web.Server(nobody), visitors, None, None) for _ in transports]
    for connection, transport in zip(connections, transports, strict=True):
        connection.connection_made(transport)
    served = [not transport.is_aborted for transport in transports]
    assert served == [True] * (REFUSED_MAX // 2) + [False] * (REFUSED_MAX // 2)
    for connection in connections:
        connection.connection_lost(None)
    assert visitors.descriptors.others() == others
