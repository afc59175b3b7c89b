"""AMQP URIs: `amqp://user:password@host:port/vhost`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

PORT_DEFAULT = 5672


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts of an AMQP URI, with RabbitMQ's defaults for those left out."""

    host: str
    port: int
    user: str
    password: str
    vhost: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def parse_uri(text: str) -> Uri:
    """Read a URI; raise `ValueError`, as argparse expects. An empty path stands for the vhost '/', as it does
    with other clients.
    """
    parts = urlsplit(text)
    if parts.scheme != "amqp":
        raise ValueError(f"not an amqp:// URI: {text}")
    vhost = parts.path.removeprefix("/")
    if "/" in vhost:
        raise ValueError(f"a / in the name of a vhost is written %2F: {text}")
    return Uri(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or PORT_DEFAULT,
        user=unquote("guest" if parts.username is None else parts.username),
        password=unquote("guest" if parts.password is None else parts.password),
        vhost=unquote(vhost) or "/",
    )
