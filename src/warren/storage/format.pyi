from collections.abc import Iterator
from typing import TypeAlias

from warren.broker.message import Message

Data: TypeAlias = bytes | bytearray | memoryview

ACKED: int
HEADER_BYTES: int
SEGMENT_MAGIC: bytes
INDEX_MAGIC: bytes
ACKS_MAGIC: bytes
DUES_MAGIC: bytes
CHUNKS_MAGIC: bytes

class UnknownVersion(Exception): ...

def encode_header(magic: bytes, base: int, count: int = 0, end: int = 0, entries: bytes = b"") -> bytes: ...
def check_header(magic: bytes, data: Data, base: int) -> int: ...
def checksum(data: Data) -> int: ...
def checksum_by_table(data: Data) -> int: ...

class Record:
    offset: int
    size: int
    position: int
    time_ms: int
    message: Message

def encode_record(position: int, time_ms: int, message: Message) -> bytes: ...
def records(data: Data) -> Iterator[Record]: ...

class Scan:
    count: int
    last: int | None
    end: int
    bad: list[tuple[int, int]]
    entries: bytes
    dues: bytes
    def __init__(
        self,
        count: int,
        last: int | None,
        end: int,
        bad: list[tuple[int, int]],
        entries: bytes,
        dues: bytes = b"",
    ) -> None: ...

def scan(data: Data, base: int) -> Scan: ...
def encode_mark(base: int, first: int, count: int, deliveries: int) -> bytes: ...
