"""The two ends of a relay: which broker a URI names, and how to get there.

A URI without a host, such as `amqp://` or `amqp:///vhost`, is the broker that the relay runs in. Without a
user it is as the relay itself, which may do everything in its own vhost, and nothing elsewhere.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from urllib.parse import quote

from warren.client.uri import HIDDEN, Uri, parse_uri, split_uri
from warren.relay.link import RelayLink, open_link
from warren.relay.pipe import RelayUser, open_pipe
from warren.server.app import Broker


@dataclass(frozen=True, slots=True)
class End:
    """A broker, as one URI names it."""

    uri: Uri
    is_here: bool  # whether it is the broker that the relay runs in
    as_user: bool  # whether the URI names a user

    @property
    def shown(self) -> str:
        """The URI without its password and parameters, for people."""
        scheme = "amqp" if self.uri.tls is None else "amqps"
        vhost = "" if self.uri.vhost == "/" else "/" + quote(self.uri.vhost, safe="")
        return f"{scheme}://{'' if self.is_here else self.uri.address}{vhost}"


def read_end(text: str, vhost: str = "/") -> End:
    """ValueError if it is no AMQP URI. A URI without a path means this vhost.

    A password that somebody was shown as `***` must not become the password.
    """
    uri, parts = parse_uri(text), split_uri(text)
    if uri.password == HIDDEN:
        raise ValueError(f"give the password itself, and not {HIDDEN}")
    if not parts.path:
        uri = dataclasses.replace(uri, vhost=vhost)
    return End(uri, not parts.hostname and uri.tls is None, parts.username is not None)


async def open_end(broker: Broker, end: End, vhost: str, product: str, name: str = "") -> RelayLink:
    """`name` is what the connection is called in lists of connections."""
    if not end.is_here:
        return await open_link(end.uri, product, name)
    return await open_pipe(broker, end.uri, product, None if end.as_user else RelayUser(vhost), name)
