"""One client's socket, between the event loop and its connection."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from warren.amqp.methods import METHODS
from warren.amqp.reader import ReadBuffer
from warren.server.farewell import Farewells
from warren.server.watchdog import Watchdog
from warren.session.connection import Connection

if TYPE_CHECKING:
    from warren.broker.node import Node
    from warren.server.descriptors import Descriptors

UNSENT_BYTES_HIGH = 1024 * 1024
UNSENT_BYTES_LOW = 256 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # of SO_LINGER: on, for no time


class AmqpProtocol(asyncio.BufferedProtocol):
    """Lets the kernel write into the buffer that all connections share, and is the connection's `Link`."""

    def __init__(
        self,
        node: Node,
        buffer: ReadBuffer,
        receive_buffer_bytes: int,
        *,
        descriptors: Descriptors,
        farewells: Farewells,
        watchdog: Watchdog,
    ) -> None:
        self.node = node
        self.descriptors = descriptors
        self.entered = False
        self.watchdog = watchdog
        self.buffer = buffer
        self.receive_buffer_bytes = receive_buffer_bytes
        self.farewells = farewells
        self.connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH, low=UNSENT_BYTES_LOW)
        peer = transport.get_extra_info("peername")
        self.entered = self.descriptors.enter()
        if peer is None or not self.entered:  # it has gone before we could look, or there is no room
            self.transport.abort()
            return
        if self.receive_buffer_bytes:
            client: socket.socket = transport.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        here = transport.get_extra_info("sockname")
        name = f"{peer[0]}:{peer[1]} -> {here[0]}:{here[1]}"
        loopback = ipaddress.ip_address(peer[0].partition("%")[0]).is_loopback
        self.connection = Connection(self.buffer, self.node, self, name, is_loopback=loopback)

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self.connection is not None
        return self.connection.writable_view()

    def buffer_updated(self, nbytes: int) -> None:
        connection = self.connection
        assert connection is not None
        started = self.watchdog.now()
        connection.received(nbytes)
        self.watchdog.ended(started, lambda: what_was_read(connection, nbytes))

    def eof_received(self) -> None:
        """The client has nothing more to say: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        if self.connection is not None:
            self.connection.lost()
            self.connection = None  # they refer to each other, and cycles would wait for the collector

    def leave(self) -> None:
        """The socket is closed."""
        if self.entered:
            self.descriptors.leave()

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.congestion_changed(congested=True)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.congestion_changed(congested=False)

    # --- the connection's link ---

    def send(self, chunks: Sequence[bytes | memoryview]) -> None:
        if self.transport.is_closing():
            return
        if len(chunks) == 1:
            self.transport.write(chunks[0])
        else:
            self.transport.writelines(chunks)

    def pause_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def close(self) -> None:
        """What is written still goes out; what else the client says is thrown away until it closes too."""
        self.connection = None
        if not self.transport.is_closing():
            self.farewells.begin(self.transport, self.leave)

    def reset(self) -> None:
        """Nobody is there who could take what was written, or close: nothing of the socket stays behind."""
        client: socket.socket = self.transport.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()


def what_was_read(connection: Connection, nbytes: int) -> dict[str, object]:
    method = METHODS.get(connection.handled)
    return {
        "what": "read",
        "connection": connection.name,
        "bytes": nbytes,
        "last_method": "none" if method is None else method.name,
    }
