"""Files of a log made by hand, for tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from warren.amqp.properties import BasicProperties
from warren.amqp.table import encode_name
from warren.broker.message import Message
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    INDEX_MAGIC,
    SEGMENT_MAGIC,
    checksum,
    encode_header,
    encode_mark,
    encode_record,
    scan,
)
from warren.storage.index import encode_dues, encode_index
from warren.storage.stream_segment import StreamSegment, encode_chunks

TIME_MS = 1_700_000_000_000


def message(body: bytes, key: str = "q", exchange: str = "", **properties: object) -> Message:
    persistent = BasicProperties(delivery_mode=2, **properties)  # type: ignore[arg-type]  # tests know the types
    return Message(encode_name(exchange), encode_name(key), persistent.encode(), body, True)


def record(position: int, body: bytes) -> bytes:
    """It came so many milliseconds after TIME_MS as its position says."""
    return encode_record(position, TIME_MS + position, message(body))


def segment(base: int, bodies: Iterable[bytes]) -> bytes:
    """At successive positions from the base on."""
    parts = [record(position, body) for position, body in zip(count(base), bodies)]
    return encode_header(SEGMENT_MAGIC, base) + b"".join(parts)


def timed_segment(base: int, expirations: Iterable[str | None]) -> bytes:
    """At successive positions, messages that expire."""
    parts = [
        encode_record(position, TIME_MS, message(b"timed", expiration=expiration))
        for position, expiration in zip(count(base), expirations)
    ]
    return encode_header(SEGMENT_MAGIC, base) + b"".join(parts)


def index(base: int, data: bytes) -> bytes:
    return encode_index(scan(data, base), base)


def index_of_version_1(base: int, data: bytes) -> bytes:
    found = scan(data, base)
    pairs = b"".join(found.entries[at : at + 8] for at in range(0, len(found.entries), 12))
    head = INDEX_MAGIC + (1).to_bytes(4, "little")
    rest = struct.pack("<QII", base, found.count, found.end) + pairs
    return head + checksum(head + rest).to_bytes(4, "little") + rest


def dues(base: int, data: bytes) -> bytes:
    return encode_dues(scan(data, base), base)


def chunks(base: int, data: bytes) -> bytes:
    """The chunks file of a stream's segment."""
    found, noted = scan(data, base), StreamSegment("", base)
    assert found.last is not None
    noted.end = found.end
    noted.note_all(data)
    assert noted.chunks is not None
    return encode_chunks(base, found.count, found.end, found.last, noted.last_ms, noted.chunks)


def acks(base: int, *marks: tuple[int, int, int]) -> bytes:
    """Of (position, count, deliveries)."""
    parts = [encode_mark(base, position - base, size, deliveries) for position, size, deliveries in marks]
    return encode_header(ACKS_MAGIC, base) + b"".join(parts)


def done(position: int, size: int = 1) -> tuple[int, int, int]:
    return position, size, ACKED


def offset_of(data: bytes, base: int, position: int) -> int:
    """Where its record begins."""
    entries = memoryview(scan(data, base).entries).cast("I")
    return dict(zip(entries[::3], entries[1::3], strict=True))[position - base]


def damaged(data: bytes, at: int) -> bytes:
    """With one bit another."""
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


class LogDirectory:
    """The directory of one log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def file(self, base: int, suffix: str) -> Path:
        return self.path / f"{base:020}.{suffix}"

    def put(self, base: int, suffix: str, data: bytes) -> None:
        self.file(base, suffix).write_bytes(data)

    def names(self) -> list[str]:
        """Without the zeros before."""
        return sorted(path.name.lstrip("0") for path in self.path.iterdir())
