from collections.abc import Sequence

from warren.broker.message import Message
from warren.storage.disk import Buffer
from warren.storage.fates import Fates
from warren.storage.queue_log import QueueLog
from warren.storage.stream_log import SegmentedStream

class Segment:
    path: str
    base: int
    last: int
    count: int
    alive: int
    unread: int
    unread_bytes: int
    end: int
    written: int
    closed: bool
    indexed: bool
    damaged: bool
    dropped: bool
    volatile: bool
    dirty: bool
    gathered: Buffer | None
    flying: Buffer | None
    marked: bool
    marks_written: int
    acks_bytes_max: int
    rewriting: bool
    created: bool
    named: bool
    entries: bytes
    dues: bytes
    log: QueueLog | SegmentedStream | None
    def __init__(
        self,
        path: str,
        base: int,
        log: QueueLog | SegmentedStream | None = None,
        *,
        volatile: bool = False,
    ) -> None: ...
    def is_full(self, segment_bytes: int, position: int) -> bool: ...
    def append(self, message: Message, position: int, time_ms: int) -> int: ...
    def take_out(self, position: int) -> int: ...
    def write_index(self) -> None: ...
    def waits(self, position: int) -> bool: ...
    def forget_gone(self) -> None: ...
    def note_rest_done(self, first: int) -> int: ...
    def note_delivered(self, position: int, deliveries: int) -> int: ...
    def note_done(self, position: int, count: int) -> int: ...
    def marks_to_write(self) -> bytes: ...
    def marks_are_written(self) -> None: ...
    def count_waiting(self) -> None: ...
    def fate(self, position: int) -> int: ...
    def fate_of(self, position: int) -> int: ...
    def assume_delivered(self) -> None: ...
    def recover_fates(self, fates: Fates) -> None: ...

def index_beyond(segments: Sequence[Segment], position: int) -> int: ...
