"""AMQP URIs: `amqp://user:password@host:port/vhost`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

PORT_DEFAULT = 5672


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts of an AMQP URI, with RabbitMQ's defaults for those left out."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def parse_uri(text: str) -> Uri:
    """Read a URI; raise `ValueError`, as argparse expects. An empty path stands for the vhost '/', as it does
    with other clients. Errors do not repeat the URI, which may have a password in it.
    """
    parts = urlsplit(text)
    if parts.scheme != "amqp":
        raise ValueError("not an amqp:// URI")
    vhost = parts.path.removeprefix("/")
    if "/" in vhost:
        raise ValueError("a / in the name of a vhost is written %2F")
    return Uri(
        host=parts.hostname or "127.0.0.1",
        port=_port_in(parts),
        user=unquote("guest" if parts.username is None else parts.username),
        password=unquote("guest" if parts.password is None else parts.password),
        vhost=unquote(vhost) or "/",
    )


def _port_in(parts: SplitResult) -> int:
    try:
        return parts.port or PORT_DEFAULT
    except ValueError:
        raise ValueError("the port of the URI is not one; is a / or # in the password not encoded?") from None
