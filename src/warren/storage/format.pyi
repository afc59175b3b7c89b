from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

from warren.broker.message import Message

Data: TypeAlias = bytes | bytearray | memoryview

ACKED: int
NAME_DIGITS: int
POSITIONS_MAX: int
RELATIVE_MAX: int
SUFFIXES: tuple[str, ...]
HEADER_BYTES: int
MAGIC_BYTES: int
RECORD_HEAD_BYTES: int
POSITION_AT: int
TIME_AT: int
INDEX_MORE_BYTES: int
INDEX_ENTRY_BYTES: int
INDEX_ENTRY_FIELDS: int
DUE_ENTRY_BYTES: int
OFFSET_IN_ENTRY_AT: int
MARK_BYTES: int
JOURNAL_MAGIC: int
RECORD_HEAD: Struct
INDEX_ENTRY: Struct
DUE_ENTRY: Struct
MARK: Struct
SEGMENT_MAGIC: bytes
INDEX_MAGIC: bytes
ACKS_MAGIC: bytes
DUES_MAGIC: bytes
CHUNKS_MAGIC: bytes

class UnknownVersion(Exception): ...

def segment_name(base: int) -> str: ...
def base_of(stem: str) -> int | None: ...
def uint32_at(data: Data, at: int) -> int: ...
def uint64_at(data: Data, at: int) -> int: ...
def encode_header(magic: bytes, base: int, count: int = 0, end: int = 0, entries: bytes = b"") -> bytes: ...
def encode_segment_header(base: int, epoch: int = 0) -> bytes: ...
def segment_epoch(data: Data, base: int) -> int: ...
def count_and_end(data: Data) -> tuple[int, int]: ...
def check_header(magic: bytes, data: Data, base: int) -> int: ...
def checksum(data: Data, before: int = 0) -> int: ...
def checksum_within(data: bytes, at: int, end: int) -> int: ...
def checksum_by_table(data: Data) -> int: ...

class Record:
    offset: int
    size: int
    position: int
    time_ms: int
    message: Message

def walk_records(data: Data, at: int, above: int) -> tuple[int, int, int, int]: ...
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
def bad_marks(data: Data, base: int) -> int: ...
def encode_mark(base: int, first: int, count: int, deliveries: int) -> bytes: ...
