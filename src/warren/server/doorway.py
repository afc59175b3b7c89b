"""Listening sockets, and the way from there to the event loop.

The broker accepts clients itself, and then hands their sockets to the event loop. Until then it knows which
sockets are its own, so that none is left open when it stops. (asyncio of Python 3.11 forgets a client that it
has accepted in the turn before its server is closed.) It also accepts many clients in a turn, where libuv, on
which the event loop is built, would accept one.

A proxy's header comes before TLS, in the same bytes. So the broker reads exactly the header from the socket,
and the event loop finds the handshake there. The handshake begins once the client has sent something: a
client that is silent costs no cryptography.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from warren.server.address import address_text
from warren.server.farewell import LINGER_SECONDS_MAX
from warren.server.listener import ACCEPTED_A_TURN
from warren.server.proxy_header import ProxyHeader, ProxyHeaderError
from warren.server.reception import WELCOME_SECONDS_MAX, Reception
from warren.server.tls_refusal import HANDSHAKE, Handshake

SHORT_SECONDS = 0.5  # for how long nobody is accepted if no descriptor is left

MakeProtocol = Callable[[ProxyHeader | None], asyncio.BaseProtocol]


class HasContext(Protocol):
    """What connections are encrypted with."""

    @property
    def context(self) -> ssl.SSLContext:
        """For new connections."""


@dataclass(frozen=True, kw_only=True)
class Manners:
    """How clients are let in at a doorway."""

    make_protocol: MakeProtocol  # called with the header of the proxy, if there is one
    tls: HasContext | None
    proxy_protocol: bool

    @property
    def is_plain(self) -> bool:
        """Whether clients can be handed to the event loop at once."""
        return self.tls is None and not self.proxy_protocol


class Doorway:
    """The listening sockets of one address. The event loop calls `_accept` when clients wait.

    When the doorway is closed, clients may still be in `reception`: whoever closes the one closes the other.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        manners: Manners,
        reception: Reception,
        log: structlog.stdlib.BoundLogger,
        *,
        has_room: Callable[[], bool] = lambda: True,
        accepted_max: int = ACCEPTED_A_TURN,
    ) -> None:
        self.sockets = sockets
        self.manners = manners
        self.reception = reception
        self.log = log
        self.has_room = has_room  # for one more client, if only to tell it that it is refused
        self.accepted_max = accepted_max  # in a turn, from each socket
        self.loop = reception.loop
        self.is_closed = False
        self.ours: set[socket.socket] = set()  # clients whose sockets the event loop does not have yet
        for listening in sockets:
            self._open(listening)

    @property
    def port(self) -> int:
        port: int = self.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        for listening in self.sockets:
            self.loop.remove_reader(listening)
            listening.close()

    def _open(self, listening: socket.socket) -> None:
        if not self.is_closed:
            self.loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self.accepted_max):
            try:
                client, from_where = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor or no memory is left
                self.log.warning("cannot accept clients", error=error.strerror)
                self.loop.remove_reader(listening)
                self.loop.call_later(SHORT_SECONDS, self._open, listening)
                return
            client.setblocking(False)
            if self.has_room():
                self.ours.add(client)
                address = address_text(*from_where[:2])
                self.reception.receive(self._welcome(client, address), partial(self._let_go, client))
            else:
                client.close()

    def _let_go(self, client: socket.socket) -> None:
        """Nobody waits for this client any more: if its socket is still ours, it is closed."""
        if client in self.ours:
            self.ours.discard(client)
            client.close()

    async def _welcome(self, client: socket.socket, address: str) -> None:
        header = ProxyHeader() if self.manners.proxy_protocol else None
        handshake = Handshake()
        if self.manners.tls is not None:
            HANDSHAKE.set(handshake)
        try:
            if not self.manners.is_plain:
                await self._begin(client, header)
                await self.reception.take_turn()
            await self._hand_over(client, header)
        except (OSError, ProxyHeaderError) as error:
            found = handshake.refusal or error
            peer, reason = _source(address, header), _reason(found)
            if isinstance(found, ConnectionError):
                self.log.debug("client has gone", peer=peer, reason=reason)
            else:
                self.log.info("client not let in", peer=peer, reason=reason)

    async def _begin(self, client: socket.socket, header: ProxyHeader | None) -> None:
        """Read the proxy's header if there is to be one, and wait for what is behind it."""
        async with asyncio.timeout(WELCOME_SECONDS_MAX):
            if header is not None:
                await read_header(self.loop, client, header)
            await readable(self.loop, client)

    async def _hand_over(self, client: socket.socket, header: ProxyHeader | None) -> None:
        """Let the event loop have the socket, which closes it if the handshake fails or is cancelled."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol, tls = self.manners.make_protocol(header), self.manners.tls
        self.ours.discard(client)
        if tls is None:
            self.reception.let_in()
            await self.loop.connect_accepted_socket(lambda: protocol, client)
        else:
            await self.loop.connect_accepted_socket(
                lambda: protocol,
                client,
                ssl=tls.context,
                ssl_handshake_timeout=WELCOME_SECONDS_MAX,
                ssl_shutdown_timeout=LINGER_SECONDS_MAX,
            )


async def readable(loop: asyncio.AbstractEventLoop, client: socket.socket, size: int = 1) -> bytes:
    """Wait until the client has sent something. Look at no more than `size` bytes, and leave them there."""
    arrived: asyncio.Future[None] = loop.create_future()
    loop.add_reader(client, lambda: None if arrived.done() else arrived.set_result(None))
    try:
        await arrived
    finally:
        loop.remove_reader(client)
    seen = client.recv(size, socket.MSG_PEEK)
    if not seen:
        raise ConnectionResetError("the client has closed its socket")
    return seen


async def read_header(loop: asyncio.AbstractEventLoop, client: socket.socket, header: ProxyHeader) -> None:
    """Read the header, and not a byte more."""
    while not header.is_complete:
        arrived = await readable(loop, client, header.wanted_bytes())
        client.recv(header.take(arrived))


def _source(address: str, header: ProxyHeader | None) -> str:
    """The client's address, as far as it is known: the proxy's, until the header has come."""
    return address if header is None or header.source is None else address_text(*header.source)


def _reason(error: Exception) -> str:
    if isinstance(error, ProxyHeaderError):
        return f"PROXY header: {error}"
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return reason or str(error) or type(error).__name__
