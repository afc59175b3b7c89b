"""Frames as bytes, both ways, for tests without a socket."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.amqp import (
    BODY,
    FRAME_END,
    FRAME_HEAD,
    FRAME_OVERHEAD_BYTES,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    encode_frame,
    encode_header,
)
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties

FRAME_MAX = 131_072
CAPABILITIES = dict.fromkeys(("basic.nack", "consumer_cancel_notify", "connection.blocked"), True)


def method_frame(channel: int, method: m.Method) -> bytes:
    return encode_frame(METHOD, channel, method.encode())


def handshake(heartbeat: int = 0) -> list[bytes]:
    """All that a client says until its connection is open."""
    start_ok = m.ConnectionStartOk(
        client_properties={"capabilities": dict(CAPABILITIES)}, response=b"\0guest\0guest"
    )
    tune_ok = m.ConnectionTuneOk(channel_max=2047, frame_max=FRAME_MAX, heartbeat=heartbeat)
    steps = (start_ok, tune_ok, m.ConnectionOpen())
    return [PROTOCOL_HEADER, *(method_frame(0, step) for step in steps)]


def publish_frames(
    channel: int,
    method: m.BasicPublish,
    body: bytes,
    properties: BasicProperties | None = None,
    share: int = FRAME_MAX - FRAME_OVERHEAD_BYTES,
) -> list[bytes]:
    """A publish, with the body cut into frames of at most `share` bytes."""
    return [
        method_frame(channel, method),
        encode_frame(HEADER, channel, encode_header(len(body), properties)),
        *(encode_frame(BODY, channel, body[at : at + share]) for at in range(0, len(body), share)),
    ]


def split_frames(data: bytes) -> Iterator[Frame]:
    """The frames in what a broker sent; it must be whole frames."""
    at = 0
    while at < len(data):
        kind, channel, size = FRAME_HEAD.unpack_from(data, at)
        stop = at + FRAME_OVERHEAD_BYTES + size
        assert data[stop - 1 : stop] == FRAME_END, f"no frame end at {stop - 1} of {len(data)} bytes"
        yield Frame(kind, channel, data[at + FRAME_HEAD.size : stop - 1])
        at = stop
