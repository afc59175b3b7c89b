"""AMQP over a WebSocket: the same connection as over a socket, with its limits and its back pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from tests.support.certificates import Certificates
from tests.support.frames import (
    FRAME_HEAD,
    PROTOCOL_HEADER,
    Frame,
    method_frame,
    published,
    start_ok,
    tune_ok,
)
from tests.support.http_api import Api, make_broker
from warren.amqp import methods as m
from warren.management.app import HttpService
from warren.management.websocket import RECEIVED_BYTES_MAX
from warren.server.listeners import HTTPS
from warren.session.connection import Connection, connections_of

WAIT_SECONDS_MAX = 20
M = TypeVar("M", bound=m.Method)


class Client:
    """A client of AMQP on a WebSocket, frame by frame."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.received = bytearray()

    async def read(self, size: int) -> bytes:
        while len(self.received) < size:
            self.received += await self.socket.receive_bytes(timeout=WAIT_SECONDS_MAX)
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken

    async def frame(self) -> Frame:
        kind, channel, size = FRAME_HEAD.unpack(await self.read(FRAME_HEAD.size))
        return Frame(kind, channel, (await self.read(size + 1))[:-1])

    async def expect(self, kind: type[M]) -> M:
        frame = await self.frame()
        method = m.decode_method(frame.payload)
        assert isinstance(method, kind), frame
        return method

    async def send(self, method: m.Method, channel: int = 1) -> None:
        await self.socket.send_bytes(method_frame(channel, method))

    async def log_in(self, heartbeat: int = 0) -> None:
        await self.socket.send_bytes(PROTOCOL_HEADER)
        await self.expect(m.ConnectionStart)
        await self.send(start_ok(), 0)
        await self.expect(m.ConnectionTune)
        await self.send(tune_ok(heartbeat), 0)
        await self.send(m.ConnectionOpen(), 0)
        await self.expect(m.ConnectionOpenOk)

    async def open_channel(self) -> None:
        await self.send(m.ChannelOpen())
        await self.expect(m.ChannelOpenOk)

    async def expect_end(self) -> None:
        message = await self.socket.receive(timeout=WAIT_SECONDS_MAX)
        assert message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED}


@asynccontextmanager
async def connected(api: Api) -> AsyncIterator[Client]:
    url = f"http://{api.broker.services['http'].address}/ws/amqp"
    async with api.session.ws_connect(url, protocols=("amqp",)) as socket:
        yield Client(socket)


