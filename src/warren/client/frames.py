"""Frames that a client sends."""

from __future__ import annotations

from warren.amqp.methods import Method
from warren.amqp.writer import Output

CHANNEL = 1
"""The one channel that a connection of our tools opens."""

FRAME_MAX = 128 * 1024
"""The largest frame that our tools accept, and that a broker may send them."""


def method_frame(channel: int, method: Method) -> bytes:
    output = Output([], None)
    output.method(channel, method.encode())
    return b"".join(output.take())
