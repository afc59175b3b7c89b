"""Where others find this node: where it listens, unless settings say otherwise.

A node that listens at all its addresses (`0.0.0.0`) has to name one. That is the host of `cluster_advertise`,
or else the address from which this machine reaches etcd. If etcd is on this machine, that tells nothing, and
a node whose settings name no host is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from warren.server.address import Address, address_text, split_address
from warren.server.cluster.advertised import Advertised, is_wildcard
from warren.server.cluster.settings import ClusterSettings
from warren.server.config_error import ConfigError

LOOPBACK = "127.0.0.1"
ANY_PORT = 9  # nothing is sent there


class Whereabouts:
    def __init__(self, settings: ClusterSettings, own: str) -> None:
        self.settings = settings
        self.own = own  # the address from which this machine reaches etcd; empty if that is on it

    def amqp(self, listening: str) -> str:
        """Where clients find what listens at these addresses, which have commas between them."""
        return self._found("cluster_advertise", self.settings.advertise, listening)

    def http(self, listening: str) -> str:
        return self._found("cluster_http_advertise", self.settings.http_advertise, listening)

    def peers(self, listening: str) -> str:
        return self._found("cluster_peers_advertise", self.settings.peers_advertise, listening)

    def peers_bind(self) -> Address:
        """Where to listen for other nodes."""
        return self.settings.peers_bind or Address(self.own or LOOPBACK, 0)

    def _found(self, setting: str, told: Advertised | None, listening: str) -> str:
        if told is None or not listening:
            return ",".join(self._named(setting, each) for each in listening.split(","))
        _, port = split_address(listening.partition(",")[0])
        return address_text(told.host, int(told.port or port))

    def _named(self, setting: str, listening: str) -> str:
        host, port = split_address(listening)
        if not listening or not is_wildcard(host):
            return listening
        if self.settings.advertise is not None:
            return address_text(self.settings.advertise.host, int(port))
        if not self.own or (host and ip_address(host).version != ip_address(self.own).version):
            raise ConfigError(
                f"{setting} has to say by which host others find this node: it listens at {listening}, and "
                "the way to etcd does not tell"
            )
        return address_text(self.own, int(port))


async def own_host(endpoints: Iterable[str]) -> str:
    """The address from which this machine reaches etcd's endpoints; empty if none of these is known to be on
    another machine.
    """
    loop = asyncio.get_running_loop()
    for endpoint in endpoints:
        url = urlsplit(endpoint)
        remote = url.hostname or "", url.port or ANY_PORT
        try:
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=remote)
        except OSError:  # its name is not known now, or there is no route: another one may do
            continue
        host: str = transport.get_extra_info("sockname")[0]
        transport.close()
        if not _is_loopback(host):
            return host
    return ""


def at_loopback(address: str) -> bool:
    """Whether only this machine finds what listens there."""
    host, _ = split_address(address)
    return _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
