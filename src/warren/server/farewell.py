"""The end of a connection, after the broker has sent its last frame.

Closing a socket while bytes of the client are unread, or still arrive, resets it. A reset takes away what the
client has not read yet: close-ok, or the reason why the broker closed the connection. So the broker ends only
its own side. It reads on, and throws away what arrives, until the client ends the other side too, or a time
or size limit is reached. With TLS the transport does the same when it is closed: it says that it ends, and
throws away what arrives until the client says so, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGER_SECONDS_MAX = 10.0
DISCARDED_BYTES_MAX = 64 * 1024 * 1024
DISCARDED = memoryview(bytearray(256 * 1024))  # all farewells receive into this; nobody reads it


class Farewells:
    """All connections whose client has yet to close. `check` is called about twice a second."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.leaving: set[Farewell] = set()

    def begin(self, transport: asyncio.Transport, closed: Callable[[], None]) -> None:
        """Send what is written, then end our side. `closed` is called once the socket is closed."""
        farewell = Farewell(transport, self.leaving, self.now(), closed)
        transport.set_protocol(farewell)
        transport.resume_reading()
        if not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:  # the client has reset the socket by now: nobody is left to hear our last words
            transport.abort()

    def check(self) -> None:
        since = self.now() - LINGER_SECONDS_MAX
        for farewell in list(self.leaving):
            if farewell.began_at < since:
                farewell.transport.abort()

    def end(self) -> None:
        """The broker stops: close all of these sockets at once."""
        for farewell in list(self.leaving):
            farewell.transport.abort()


class Farewell(asyncio.BufferedProtocol):
    """Replaces the transport's protocol, and discards what the client still sends."""

    def __init__(
        self,
        transport: asyncio.Transport,
        leaving: set[Farewell],
        began_at: float,
        closed: Callable[[], None],
    ) -> None:
        self.transport = transport
        self.leaving = leaving  # the set that this farewell is in until the socket is closed
        self.began_at = began_at
        self.closed = closed
        self.discarded_bytes = 0
        leaving.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return DISCARDED

    def buffer_updated(self, nbytes: int) -> None:
        self.discarded_bytes += nbytes
        if self.discarded_bytes > DISCARDED_BYTES_MAX:
            self.transport.abort()

    def eof_received(self) -> None:
        """The client has ended its side as well. Returning nothing lets the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.leaving.discard(self)
        self.closed()
