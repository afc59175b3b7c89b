"""Frames that a client sends."""

from __future__ import annotations

from warren.amqp.methods import Method
from warren.amqp.writer import Output

CHANNEL = 1
"""The one channel that a connection of our tools opens."""

FRAME_MAX = 128 * 1024
"""What our tools agree to, and so the most a frame may have that a broker sends them."""


def method_frame(channel: int, method: Method) -> bytes:
    output = Output([], None)
    output.method(channel, method.encode())
    return b"".join(output.take())
