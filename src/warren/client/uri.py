"""AMQP URIs: `amqp://user:password@host:port/vhost`, or `amqps://…` for TLS, with RabbitMQ's parameters:
`amqps://…?cacertfile=ca.pem&certfile=me.pem&keyfile=me.key&verify=verify_none&heartbeat=5`.

Parameters that RabbitMQ does not know are passed over, as it does, and so are those that mean nothing to a
client of ours: `depth`, `fail_if_no_peer_cert` and `customize_hostname_check`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeVar, cast
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

PORT_DEFAULT = 5672
TLS_PORT_DEFAULT = 5671
VERIFY = {"verify_peer": True, "verify_none": False}
MECHANISMS = ("plain", "amqplain", "external")
ERLANG_MODULE = "amqp_auth_mechanisms:"  # RabbitMQ takes mechanisms with and without it
NO_SERVER_NAME = "disable"  # the value of `server_name_indication` that asks for none
SHORT_MAX, LONG_MAX = 2**16 - 1, 2**32 - 1
FRAME_MAX_LEAST = 4096
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
    key_password: str = field(default="", repr=False)  # if the key is encrypted
    server_name: str | None = None  # which the certificate has to have; None: the host; empty: no matter


NO_FILES = UriTls()  # the system's certificates to verify the broker's, and none of our own


@dataclass(frozen=True, slots=True)
class UriTuning:
    """How to connect and log in. What is None is up to the client."""

    connect_seconds: float | None = None  # how long connecting may take
    heartbeat_seconds: int | None = None  # 0: none
    channel_max: int | None = None
    frame_max: int | None = None
    mechanisms: tuple[str, ...] = ()  # ways to log in, the first that the broker has; none: by password


NO_TUNING = UriTuning()


@dataclass(frozen=True, slots=True)
class Uri:
    """The parts of an AMQP URI, with RabbitMQ's defaults for those left out."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: UriTls | None = None  # None without TLS
    tuning: UriTuning = NO_TUNING

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
    given = parse_qs(parts.query)
    tls = _tls(given) if parts.scheme == "amqps" else None
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
        tuning=_tuning(given),
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


def _tls(given: dict[str, list[str]]) -> UriTls:
    last = {name: values[-1] for name, values in given.items()}
    verify = last.get("verify", "verify_peer")
    if verify not in VERIFY:
        raise ValueError(f"verify={verify}: expected {' or '.join(VERIFY)}")
    server_name = last.get("server_name_indication")
    return UriTls(
        ca_file=last.get("cacertfile", ""),
        cert_file=last.get("certfile", ""),
        key_file=last.get("keyfile", ""),
        verify=VERIFY[verify],
        key_password=last.get("password", ""),
        server_name="" if server_name == NO_SERVER_NAME else server_name,
    )


def _tuning(given: dict[str, list[str]]) -> UriTuning:
    timeout_ms = _number(given, "connection_timeout", 1, LONG_MAX)
    frame_max = _number(given, "frame_max", 0, LONG_MAX)
    if frame_max and frame_max < FRAME_MAX_LEAST:
        raise ValueError(f"frame_max={frame_max}: expected {FRAME_MAX_LEAST} or more, or 0")
    return UriTuning(
        connect_seconds=None if timeout_ms is None else timeout_ms / 1000,
        heartbeat_seconds=_number(given, "heartbeat", 0, SHORT_MAX),
        channel_max=_number(given, "channel_max", 0, SHORT_MAX) or None,
        frame_max=frame_max or None,
        mechanisms=tuple(_mechanism(each) for each in given.get("auth_mechanism", ())),
    )


def _number(given: dict[str, list[str]], name: str, least: int, most: int) -> int | None:
    if name not in given:
        return None
    text = given[name][-1]
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{name} should be a whole number from {least} to {most}")
    return int(text)


def _mechanism(text: str) -> str:
    name = text.removeprefix(ERLANG_MODULE)
    if name not in MECHANISMS:
        raise ValueError(f"auth_mechanism should be one of {', '.join(MECHANISMS)}")
    return name.upper()


def port_in(parts: SplitResult) -> int | None:
    """The port; None if there is none. Errors do not repeat it: it may be a part of the password."""
    try:
        return parts.port
    except ValueError:
        raise ValueError("the port of the URI is not one; is a / or # in the password not encoded?") from None
