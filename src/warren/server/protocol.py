"""One client's socket: passes bytes between the event loop and the client's `Connection`."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from warren.amqp.methods import METHODS
from warren.amqp.reader import ReadBuffer
from warren.server.farewell import Farewells
from warren.server.peer import peer_of
from warren.server.proxy_header import ProxyHeader
from warren.server.tls import Tls
from warren.server.watchdog import Watchdog
from warren.session.connection import Connection

if TYPE_CHECKING:
    from warren.broker.node import Node
    from warren.server.descriptors import Descriptors

UNSENT_BYTES_HIGH = 1024 * 1024
UNSENT_BYTES_LOW = 256 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # the value of SO_LINGER: on, for 0 seconds


class AmqpProtocol(asyncio.BufferedProtocol):
    """Receives into the buffer that all connections share, and is the connection's `Link`."""

    def __init__(
        self,
        node: Node,
        buffer: ReadBuffer,
        receive_buffer_bytes: int,
        *,
        descriptors: Descriptors,
        farewells: Farewells,
        watchdog: Watchdog,
        after_read: Callable[[], None],
        tls: Tls | None = None,
        header: ProxyHeader | None = None,
    ) -> None:
        self.node = node
        self.descriptors = descriptors  # counts this socket while it is open
        self.entered = False  # whether `descriptors` counts it
        self.watchdog = watchdog
        self.after_read = after_read  # called when what was read has been handled
        self.buffer = buffer  # shared by all connections
        self.receive_buffer_bytes = receive_buffer_bytes  # of the kernel, for this socket; 0: its default
        self.farewells = farewells
        self.tls = tls  # what the socket is encrypted with, if it is
        self.header = header  # from a proxy in front of the client, if there is one
        self.connection: Connection | None = None  # None before the socket is open, and after `close`

    def __repr__(self) -> str:
        return f"<AmqpProtocol {getattr(getattr(self, 'connection', None), 'name', 'without connection')}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH, low=UNSENT_BYTES_LOW)
        peer = peer_of(transport, self.tls, self.header)
        self.entered = self.descriptors.enter()
        if peer is None or not self.entered:  # the client has gone already, or no descriptor is left for it
            self.transport.abort()
            return
        if self.receive_buffer_bytes:
            client: socket.socket = transport.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        self.connection = Connection(self.buffer, self.node, self, peer)

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self.connection is not None
        return self.connection.writable_view()

    def buffer_updated(self, nbytes: int) -> None:
        """Everything that a client sends passes here: `warren perf throughput` watches this."""
        connection = self.connection
        assert connection is not None
        started = self.watchdog.now()
        connection.received(nbytes)
        self.watchdog.ended(started, lambda: what_was_read(connection, nbytes))
        self.after_read()

    def eof_received(self) -> None:
        """The client has ended its side. Returning nothing lets the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        if self.connection is not None:
            self.watchdog.run(self.connection.lost)
            self.connection = None  # breaks the cycle, which would live until the garbage collector runs

    def leave(self) -> None:
        """The socket is closed: its descriptor is free again."""
        if self.entered:
            self.descriptors.leave()

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.congestion_changed(congested=True)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.watchdog.run(partial(self.connection.congestion_changed, congested=False))

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
        """Send what is written; then discard what the client sends until it closes, too."""
        self.connection = None
        if not self.transport.is_closing():
            self.farewells.begin(self.transport, self.leave)

    def reset(self) -> None:
        """The client is gone: close at once, without sending what is written, so that the kernel, too, keeps
        nothing of the socket.
        """
        client: socket.socket = self.transport.get_extra_info("socket")
        if client.fileno() >= 0:  # else it is closed already
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
