"""Dialogues with a broker, apart from how bytes are sent and awaited.

A dialogue is a generator: it yields a `Request`, with the bytes to send and the reply that must follow, and
is resumed with that reply. Its driver decides whether one dialogue runs at a time or a thousand at once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from warren.amqp.errors import REPLY_SUCCESS
from warren.amqp.methods import (
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    Method,
)
from warren.amqp.table import Table
from warren.client.frames import CHANNEL, method_frame
from warren.client.login import credentials, tuned
from warren.client.uri import Uri

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
CAPABILITIES: Table = {
    "publisher_confirms": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}
M = TypeVar("M", bound=Method)


@dataclass(frozen=True, slots=True)
class Request:
    """What to send, and the method that must come back."""

    data: bytes
    reply: type[Method]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the broker and we have told each other when we logged in."""

    frame_max: int  # the largest frame that we may send
    server_properties: Table


T = TypeVar("T")
Dialogue: TypeAlias = Generator[Request, Method, T]


def send(data: bytes, reply: type[M]) -> Dialogue[M]:
    return cast(M, (yield Request(data, reply)))


def ask(method: Method, reply: type[M], *, channel: int = CHANNEL) -> Dialogue[M]:
    return (yield from send(method_frame(channel, method), reply))


def log_in(uri: Uri, *, product: str = "warren perf") -> Dialogue[Greeting]:
    """Log in and open a channel.

    Without heartbeats, since a broker under full load may be late with them.
    """
    start = yield from send(PROTOCOL_HEADER, ConnectionStart)
    mechanism, response = credentials(uri, start.mechanisms)
    client_properties: Table = {"product": product, "capabilities": CAPABILITIES}
    start_ok = ConnectionStartOk(client_properties=client_properties, mechanism=mechanism, response=response)
    tune = yield from ask(start_ok, ConnectionTune, channel=0)
    tune_ok = tuned(uri, tune, heartbeat_seconds=0)
    opening = method_frame(0, tune_ok) + method_frame(0, ConnectionOpen(virtual_host=uri.vhost))
    yield from send(opening, ConnectionOpenOk)
    yield from ask(ChannelOpen(), ChannelOpenOk)
    return Greeting(tune_ok.frame_max, start.server_properties)


def log_out() -> Dialogue[None]:
    close = ConnectionClose(reply_code=REPLY_SUCCESS, reply_text="done")
    yield from ask(close, ConnectionCloseOk, channel=0)
