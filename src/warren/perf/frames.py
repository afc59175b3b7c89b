"""A message that the tool sends over and over, encoded once."""

from __future__ import annotations

from dataclasses import dataclass

from warren.amqp.methods import BasicPublish
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.writer import Output
from warren.client.frames import CHANNEL, method_frame

STAMP_BYTES = 8
FRAME_HEAD_BYTES, FRAME_END_BYTES = 7, 1


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """A whole publish, encoded."""

    data: bytes
    stamp_at: int | None  # the offset for the time of sending; None if the body is too short for it


def publish_frames(
    publish: BasicPublish, *, body_bytes: int, persistent: bool, frame_max: int
) -> MessageTemplate:
    properties = BasicProperties(delivery_mode=PERSISTENT if persistent else None)
    output = Output([], None)
    output.frame_max = frame_max
    output.content(CHANNEL, properties.encode(), bytes(body_bytes))
    method, content = method_frame(CHANNEL, publish), b"".join(output.take())
    stamp_at = None
    if body_bytes >= STAMP_BYTES:
        stamp_at = len(method) + _frame_bytes(content) + FRAME_HEAD_BYTES
    return MessageTemplate(method + content, stamp_at)


def _frame_bytes(data: bytes) -> int:
    """The length of the frame that `data` begins with."""
    return FRAME_HEAD_BYTES + int.from_bytes(data[3:FRAME_HEAD_BYTES], "big") + FRAME_END_BYTES
