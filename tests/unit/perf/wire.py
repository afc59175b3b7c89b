"""Frames as a broker sends them."""

from __future__ import annotations

import struct

from warren.amqp.methods import BasicAck, BasicDeliver, BasicNack, Method

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(value: Method, channel: int = 1) -> bytes:
    return frame(METHOD, value.encode(), channel)


def delivery(tag: int, *pieces: bytes) -> bytes:
    """A basic.deliver whose body comes in these pieces."""
    deliver = BasicDeliver(
        consumer_tag="c", delivery_tag=tag, redelivered=False, exchange="", routing_key="q"
    )
    size = sum(map(len, pieces))
    header = struct.pack(">HHQH", 60, 0, size, 0)
    return method(deliver) + frame(HEADER, header) + b"".join(frame(BODY, piece) for piece in pieces)


def stamped(sent_ns: int, size: int = 16) -> bytes:
    return struct.pack("=Q", sent_ns) + bytes(size - 8)


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method(BasicAck(delivery_tag=tag, multiple=multiple))


def nack(tag: int, *, multiple: bool = False) -> bytes:
    return method(BasicNack(delivery_tag=tag, multiple=multiple))
