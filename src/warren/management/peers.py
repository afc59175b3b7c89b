"""A connection and a channel, as RabbitMQ names them in descriptions of other objects."""

from __future__ import annotations

from warren.session.channel import Channel
from warren.session.connection import Connection


def connection_details(connection: Connection) -> dict[str, object]:
    peer = connection.peer
    return {"name": connection.name, "peer_host": peer.host, "peer_port": peer.port}


def channel_name(connection: Connection, channel: Channel) -> str:
    return f"{connection.name} ({channel.number})"
