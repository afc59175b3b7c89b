"""Frames as bytes, both ways.

frame   type:uint8 channel:uint16 size:uint32 payload end:0xCE
header  class:uint16 weight:uint16 body_size:uint64 properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties, decode_properties

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_HEAD = struct.Struct(">BHI")
FRAME_END = b"\xce"
FRAME_OVERHEAD_BYTES = FRAME_HEAD.size + len(FRAME_END)
FRAME_MIN_SIZE = 4096
FRAME_MAX = 131_072
CHANNEL_MAX = 2047
CONTENT_HEAD = struct.Struct(">HHQ")
CLASS_BASIC = 60
GUEST = "guest"
PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
ALL_CAPABILITIES = (
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
)

M = TypeVar("M", bound=m.Method)


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes

    def is_a(self, kind: type[m.Method]) -> bool:
        return self.kind == METHOD and self.payload.startswith(m.METHOD_ID.pack(*kind.id))

    def __str__(self) -> str:
        if self.kind == METHOD:
            return f"{m.decode_method(self.payload)} on channel {self.channel}"
        return f"frame of type {self.kind}, {len(self.payload)} bytes on channel {self.channel}"


@dataclass(frozen=True)
class Content(Generic[M]):
    """A method that carries a message, and the message."""

    method: M
    properties: BasicProperties
    body: bytes


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return FRAME_HEAD.pack(kind, channel, len(payload)) + payload + FRAME_END


def encode_header(size: int, properties: BasicProperties | None = None, class_id: int = CLASS_BASIC) -> bytes:
    return CONTENT_HEAD.pack(class_id, 0, size) + (properties or BasicProperties()).encode()


HEARTBEAT_FRAME = encode_frame(HEARTBEAT, 0, b"")


def method_frame(channel: int, method: m.Method) -> bytes:
    return encode_frame(METHOD, channel, method.encode())


def body_frames(channel: int, body: bytes, sizes: Iterable[int]) -> bytes:
    """The body as frames with payloads of these sizes."""
    frames, at = b"", 0
    for size in sizes:
        frames += encode_frame(BODY, channel, body[at : at + size])
        at += size
    assert at == len(body)
    return frames


def publish_frames(
    channel: int,
    method: m.BasicPublish,
    body: bytes,
    properties: BasicProperties | None = None,
    frame_max: int = FRAME_MAX,
) -> list[bytes]:
    """A publish, frame by frame."""
    step = frame_max - FRAME_OVERHEAD_BYTES
    return [
        method_frame(channel, method),
        encode_frame(HEADER, channel, encode_header(len(body), properties)),
        *(encode_frame(BODY, channel, body[at : at + step]) for at in range(0, len(body), step)),
    ]


def published(
    exchange: str,
    routing_key: str,
    body: bytes = b"",
    properties: BasicProperties | None = None,
    *,
    channel: int = 1,
    frame_max: int = FRAME_MAX,
    **flags: bool,
) -> bytes:
    """A publish as the bytes of all its frames."""
    method = m.BasicPublish(exchange=exchange, routing_key=routing_key, **flags)
    return b"".join(publish_frames(channel, method, body, properties, frame_max))


def start_ok(
    user: str = GUEST, password: str = GUEST, capabilities: tuple[str, ...] = ALL_CAPABILITIES
) -> m.ConnectionStartOk:
    return m.ConnectionStartOk(
        client_properties={"capabilities": dict.fromkeys(capabilities, True)},
        response=f"\0{user}\0{password}".encode(),
    )


def tune_ok(heartbeat: int = 0, frame_max: int = FRAME_MAX) -> m.ConnectionTuneOk:
    return m.ConnectionTuneOk(channel_max=CHANNEL_MAX, frame_max=frame_max, heartbeat=heartbeat)


def handshake(heartbeat: int = 0) -> list[bytes]:
    """All frames that a client sends until its connection is open."""
    steps = (start_ok(), tune_ok(heartbeat), m.ConnectionOpen())
    return [PROTOCOL_HEADER, *(method_frame(0, step) for step in steps)]


def split_frames(data: bytes) -> Iterator[Frame]:
    """The frames in the bytes that a broker sent, which must be whole frames."""
    at = 0
    while at < len(data):
        kind, channel, size = FRAME_HEAD.unpack_from(data, at)
        stop = at + FRAME_OVERHEAD_BYTES + size
        assert data[stop - 1 : stop] == FRAME_END, f"no frame end at {stop - 1} of {len(data)} bytes"
        yield Frame(kind, channel, data[at + FRAME_HEAD.size : stop - 1])
        at = stop


def decode_methods(frames: Iterable[Frame]) -> list[m.Method]:
    """The methods among the frames."""
    return [m.decode_method(frame.payload) for frame in frames if frame.kind == METHOD]


def decode_contents(frames: Iterable[Frame]) -> list[Content[m.Method]]:
    """The methods that carry a message among one channel's frames, each with its message."""
    found: list[Content[m.Method]] = []
    method: m.Method | None = None
    for frame in frames:
        if frame.kind == METHOD:
            method = m.decode_method(frame.payload)
        elif frame.kind == HEADER and method is not None:
            found.append(Content(method, decode_properties(frame.payload[CONTENT_HEAD.size :]), b""))
        elif frame.kind == BODY:
            last = found[-1]
            found[-1] = Content(last.method, last.properties, last.body + frame.payload)
    return found
