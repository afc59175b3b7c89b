from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, web
from yarl import URL

from warren.management.connection import LINE_BYTES_MAX, HttpConnection, Visitors
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


@pytest.fixture
async def port(visitors: Visitors) -> AsyncIterator[int]:
    """Of a server that says how long the path of a request is."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=str(len(request.path_qs)))

    asked = web.Server(answer)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpConnection(asked, visitors, None, None), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await asked.shutdown()


async def test_a_request_with_long_filters_is_read(port: int) -> None:
    async with ClientSession() as session:
        url = URL(f"http://127.0.0.1:{port}/?columns={'x' * 40_000}")
        async with session.get(url) as answer:
            assert (answer.status, await answer.text()) == (200, str(len(url.path_qs)))


async def test_what_cannot_be_read_as_a_request_is_answered_as_json(port: int) -> None:
    async with ClientSession() as session:
        url = URL(f"http://127.0.0.1:{port}/?columns={'x' * LINE_BYTES_MAX}")
        async with session.get(url) as answer:
            assert (answer.status, answer.content_type) == (400, "application/json")
            told = await answer.json()
    assert told["error"] == "bad_request"
    assert str(LINE_BYTES_MAX) in told["reason"]


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
