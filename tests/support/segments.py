"""Data directories with queues and streams in them, written as the broker writes them, but without one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warren.amqp.properties import BasicProperties
from warren.amqp.table import encode_name
from warren.broker.message import Message
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    SEGMENT_MAGIC,
    encode_header,
    encode_mark,
    encode_record,
    scan,
)
from warren.storage.index import write_index

START_MS = 1_700_000_000_000
IDENTITY = "00c0ffee00c0ffee"


def message(
    body: bytes = b"", properties: BasicProperties | None = None, *, exchange: str = "", key: str = "key"
) -> Message:
    raw = (properties or BasicProperties(delivery_mode=2)).encode()
    return Message(encode_name(exchange), encode_name(key), raw, body, True)


@dataclass
class QueueDirectory:
    """The log of a queue. Message n has the body `m<n>`, unless given, and the time START_MS + n."""

    path: Path
    next_position: int = 1

    def append(self, messages: int | Sequence[Message], *, part: str = "") -> Path:
        """Write these messages, or so many, as one segment. Returns its path."""
        if isinstance(messages, int):
            first = self.next_position - 1
            messages = [message(b"m%d" % (first + i)) for i in range(messages)]
        base = self.next_position
        records = [encode_record(base + i, START_MS + base + i - 1, each) for i, each in enumerate(messages)]
        self.next_position += len(messages)
        directory = self.path / part
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"{base:020}.seg"
        file.write_bytes(encode_header(SEGMENT_MAGIC, base) + b"".join(records))
        return file

    def ack(self, segment: Path, offsets: Iterable[int]) -> None:
        base = int(segment.stem)
        marks = [encode_mark(base, offset + 1 - base, 1, ACKED) for offset in offsets]
        segment.with_suffix(".acks").write_bytes(encode_header(ACKS_MAGIC, base) + b"".join(marks))


def write_segment_index(segment: Path) -> None:
    base = int(segment.stem)
    write_index(str(segment.with_suffix("")), base, scan(segment.read_bytes(), base))


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / "VERSION").write_text("1\n")
        (path / "identity").write_text(IDENTITY)
        self.count = 0

    def queue(self, name: str, *, kind: str = "stream", vhost: str = "/") -> QueueDirectory:
        self.count += 1
        directory = self.path / "queues" / str(self.count)
        directory.mkdir(parents=True)
        declared = {"vhost": vhost, "name": name, "durable": True, "arguments": {"x-queue-type": kind}}
        (directory / "queue.json").write_text(json.dumps({"declare_queue": declared}))
        return QueueDirectory(directory)
