"""All addresses on which a broker listens, for AMQP and HTTP, with TLS and without."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import structlog

from warren.server.address import Address, address_text
from warren.server.descriptors import Descriptors
from warren.server.doorway import Doorway, Manners
from warren.server.listener import accepted_a_turn, bind
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
        self.passage = Reception(loop)  # of clients that have neither TLS nor a proxy: they stay for a turn
        self.open_ports: list[OpenPort] = []  # in the order of the settings; services add theirs
        self.doorways: list[Doorway] = []
        descriptors.counters.append(self.reception.count)

    async def add(self, protocol: str, address: Address, manners: Manners) -> OpenPort:
        """Listen on an address."""
        try:
            port = await self._open(address, manners)
        except OSError as error:
            number = error.errno or 0  # below 0 if the host is not known
            why = os.strerror(number) if number > 0 else error.strerror
            raise OSError(error.errno, f"cannot listen on {address} for {protocol}: {why}") from error
        return self.note(protocol, address.host, port)

    async def _open(self, address: Address, manners: Manners) -> int:
        doorway = Doorway(
            await bind(self.loop, address.host, address.port),
            manners,
            self.passage if manners.is_plain else self.reception,
            self.log,
            has_room=self.descriptors.has_room,
            accepted_max=accepted_a_turn(self.descriptors.limit),
        )
        self.doorways.append(doorway)
        return doorway.port

    def note(self, protocol: str, host: str, port: int) -> OpenPort:
        """Note a port that is open, so that `of` finds it."""
        self.open_ports.append(OpenPort(protocol, host, port))
        return self.open_ports[-1]

    def of(self, protocol: str) -> list[OpenPort]:
        return [each for each in self.open_ports if each.protocol == protocol]

    async def close(self) -> None:
        """Let nobody in any more. Whoever has been let in is connected when this returns."""
        for doorway in self.doorways:
            doorway.close()
        await self.reception.close()
        await self.passage.close()
