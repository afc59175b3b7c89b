"""Who is at the other end of a connection: addresses, encryption, and the client's certificate."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from warren.broker.access import User


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A client's certificate that was verified. The texts are as RabbitMQ's management API has them."""

    subject: str
    issuer: str
    validity: str
    user_name: str
    """Whom EXTERNAL logs in; empty if the certificate names nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """What was agreed on in a TLS handshake, in RabbitMQ's words, such as `tlsv1.3` and `aes_256_gcm`."""

    protocol: str
    key_exchange: str
    cipher: str
    hash: str
    certificate: Certificate | None = None
    """None if the client has shown none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    host: str  # of the client; behind a proxy, of the client of the proxy
    port: int
    here_host: str  # the address that the client has connected to
    here_port: int
    encryption: Encryption | None = None  # None without TLS
    user: User | None = None  # who it is, if that needs no login: a relay in this process

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port} -> {self.here_host}:{self.here_port}"

    @property
    def is_direct(self) -> bool:
        """Whether it is a relay in this process, without a socket: only such a connection has no port."""
        return self.here_port == 0

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def certified_user(self) -> str:
        """The user whom the client's certificate names; empty if there is none."""
        certificate = None if self.encryption is None else self.encryption.certificate
        return "" if certificate is None else certificate.user_name


def is_loopback(host: str | None) -> bool:
    """Whether an IP address is on this machine. An IPv6 address may name its interface (`fe80::1%eth0`); None
    is the address of a client that has gone.
    """
    if host is None:
        return False
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
