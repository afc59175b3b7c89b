"""The values that frames between nodes are made of, and how they are read without trusting them."""

from __future__ import annotations

import struct
from typing import Final

from warren.storage.replication import LogId

FRAME_BYTES_MAX: Final = 1 << 30  # a batch has at most one change that is larger than it should be
NAME_BYTES_MAX: Final = 255

U8: Final = struct.Struct(">B")
U16: Final = struct.Struct(">H")
U32: Final = struct.Struct(">I")
U64: Final = struct.Struct(">Q")
_LOG: Final = struct.Struct(">QB")  # a queue's number, and the length of the name of a part


class WireError(Exception):
    """Bytes that no node of ours sends."""


def pack_text(text: str) -> bytes:
    data = text.encode()
    if len(data) > NAME_BYTES_MAX:
        raise WireError("a name is too long")
    return U8.pack(len(data)) + data


def pack_name(name: str) -> bytes:
    """A name of AMQP, which may have bytes that are not UTF-8."""
    data = name.encode("utf-8", "surrogateescape")
    if len(data) > NAME_BYTES_MAX:
        raise WireError("a name is too long")
    return U8.pack(len(data)) + data


def pack_log(log: LogId) -> bytes:
    return _LOG.pack(log.queue, 0) if not log.part else U64.pack(log.queue) + pack_text(log.part)


def pack_data(data: bytes) -> bytes:
    return U32.pack(len(data)) + data


class Reader:
    """Takes values off some bytes, from one place to another, and never more than there are."""

    def __init__(self, data: bytes, at: int = 0, limit: int | None = None) -> None:
        self.data = data
        self.at = at
        self.limit = len(data) if limit is None else limit  # where they end

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """The numbers of this layout."""
        end = self.at + layout.size
        if end > self.limit:
            raise WireError("a frame ends in the middle of a value")
        values = layout.unpack_from(self.data, self.at)
        self.at = end
        return values

    def count(self, largest: int, size: int) -> int:
        """How many values follow, of at least this size each."""
        (count,) = self.take(U32)
        if count > largest or count * size > self.limit - self.at:
            raise WireError(f"a frame says that it has {count} values, which it cannot have")
        return count

    def raw(self, length: int) -> bytes:
        end = self.at + length
        if end > self.limit:
            raise WireError("a frame ends in the middle of a value")
        data = self.data[self.at : end]
        self.at = end
        return data

    def text(self) -> str:
        (length,) = self.take(U8)
        return self.text_of(length)

    def text_of(self, length: int) -> str:
        if not length:
            return ""
        try:
            return self.raw(length).decode()
        except UnicodeDecodeError as error:
            raise WireError("a name is not UTF-8") from error

    def name(self) -> str:
        """A name of AMQP."""
        (length,) = self.take(U8)
        return self.raw(length).decode("utf-8", "surrogateescape")

    def log(self) -> LogId:
        queue, length = self.take(_LOG)
        return LogId(queue, self.text_of(length))

    def end(self) -> None:
        if self.at != self.limit:
            raise WireError("a frame has more bytes than it should")

    def long_data(self) -> bytes:
        return self.raw(self.count(FRAME_BYTES_MAX, 1))
