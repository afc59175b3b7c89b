"""AMQP over a WebSocket, at `/ws/amqp`: binary messages carry the bytes that a socket would carry, cut
anywhere. Clients log in as they do over a socket, so the endpoint itself needs no login.

A `WebSocketLink` is what `AmqpProtocol` is for a socket. Its outbox keeps what aiohttp has not taken yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from warren.management.connection import peer_of_request
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest, Forbidden
from warren.management.headers import Cors
from warren.management.rights import Right
from warren.server.protocol import UNSENT_BYTES_HIGH, UNSENT_BYTES_LOW
from warren.session.connection import Connection

SUBPROTOCOL = "amqp"
RECEIVED_BYTES_MAX = 1024 * 1024  # of a message from a client, who may not have logged in yet
SENT_BYTES_MAX = 128 * 1024  # of a message to a client
CLOSE_SECONDS_MAX = 10.0  # for a client to take what is left, and to close, too


class WebSocketLink:
    """The way from a connection to its client. `run` reads and writes until one side closes."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self.socket = socket
        self.transport = transport
        self.outbox: deque[bytes] = deque()  # messages to be sent
        self.outbox_bytes = 0
        self.has_work = asyncio.Event()  # whether there is something to send, or to close
        self.may_read = asyncio.Event()  # not set while the connection is not to be read
        self.is_congested = False  # whether the outbox is too full for deliveries
        self.is_closing = False
        self.deadline: asyncio.TimerHandle | None = None  # for the client to close; None before we do
        self.may_read.set()

    async def run(self, connection: Connection, received: Callable[[int], None]) -> None:
        """`received` is called with the size of what was written into the connection's `writable_view`."""
        self.connection = connection
        writing = asyncio.create_task(self._write())
        try:
            await self._read(received)
            if self.is_closing:
                await writing
        finally:  # nothing is awaited here: a client that vanishes cancels this at any time
            connection.lost()
            writing.cancel()
            if self.deadline is not None and not self.transport.get_write_buffer_size():
                self.deadline.cancel()  # else closing the transport would wait for the client, too

    # --- from the client ---

    async def _read(self, received: Callable[[int], None]) -> None:
        async for message in self.socket:
            if message.type is not WSMsgType.BINARY:
                self._limit_the_end()
                await self.socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"binary messages only")
                return
            await self._take(memoryview(message.data), received)

    async def _take(self, data: memoryview, received: Callable[[int], None]) -> None:
        """Feed the connection, and wait whenever it is not to be read."""
        while data and not self.is_closing:
            await self.may_read.wait()
            room = self.connection.writable_view()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            received(size)
            data = data[size:]

    # --- to the client ---

    async def _write(self) -> None:
        with suppress(ConnectionError):  # the reader is told as well
            while not self.is_closing or self.outbox:
                await self.has_work.wait()
                self.has_work.clear()
                await self._empty_outbox()
            await self.socket.close()

    async def _empty_outbox(self) -> None:
        while self.outbox:
            data = self.outbox.popleft()
            await self.socket.send_bytes(data)
            self.outbox_bytes -= len(data)
            if self.is_congested and self.outbox_bytes <= UNSENT_BYTES_LOW:
                self.is_congested = False
                self.connection.congestion_changed(congested=False)

    # --- the connection's link ---

    def send(self, chunks: Sequence[bytes | memoryview]) -> None:
        if self.is_closing:
            return
        data = b"".join(chunks)
        self.outbox.extend(data[at : at + SENT_BYTES_MAX] for at in range(0, len(data), SENT_BYTES_MAX))
        self.outbox_bytes += len(data)
        self.has_work.set()
        if not self.is_congested and self.outbox_bytes >= UNSENT_BYTES_HIGH:
            self.is_congested = True
            self.connection.congestion_changed(congested=True)

    def pause_reading(self) -> None:
        self.may_read.clear()

    def resume_reading(self) -> None:
        self.may_read.set()

    def unsent_bytes(self) -> int:
        return self.outbox_bytes + self.transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what is written, then a close frame. What the client sends until its own is not looked at."""
        self.is_closing = True
        self.may_read.set()
        self.has_work.set()
        self._limit_the_end()

    def _limit_the_end(self) -> None:
        """A client that reads nothing more, but stays, would keep its socket and what is left for ever."""
        if self.deadline is None:
            loop = asyncio.get_running_loop()
            self.deadline = loop.call_later(CLOSE_SECONDS_MAX, self.transport.abort)

    def reset(self) -> None:
        self.is_closing = True
        self.outbox.clear()
        self.may_read.set()
        self.transport.abort()


class AmqpOverWebSocket:
    def __init__(self, context: Context) -> None:
        self.broker = context.broker
        config = self.broker.config
        self.cors = Cors(config.http_cors_origins, config.http_cors_max_age)

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/ws/amqp",
                handler=self.get,
                summary="AMQP over a WebSocket, with the subprotocol `amqp`.",
                right=Right.PUBLIC,
                done=(101,),
                refuses=(400, 403),
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            max_msg_size=RECEIVED_BYTES_MAX,
            compress=False,
            timeout=CLOSE_SECONDS_MAX,
        )
        transport, peer = request.transport, peer_of_request(request)
        if transport is None or peer is None or not socket.can_prepare(request):
            raise BadRequest("this path is for WebSockets")
        if not self.cors.may_connect(request):
            raise Forbidden("pages of this origin may not connect: http_cors_origins does not name it")
        await socket.prepare(request)
        link = WebSocketLink(socket, transport)
        connection = Connection(self.broker.read_buffer, self.broker.node, link, peer)
        await link.run(connection, lambda size: self._received(connection, size))
        return socket

    def _received(self, connection: Connection, size: int) -> None:
        def take() -> None:
            connection.received(size)

        self.broker.world.watchdog.run(take)
        self.broker.storage.after_read()
