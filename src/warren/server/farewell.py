"""The end of a connection to which the broker has said its last word.

Closing a socket while the client's bytes are unread, or still come, resets it, and a reset takes away what
the client has not read yet: close-ok, or the reason why it was closed. So the broker ends only its own side,
and reads on and throws away what comes, until the client ends the other side, or for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGER_SECONDS_MAX = 10.0
DISCARDED_BYTES_MAX = 64 * 1024 * 1024
DISCARDED = memoryview(bytearray(256 * 1024))  # nobody reads what is written here


class Farewells:
    """All clients who have yet to close. `check` is called about twice a second."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.leaving: set[Farewell] = set()

    def begin(self, transport: asyncio.Transport) -> None:
        """What is written still goes out, and then the end of it."""
        farewell = Farewell(transport, self.leaving, self.now())
        transport.set_protocol(farewell)
        transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()

    def check(self) -> None:
        since = self.now() - LINGER_SECONDS_MAX
        for farewell in list(self.leaving):
            if farewell.began_at < since:
                farewell.transport.abort()

    def end(self) -> None:
        """The broker ends, and waits for nobody."""
        for farewell in list(self.leaving):
            farewell.transport.abort()


class Farewell(asyncio.BufferedProtocol):
    """Takes the place of the protocol that the transport had."""

    def __init__(self, transport: asyncio.Transport, leaving: set[Farewell], began_at: float) -> None:
        self.transport = transport
        self.leaving = leaving
        self.began_at = began_at
        self.discarded_bytes = 0
        leaving.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return DISCARDED

    def buffer_updated(self, nbytes: int) -> None:
        self.discarded_bytes += nbytes
        if self.discarded_bytes > DISCARDED_BYTES_MAX:
            self.transport.abort()

    def eof_received(self) -> None:
        """The client has ended its side as well: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.leaving.discard(self)
