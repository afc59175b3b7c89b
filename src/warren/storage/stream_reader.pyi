from warren.broker.store import StreamReader
from warren.broker.stream_filter import StreamFilter
from warren.storage.cursor import Cursor
from warren.storage.segment import Segment
from warren.storage.stream_segment import StreamSegment
from warren.storage.window import Window

class Reach:
    position: int
    base: int
    end: int
    def __init__(self, position: int, base: int, end: int) -> None: ...
    def within(self, segment: Segment) -> int: ...

class LogReader(StreamReader):
    def __init__(
        self,
        segments: list[StreamSegment],
        shared: Window,
        cursor: Cursor,
        position: int,
        wanted: StreamFilter | None,
        reach: Reach | None = None,
    ) -> None: ...

def position_at(segments: list[StreamSegment], cursor: Cursor, time_ms: int) -> int | None: ...
