"""Cuts a broker's bytes into frames, for clients that receive little; `perf` has a faster scanner.

frame   type:octet channel:uint16 size:uint32 payload end:octet
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX

HEAD = struct.Struct(">BHI")
END = 0xCE


class FrameKind(IntEnum):
    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8


KINDS = frozenset(FrameKind)


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class Inbox:
    """Keeps an incomplete frame until the rest of it arrives."""

    def __init__(self) -> None:
        self._piece = b""

    def feed(self, data: bytes) -> list[Frame]:
        data = self._piece + data if self._piece else data
        at, frames = 0, []
        while len(data) - at >= HEAD.size:
            kind, channel, size = HEAD.unpack_from(data, at)
            if kind not in KINDS:
                raise ClientError("the server does not speak AMQP 0-9-1")
            if size > FRAME_MAX:
                raise ClientError(f"the broker sent a frame of {size} bytes, more than was agreed")
            stop = at + HEAD.size + size
            if len(data) <= stop:
                break
            if data[stop] != END:
                raise ClientError("the broker sent a frame without its end octet")
            frames.append(Frame(kind, channel, data[at + HEAD.size : stop]))
            at = stop + 1
        self._piece = data[at:]
        return frames
