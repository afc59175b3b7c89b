from warren.broker.message import Message
from warren.storage.disk import Buffer
from warren.storage.queue_log import QueueLog

class Segment:
    path: str
    base: int
    last: int
    count: int
    alive: int
    unread: int
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
    created: bool
    named: bool
    entries: bytes
    log: QueueLog | None
    def __init__(
        self, path: str, base: int, log: QueueLog | None = None, *, volatile: bool = False
    ) -> None: ...
    def is_full(self, segment_bytes: int, position: int) -> bool: ...
    def append(self, message: Message, position: int) -> int: ...
    def note_delivered(self, position: int, deliveries: int) -> int: ...
    def note_done(self, position: int, count: int) -> int: ...
    def marks_to_write(self) -> bytes: ...
    def marks_are_written(self) -> None: ...
    def fate_of(self, position: int) -> int: ...
    def assume_delivered(self) -> None: ...
    def recover_marks(self, found: list[tuple[int, int, int]]) -> None: ...
