"""All addresses on which a broker listens, for AMQP and HTTP, with TLS and without."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import structlog

from warren.server.address import Address, address_text
from warren.server.descriptors import Descriptors
from warren.server.doorway import Doorway, Manners, bind
from warren.server.listener import Listener, accepted_a_turn, listen
from warren.server.reception import WAITING_MAX, Reception

AMQP, AMQPS, HTTP, HTTPS = "amqp", "amqp/ssl", "http", "https"  # as RabbitMQ names them
PROMETHEUS = "http/prometheus"
SCHEMES = {AMQPS: "amqps", PROMETHEUS: "prometheus"}
WAITING_SHARE = 4  # clients in a TLS handshake may take 1/4 of the descriptors for connections


@dataclass(frozen=True, slots=True)
class OpenPort:
    """An address that is listened on."""

    protocol: str  # one of the names above
    host: str  # as the setting names it
    port: int  # the one that the kernel chose if the setting has 0

    @property
    def scheme(self) -> str:
        return SCHEMES.get(self.protocol, self.protocol)

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)


class Listeners:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptors: Descriptors,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.loop = loop
        self.descriptors = descriptors
        self.log = log
        self.reception = Reception(
            loop, min(WAITING_MAX, max(1, descriptors.connections_max // WAITING_SHARE))
        )
        self.open_ports: list[OpenPort] = []  # in the order of the settings; services add theirs
        self.listeners: list[Listener] = []
        self.doorways: list[Doorway] = []
        descriptors.counters.append(self.reception.count)

    async def add(self, protocol: str, address: Address, manners: Manners, *, share: int = 1) -> OpenPort:
        """Listen on an address. `share` is among how many the sockets are shared that accept clients."""
        try:
            port = await self._open(address, manners, share)
        except OSError as error:
            number = error.errno or 0  # below 0 if the host is not known
            why = os.strerror(number) if number > 0 else error.strerror
            raise OSError(error.errno, f"cannot listen on {address} for {protocol}: {why}") from error
        return self.note(protocol, address.host, port)

    async def _open(self, address: Address, manners: Manners, share: int) -> int:
        if manners.tls is None and not manners.proxy_protocol:
            listener = await self._listen(address, manners, share)
            self.listeners.append(listener)
            return listener.port
        sockets = await bind(self.loop, address.host, address.port)
        doorway = Doorway(sockets, manners, self.reception, self.descriptors, self.log)
        self.doorways.append(doorway)
        return doorway.port

    async def _listen(self, address: Address, manners: Manners, share: int) -> Listener:
        accepted = max(1, accepted_a_turn(self.descriptors.limit) // share)
        return await listen(
            self.loop, lambda: manners.make_protocol(None), address.host, address.port, accepted
        )

    def note(self, protocol: str, host: str, port: int) -> OpenPort:
        """Note a port that is open, so that `of` finds it."""
        self.open_ports.append(OpenPort(protocol, host, port))
        return self.open_ports[-1]

    def of(self, protocol: str) -> list[OpenPort]:
        return [each for each in self.open_ports if each.protocol == protocol]

    def close(self) -> None:
        """Accept nobody any more."""
        for listener in self.listeners:
            listener.close()
        for doorway in self.doorways:
            doorway.close()

    async def wait_closed(self) -> None:
        await self.reception.close()
        for listener in self.listeners:
            await listener.wait_closed()
