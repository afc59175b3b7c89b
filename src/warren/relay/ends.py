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
    is_elsewhere: bool = True  # whether the vhost is not just that of the relay, which needs not be told

    @property
    def shown(self) -> str:
        """The URI without its password and parameters, for people."""
        scheme = "amqp" if self.uri.tls is None else "amqps"
        vhost = "" if self.uri.vhost == "/" or not self.is_elsewhere else "/" + quote(self.uri.vhost, safe="")
        return f"{scheme}://{'' if self.is_here else self.uri.address}{vhost}"


def read_end(text: str, vhost: str, vhost_elsewhere: str = "/") -> End:
    """ValueError if it is no AMQP URI. A URI of this broker that names no vhost means the relay's own. One of
    another broker that has no path at all means `vhost_elsewhere`.

    A password that somebody was shown as `***` must not become the password.
    """
    uri, parts = parse_uri(text), split_uri(text)
    if uri.password == HIDDEN:
        raise ValueError(f"give the password itself, and not {HIDDEN}")
    is_here = not parts.hostname and uri.tls is None
    is_elsewhere = not is_here or bool(parts.path.strip("/"))
    if not is_elsewhere:
        uri = dataclasses.replace(uri, vhost=vhost)
    elif not parts.path:
        uri = dataclasses.replace(uri, vhost=vhost_elsewhere)
    return End(uri, is_here, parts.username is not None, is_elsewhere)


async def open_end(broker: Broker, end: End, vhost: str, product: str, name: str = "") -> RelayLink:
    """`name` is what the connection is called in lists of connections."""
    if not end.is_here:
        return await open_link(end.uri, product, name)
    return await open_pipe(broker, end.uri, product, None if end.as_user else RelayUser(vhost), name)
