"""Where the broker listens, as RabbitMQ tells it in the overview, of nodes and to health checks."""

from __future__ import annotations

from warren.management.listing import Row
from warren.server.app import Broker
from warren.server.listener import BACKLOG
from warren.server.listeners import HTTP, HTTPS, PROMETHEUS, OpenPort

CONTEXTS = {HTTP: "RabbitMQ Management", HTTPS: "RabbitMQ Management", PROMETHEUS: "RabbitMQ Prometheus"}
"""RabbitMQ's words for what is served over HTTP."""


def listeners_of(broker: Broker) -> list[OpenPort]:
    return sorted(broker.listeners.open_ports, key=lambda each: each.protocol)


def describe(port: OpenPort, node: str) -> Row:
    return {
        "node": node,
        "protocol": port.protocol,
        "ip_address": port.host,
        "port": port.port,
        "socket_opts": {"backlog": BACKLOG, "nodelay": True},
    }


def contexts_of(broker: Broker) -> list[Row]:
    """What is served over HTTP."""
    return [
        {"description": CONTEXTS[each.protocol], "path": "/", "ip": each.host, "port": str(each.port)}
        for each in listeners_of(broker)
        if each.protocol in CONTEXTS
    ]
