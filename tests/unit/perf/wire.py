"""Frames as a broker sends them, on channel 1."""

from __future__ import annotations

import struct

from tests.support.frames import HEADER, body_frames, encode_frame, encode_header, method_frame
from warren.amqp.methods import BasicAck, BasicDeliver, BasicNack


def delivery(tag: int, *pieces: bytes) -> bytes:
    """A basic.deliver whose body comes in these pieces."""
    deliver = BasicDeliver(
        consumer_tag="c", delivery_tag=tag, redelivered=False, exchange="", routing_key="q"
    )
    body = b"".join(pieces)
    header = encode_frame(HEADER, 1, encode_header(len(body)))
    return method_frame(1, deliver) + header + body_frames(1, body, map(len, pieces))


def stamped(sent_ns: int, size: int = 16) -> bytes:
    return struct.pack("=Q", sent_ns) + bytes(size - 8)


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method_frame(1, BasicAck(delivery_tag=tag, multiple=multiple))


def nack(tag: int, *, multiple: bool = False) -> bytes:
    return method_frame(1, BasicNack(delivery_tag=tag, multiple=multiple))