def batched(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def until_no_clients(api: Api) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while api.broker.node.clients:  # noqa: ASYNC110 - the model tells nobody
            await asyncio.sleep(0.005)


async def until_all_buffers_are_full(connection: Connection) -> None:
    """Also those of the kernel and of the client: what is unsent stays the same in many looks at it."""
    seen: list[int] = []
    while len(seen) < 20:
        await asyncio.sleep(0.01)
        unsent = connection.link.unsent_bytes()
        seen = [*seen, unsent] if unsent and unsent in seen[-1:] else [unsent]


async def test_subprotocol_is_agreed_on(api: Api) -> None:
    async with connected(api) as client:
        assert client.socket.protocol == "amqp"


async def test_pages_of_other_origins_may_not_connect_unless_they_are_named(tmp_path: Path) -> None:
    origins = ("https://named.example",)
    broker = make_broker(tmp_path / "data", http_cors_origins=origins)
    async with broker, aiohttp.ClientSession() as session:
        address = broker.services["http"].address
        for origin in (*origins, f"http://{address}"):
            async with session.ws_connect(f"http://{address}/ws/amqp", origin=origin) as socket:
                await Client(socket).log_in()
        for origin in ("https://other.example", "null"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"http://{address}/ws/amqp", origin=origin)
            assert refused.value.status == 403


@pytest.mark.parametrize("size", [0, 1, 1_500_000])
async def test_messages_go_both_ways(api: Api, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    queue = api.declare("q")
    async with connected(api) as client:
        await client.log_in()
        await client.open_channel()
        for piece in batched(published("", "q", body), RECEIVED_BYTES_MAX // 2):
            await client.socket.send_bytes(piece)
        await client.send(m.BasicConsume(queue="q", no_ack=True, arguments={}))
        await client.expect(m.BasicConsumeOk)
        delivered = await client.expect(m.BasicDeliver)
        assert delivered.routing_key == "q"
        await client.frame()
        received = b""
        while len(received) < size:
            received += (await client.frame()).payload
        assert received == body
    await until_no_clients(api)
    assert queue.message_count == 0


async def test_bytes_may_be_cut_anywhere(api: Api) -> None:
    async with connected(api) as client:
        for byte in PROTOCOL_HEADER:
            await client.socket.send_bytes(bytes([byte]))
        await client.expect(m.ConnectionStart)


async def test_connection_is_named_by_its_addresses(api: Api) -> None:
    async with connected(api) as client:
        await client.log_in()
        (connection,) = connections_of(api.broker.node)
        assert connection.name.startswith("127.0.0.1:")
        assert connection.name.endswith(f"-> {api.broker.services['http'].address}")
        assert connection.user_name == "guest"


async def test_client_that_closes_is_told_so_and_the_socket_ends(api: Api) -> None:
    async with connected(api) as client:
        await client.log_in()
        await client.send(m.ConnectionClose(reply_code=200), 0)
        await client.expect(m.ConnectionCloseOk)
        await client.expect_end()
    await until_no_clients(api)


async def test_wrong_password_is_refused_as_over_a_socket(api: Api) -> None:
    async with connected(api) as client:
        await client.socket.send_bytes(PROTOCOL_HEADER)
        await client.expect(m.ConnectionStart)
        await client.send(start_ok("guest", "wrong"), 0)
        assert (await client.expect(m.ConnectionClose)).reply_code == 403


async def test_another_protocol_is_told_ours_and_closed(api: Api) -> None:
    async with connected(api) as client:
        await client.socket.send_bytes(b"GET / HT")
        assert await client.read(8) == PROTOCOL_HEADER
        await client.expect_end()


async def test_text_is_not_understood(api: Api) -> None:
    async with connected(api) as client:
        await client.socket.send_str("hello")
        message = await client.socket.receive(timeout=WAIT_SECONDS_MAX)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.UNSUPPORTED_DATA)
    await until_no_clients(api)


async def test_client_that_vanishes_is_forgotten(api: Api) -> None:
    queue = api.declare("q")
    await api.publish(queue, [b"x"])
    async with connected(api) as client:
        await client.log_in()
        await client.open_channel()
        await client.send(m.BasicGet(queue="q"))
        await client.expect(m.BasicGetOk)
        client.socket._response.connection.transport.abort()  # type: ignore[union-attr]  # aiohttp has no other way
        await until_no_clients(api)
    assert queue.message_count == 1


async def test_client_that_takes_nothing_gets_only_what_the_buffers_hold(api: Api) -> None:
    """And goes on to get everything once it reads."""
    queue = api.declare("q")
    bodies = [bytes(100_000)] * 300
    await api.publish(queue, bodies)
    async with connected(api) as client:
        await client.log_in()
        await client.open_channel()
        await client.send(m.BasicConsume(queue="q", no_ack=True, arguments={}))
        await client.expect(m.BasicConsumeOk)
        (connection,) = connections_of(api.broker.node)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while "socket" not in connection.not_delivering_because:  # noqa: ASYNC110 - the model tells nobody
                await asyncio.sleep(0.005)
        assert connection.link.unsent_bytes() < 8_000_000
        received = 0
        while received < 30_000_000:
            frame = await client.frame()
            received += len(frame.payload) if frame.kind == 3 else 0
        assert connection.not_delivering_because == set()


async def test_message_of_more_than_the_limit_is_refused(api: Api) -> None:
    async with connected(api) as client:
        await client.socket.send_bytes(bytes(RECEIVED_BYTES_MAX + 1))
        message = await client.socket.receive(timeout=WAIT_SECONDS_MAX)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)
    await until_no_clients(api)


@pytest.mark.parametrize("last_words", ["close", "text"])
async def test_client_that_wants_to_close_but_takes_nothing_is_cut_off(
    api: Api, monkeypatch: pytest.MonkeyPatch, last_words: str
) -> None:
    monkeypatch.setattr("warren.management.websocket.CLOSE_SECONDS_MAX", 0.1)
    queue = api.declare("q")
    await api.publish(queue, [bytes(100_000)] * 300)
    service = api.broker.services["http"]
    assert isinstance(service, HttpService)
    assert service.runner is not None
    server = service.runner.server
    assert server is not None
    async with connected(api) as client:
        await client.log_in()
        await client.open_channel()
        await client.send(m.BasicConsume(queue="q", no_ack=True, arguments={}))
        (connection,) = connections_of(api.broker.node)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await until_all_buffers_are_full(connection)
            if last_words == "close":
                await client.send(m.ConnectionClose(reply_code=200), 0)
            else:
                await client.socket.send_str("hello")
            while server.connections:  # noqa: ASYNC110 - nothing tells that a socket is closed
                await asyncio.sleep(0.005)
    assert not api.broker.node.clients


async def test_publisher_that_is_blocked_is_not_read(api: Api) -> None:
    queue = api.declare("q")
    async with connected(api) as client:
        await client.log_in()
        await client.open_channel()
        api.broker.node.raise_alarm("memory")
        await client.socket.send_bytes(published("", "q", b"one"))
        assert isinstance(await client.expect(m.ConnectionBlocked), m.ConnectionBlocked)
        assert queue.message_count == 0
        api.broker.node.clear_alarm("memory")
        await client.expect(m.ConnectionUnblocked)
        await client.send(m.BasicGet(queue="q", no_ack=True))
        await client.expect(m.BasicGetOk)


async def test_silent_client_loses_its_connection(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.session.liveness.HANDSHAKE_SECONDS_MAX", 0.1)
    async with connected(api) as client:
        await client.expect_end()


async def test_broker_that_stops_says_so(tmp_path: Path) -> None:
    async with (
        make_broker(tmp_path / "data") as broker,
        aiohttp.ClientSession() as session,
        connected(Api(broker, session)) as client,
    ):
        await client.log_in()
        stopping = asyncio.create_task(broker.stop())
        close = await client.expect(m.ConnectionClose)
        assert (close.reply_code, close.reply_text) == (
            320,
            "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
        )
        await client.send(m.ConnectionCloseOk(), 0)
        await client.expect_end()
        await stopping


async def test_plain_request_is_told_what_the_path_is_for(api: Api) -> None:
    answer = await api.get("/ws/amqp", user="")
    assert (answer.status, answer.json["reason"]) == (400, "this path is for WebSockets")


async def test_it_works_over_https_too(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = {
        "http_tls_port": 0,
        "tls_port": -1,
        "tls_cert": str(certificates.server),
        "tls_ca": str(certificates.ca),
        "tls_verify": "peer",
    }
    context = certificates.context(certificates.client("guest"))
    async with make_broker(tmp_path / "data", **settings) as broker, aiohttp.ClientSession() as session:
        address = broker.listeners.of(HTTPS)[0].address
        async with session.ws_connect(f"https://{address}/ws/amqp", ssl=context) as socket:
            client = Client(socket)
            await socket.send_bytes(PROTOCOL_HEADER)
            start = await client.expect(m.ConnectionStart)
            assert b"EXTERNAL" in start.mechanisms.split()
