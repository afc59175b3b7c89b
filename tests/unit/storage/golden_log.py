"""What is in tests/golden/log-1, which has one file of each kind of that time, in log-2 and in stream-1:
values, and the bytes they have to give. In log-2 is the index of version 2, and what it came with: messages
that have times. In log-3 is a segment of version 2, with an epoch. In stream-1 is a segment of a stream, and
its chunks.
"""

from __future__ import annotations

from itertools import accumulate
from struct import pack

from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.message import Message
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    HEADER_BYTES,
    SEGMENT_MAGIC,
    Scan,
    encode_header,
    encode_mark,
    encode_record,
    encode_segment_header,
)
from warren.storage.index import encode_dues, encode_index
from warren.storage.stream_segment import StreamSegment, encode_chunks

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

SEGMENT = encode_header(SEGMENT_MAGIC, BASE) + b"".join(_ENCODED)
EPOCH = 2**33 + 5
EPOCH_SEGMENT = encode_segment_header(BASE, EPOCH) + b"".join(_ENCODED)
ACKS = encode_header(ACKS_MAGIC, BASE) + b"".join(encode_mark(BASE, *mark) for mark in MARKS)


def _timed(body: bytes, expiration: str | None, *, died: bool = False, scheduled: bool = False) -> Message:
    properties = BasicProperties(delivery_mode=2, headers={"x": 1}, expiration=expiration)
    return Message(
        encode_name(""), encode_name("k"), properties.encode(), body, True, TIME_MS, died, scheduled
    )


# position less the base, message, when it is due
TIMED = [
    (0, _timed(b"never", None), None),
    (1, _timed(b"expires at once", "0"), TIME_MS),
    (4, _timed(b"expires", "3600000", died=True), TIME_MS + 3_600_000),
    (5, _timed(b"comes, and expires", "60000", scheduled=True), TIME_MS),
    (6, _timed(b"comes", None, scheduled=True), TIME_MS),
    (7, _timed(b"not a number", "soon"), None),
]
_TIMED_ENCODED = [encode_record(BASE + relative, TIME_MS, message) for relative, message, _ in TIMED]
TIMED_OFFSETS = list(accumulate(map(len, _TIMED_ENCODED), initial=HEADER_BYTES))
_PLACED = list(zip(TIMED, TIMED_OFFSETS[:-1], strict=True))
_FOUND = Scan(
    len(TIMED),
    BASE + 7,
    TIMED_OFFSETS[-1],
    [],
    b"".join(pack("<III", relative, at, len(message.body)) for (relative, message, _), at in _PLACED),
    b"".join(pack("<IIQ", relative, at, due) for (relative, _, due), at in _PLACED if due is not None),
)
TIMED_SEGMENT = encode_header(SEGMENT_MAGIC, BASE) + b"".join(_TIMED_ENCODED)
INDEX_2 = encode_index(_FOUND, BASE)
DUES = encode_dues(_FOUND, BASE)


def _filtered(body: bytes, values: str | None) -> Message:
    headers: Table | None = None if values is None else {"x-stream-filter-value": values}
    properties = BasicProperties(delivery_mode=2, headers=headers)
    return Message(encode_name(""), encode_name("s"), properties.encode(), body, True)


# milliseconds after TIME_MS, filter values, body; the third is so large that another chunk begins behind it
FILTERED = [
    (0, None, b"without a value"),
    (0, "a", b"one"),
    (5, " b ,c", bytes(66_000)),
    (5, "é", b"in another chunk"),
    (1000, "a,b", b"the last"),
]
_FILTERED_ENCODED = [
    encode_record(BASE + relative, TIME_MS + ms, _filtered(body, values))
    for relative, (ms, values, body) in enumerate(FILTERED)
]
FILTERED_OFFSETS = list(accumulate(map(len, _FILTERED_ENCODED), initial=HEADER_BYTES))
STREAM_SEGMENT = encode_header(SEGMENT_MAGIC, BASE) + b"".join(_FILTERED_ENCODED)


def _chunks() -> bytes:
    segment = StreamSegment("", BASE)
    segment.end = len(STREAM_SEGMENT)
    segment.note_all(STREAM_SEGMENT)
    assert segment.chunks is not None
    last = BASE + len(FILTERED) - 1
    return encode_chunks(BASE, len(FILTERED), segment.end, last, segment.last_ms, segment.chunks)


CHUNKS = _chunks()
