"""The two ends of a connection, as its name tells them: `127.0.0.1:50724 -> 127.0.0.1:5672`."""

from __future__ import annotations

from dataclasses import dataclass

from warren.session.channel import Channel
from warren.session.connection import Connection

ARROW = " -> "


@dataclass(frozen=True)
class Ends:
    peer_host: str
    peer_port: int
    host: str
    port: int

    @classmethod
    def of(cls, name: str) -> Ends:
        peer, _, here = name.partition(ARROW)
        return cls(*_address(peer), *_address(here))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port) if port.isdigit() else 0


def connection_details(connection: Connection) -> dict[str, object]:
    """A connection as RabbitMQ names it in descriptions of other objects."""
    ends = Ends.of(connection.name)
    return {"name": connection.name, "peer_host": ends.peer_host, "peer_port": ends.peer_port}


def channel_name(connection: Connection, channel: Channel) -> str:
    return f"{connection.name} ({channel.number})"
