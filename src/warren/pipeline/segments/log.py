"""What a reader needs to know of a queue's log, however it gets at it.

    SegmentLog                 a data directory (`files.py`), or a broker's HTTP API (`http.py`)
      QueueRef             by name
        QueueEnds            where it begins and ends at one moment
        Contents        all that there is at one moment
          SourceSegment       a file of records; `Slice`, a part of one that a task reads
      OpenSegment       the bytes of one

Offsets count from 0, positions in records from 1: `offset = position - 1`. An end is the first one behind.
All but `OpenSegment` is sent to executors, so it can be pickled.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from warren.storage.format import HEADER_BYTES

STREAM = "stream"
KINDS = ("classic", "quorum", STREAM)


@dataclass(frozen=True)
class QueueRef:
    """`place` is where its files are, if it is read from files. `stream_id` tells a stream from another one
    of the same name that is made when it is deleted; it is empty if nobody knows.
    """

    vhost: str
    name: str
    kind: str
    place: str = ""
    stream_id: str = ""

    @property
    def is_stream(self) -> bool:
        return self.kind == STREAM

    def __str__(self) -> str:
        return f"{'stream' if self.is_stream else 'queue'} '{self.name}'"


@dataclass(frozen=True, kw_only=True)
class SourceSegment:
    """`size_bytes` is how much may be read. `acked` are runs of positions that are done with, each as two
    int64: the first, and the end. A queue that is no stream may have no message at some of the offsets.
    """

    part: str = ""
    base: int
    size_bytes: int
    first_offset: int
    end_offset: int
    acked: bytes = b""


@dataclass(frozen=True)
class LogExtent:
    """Offsets from `first_offset` to before `next_offset`."""

    queue: QueueRef
    first_offset: int
    next_offset: int


@dataclass(frozen=True)
class QueueEnds(LogExtent):
    """`tail` is the segment in which a stream ends, None if there is nothing in it or it is no stream."""

    tail: SourceSegment | None = None


@dataclass(frozen=True)
class Contents(LogExtent):
    segments: tuple[SourceSegment, ...]

    @property
    def ends(self) -> QueueEnds:
        tail = self.segments[-1] if self.segments and self.queue.is_stream else None
        return QueueEnds(self.queue, self.first_offset, self.next_offset, tail)


@dataclass(frozen=True)
class Slice:
    """From `first_offset` to before `end_offset` in a segment. A record begins at byte `at`, that of offset
    `at_offset` or, where there is none, the next one; from there on it is found.
    """

    segment: SourceSegment
    first_offset: int
    end_offset: int
    at: int = HEADER_BYTES
    at_offset: int = -1

    @property
    def above(self) -> int:
        """The position that the record at `at` is above."""
        return self.at_offset if self.at_offset >= 0 else self.segment.base - 1


class OpenSegment(Protocol):
    """`name` is what it is called in messages. A read is short at the end of the file only."""

    name: str

    def read(self, at: int, size: int) -> bytes: ...

    def locate(self, wanted: Slice) -> tuple[int, int]:
        """A byte where a record begins, not behind the first that is wanted, and a position below it."""

    def close(self) -> None: ...


class SegmentLog(Protocol):
    """`can_locate`: finding an offset within a segment costs little."""

    can_locate: bool
    chunk_bytes: int

    def queues(self, vhost: str) -> list[QueueRef]: ...

    def contents(self, vhost: str, name: str) -> Contents: ...

    def contents_of(self, vhost: str, names: Sequence[str]) -> dict[str, Contents]:
        """The same of many queues; those that are not there are left out."""

    def ends_of(self, vhost: str, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, QueueEnds]:
        """Where they begin and end; those that are not there are left out. If that is what was told before,
        the log may wait that long for something else.
        """

    def open(self, queue: QueueRef, segment: SourceSegment) -> OpenSegment:
        """Raise SegmentGone if it is not there any more."""

    def close(self) -> None:
        """Let go of connections; when it is asked again, it makes new ones."""


def pack_acked(runs: Iterable[tuple[int, int]]) -> bytes:
    """Runs of positions, first and end of each, in any order, as `SourceSegment.acked` has them."""
    packed = array("q")
    for first, end in sorted(runs):
        if packed and first <= packed[-1]:
            packed[-1] = max(packed[-1], end)
        else:
            packed.extend((first, end))
    return packed.tobytes()
