"""AMQP URIs: `amqp://user:password@host:port/vhost`, or `amqps://…` for TLS, with RabbitMQ's parameters:
`amqps://…?cacertfile=ca.pem&certfile=me.pem&keyfile=me.key&verify=verify_none`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeVar, cast
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

PORT_DEFAULT = 5672
TLS_PORT_DEFAULT = 5671
VERIFY = {"verify_peer": True, "verify_none": False}
HIDDEN = "***"  # what is shown in the place of a password
PASSWORD = re.compile(r"(://[^:/?#@]*:)(?:[^/?#]*|.*)@", re.DOTALL)
"""In a URI: up to the last @ before the path, or before the end, if a / in the password is not encoded."""
KEY_PASSWORD = re.compile(r"(?<=[?&]password=)[^&#]*")  # of a key file, a parameter of RabbitMQ's URIs
J = TypeVar("J")


@dataclass(frozen=True, slots=True)
class UriTls:
    """How to speak TLS. Files that are not named are empty."""

    ca_file: str = ""  # the certificates to verify the broker's with; empty: those of the system
    cert_file: str = ""  # our own certificate
    key_file: str = ""  # its key; empty: in the same file
    verify: bool = True  # whether the broker's certificate has to be right


NO_FILES = UriTls()  # the system's certificates to verify the broker's, and none of our own


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts of an AMQP URI, with RabbitMQ's defaults for those left out."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: UriTls | None = None  # None without TLS

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_uri(text: str) -> Uri:
    """Read a URI; raise `ValueError`, as argparse expects. An empty path stands for the vhost '/', as it does
    with other clients. Errors do not repeat the URI, which may have a password in it.
    """
    parts = split_uri(text)
    if parts.scheme not in {"amqp", "amqps"}:
        raise ValueError("not an amqp:// URI, nor amqps://")
    tls = _tls(parts.query) if parts.scheme == "amqps" else None
    vhost = parts.path.removeprefix("/")
    if "/" in vhost:
        raise ValueError("a / in the name of a vhost is written %2F")
    return Uri(
        host=parts.hostname or "127.0.0.1",
        port=port_in(parts) or (PORT_DEFAULT if tls is None else TLS_PORT_DEFAULT),
        user=unquote("guest" if parts.username is None else parts.username),
        password=unquote("guest" if parts.password is None else parts.password),
        vhost=unquote(vhost) or "/",
        tls=tls,
    )


def split_uri(text: str) -> SplitResult:
    """`urlsplit` repeats in some errors what it was given; this does not."""
    try:
        return urlsplit(text)
    except ValueError:
        raise ValueError("no URI: its host, or a character in it, is wrong") from None


def without_password(text: str) -> str:
    """The same text, with `HIDDEN` for the password of a URI in it."""
    return KEY_PASSWORD.sub(HIDDEN, PASSWORD.sub(rf"\1{HIDDEN}@", text)) if "://" in text else text


def without_passwords(value: J) -> J:
    """The same JSON, without the passwords of the URIs in it, wherever they are."""
    if isinstance(value, str):
        return cast("J", without_password(value))
    if isinstance(value, list):
        return cast("J", [without_passwords(each) for each in value])
    if isinstance(value, dict):
        return cast("J", {name: without_passwords(each) for name, each in value.items()})
    return value


def _tls(query: str) -> UriTls:
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    verify = given.get("verify", "verify_peer")
    if verify not in VERIFY:
        raise ValueError(f"verify={verify}: expected {' or '.join(VERIFY)}")
    return UriTls(
        ca_file=given.get("cacertfile", ""),
        cert_file=given.get("certfile", ""),
        key_file=given.get("keyfile", ""),
        verify=VERIFY[verify],
    )


def port_in(parts: SplitResult) -> int | None:
    """The port; None if there is none. Errors do not repeat it: it may be a part of the password."""
    try:
        return parts.port
    except ValueError:
        raise ValueError("the port of the URI is not one; is a / or # in the password not encoded?") from None
