"""What is in tests/golden/log-1, which has one file of each kind: values, and the bytes they have to give."""

from __future__ import annotations

from itertools import accumulate

from warren.amqp.properties import BasicProperties
from warren.amqp.table import encode_name
from warren.broker.message import Message
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    HEADER_BYTES,
    INDEX_MAGIC,
    SEGMENT_MAGIC,
    encode_header,
    encode_mark,
    encode_record,
)

BASE = 2**40 + 7
TIME_MS = 1_700_000_000_123


def _message(body: bytes, *, exchange: str = "", key: str = "", persistent: bool = True) -> Message:
    properties = BasicProperties(delivery_mode=2) if persistent else BasicProperties()
    return Message(encode_name(exchange), encode_name(key), properties.encode(), body, persistent)


# position less the base, milliseconds after TIME_MS, message
RECORDS = [
    (0, 0, _message(b"")),
    (1, 0, _message(b"x", exchange="amq.topic", key="a.b")),
    (2, 1, _message("Grüße".encode(), key="schlüssel")),
    (9, 1000, _message(bytes(range(256)), exchange="e" * 255, key="k" * 255)),
    (2**22 - 1, 2**40, _message(b"neither persistent nor near", persistent=False)),
]
# first, count, deliveries
MARKS = [(0, 1, 1), (0, 2, ACKED), (2**22 - 1, 1, 70_000)]
_ENCODED = [encode_record(BASE + relative, TIME_MS + ms, message) for relative, ms, message in RECORDS]
OFFSETS = list(accumulate(map(len, _ENCODED), initial=HEADER_BYTES))
_ENTRIES = b"".join(
    relative.to_bytes(4, "little") + offset.to_bytes(4, "little")
    for (relative, _, _), offset in zip(RECORDS, OFFSETS[:-1], strict=True)
)

SEGMENT = encode_header(SEGMENT_MAGIC, BASE) + b"".join(_ENCODED)
INDEX = encode_header(INDEX_MAGIC, BASE, len(RECORDS), OFFSETS[-1], _ENTRIES)
ACKS = encode_header(ACKS_MAGIC, BASE) + b"".join(encode_mark(BASE, *mark) for mark in MARKS)
