"""Where the broker listens, as RabbitMQ tells it in the overview, of nodes and to health checks."""

from __future__ import annotations

from dataclasses import dataclass

from warren.management.listing import Row
from warren.server.app import Broker


@dataclass(frozen=True)
class Listening:
    """One address that clients can connect to."""

    protocol: str  # RabbitMQ's name for it, such as `amqp` or `http`
    host: str
    port: int

    def described(self, node: str) -> Row:
        return {
            "node": node,
            "protocol": self.protocol,
            "ip_address": self.host,
            "port": self.port,
            "socket_opts": {},
        }


def listeners_of(broker: Broker) -> list[Listening]:
    addresses = {"amqp": broker.address} | {n: service.address for n, service in broker.services.items()}
    found: list[Listening] = []
    for protocol, address in addresses.items():
        host, _, port = address.rpartition(":")
        found.append(Listening(protocol, host.strip("[]"), int(port)))
    return found


def contexts_of(broker: Broker) -> list[Row]:
    """What is served over HTTP."""
    return [
        {"description": "RabbitMQ Management", "path": "/", "ip": each.host, "port": str(each.port)}
        for each in listeners_of(broker)
        if each.protocol.startswith("http")
    ]
