"""What a reader needs to know of a queue's log, whether it reads files or asks a broker.

    SegmentLog            a data directory (`files.py`), or a broker's HTTP API (`http.py`)
      QueueRef            one of its queues
        QueueEnds         where the queue begins and ends at one moment
        Contents          the same, with all its segments
          SourceSegment   a file of records; a `Slice` is the part of one that a task reads
      OpenSegment         access to the bytes of a segment

Offsets count from 0, positions in records from 1: `offset = position - 1`. An end is the number behind the
last. All classes but `OpenSegment` are sent to executors, so they can be pickled.
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
    """A queue or stream, by its name."""

    vhost: str
    name: str
    kind: str  # one of KINDS
    place: str = ""  # its directory within the data directory, if it is read from files
    stream_id: str = ""  # tells a stream from a later one of the same name; empty if it is not known

    @property
    def is_stream(self) -> bool:
        return self.kind == STREAM

    def __str__(self) -> str:
        return f"{'stream' if self.is_stream else 'queue'} '{self.name}'"


@dataclass(frozen=True, kw_only=True)
class SourceSegment:
    """A segment, as a reader sees it. In a queue that is no stream, some offsets may have no message."""

    part: str = ""  # the part of the queue it belongs to, such as a priority; a directory in the queue's
    base: int  # the position of its first record
    size_bytes: int  # how much of the file may be read
    first_offset: int
    end_offset: int
    acked: bytes = b""  # runs of acked positions in order, each as two int64: its first, and its end


@dataclass(frozen=True)
class LogExtent:
    """Offsets from `first_offset` to before `next_offset`."""

    queue: QueueRef
    first_offset: int
    next_offset: int


@dataclass(frozen=True)
class QueueEnds(LogExtent):
    tail: SourceSegment | None = None  # the segment in which a stream ends; None if empty, or no stream


@dataclass(frozen=True)
class Contents(LogExtent):
    segments: tuple[SourceSegment, ...]

    @property
    def ends(self) -> QueueEnds:
        tail = self.segments[-1] if self.segments and self.queue.is_stream else None
        return QueueEnds(self.queue, self.first_offset, self.next_offset, tail)


@dataclass(frozen=True)
class Slice:
    """The messages from `first_offset` to before `end_offset` in a segment. To find the first one, a reader
    begins at byte `at`, where a record begins that is not behind it.
    """

    segment: SourceSegment
    first_offset: int
    end_offset: int
    at: int = HEADER_BYTES
    at_offset: int = -1  # the record at `at` has this offset or a higher one; -1: it is the segment's first

    @property
    def above(self) -> int:
        """A position that is below the one of the record at `at`, and not below any record before it."""
        return self.at_offset if self.at_offset >= 0 else self.segment.base - 1


class OpenSegment(Protocol):
    name: str  # a path or URL, for error messages

    def read(self, at: int, size: int) -> bytes:
        """Returns fewer bytes only at the end of the file."""

    def locate(self, wanted: Slice) -> tuple[int, int]:
        """A byte where a record begins that is not behind the first wanted one, and a position below it."""

    def close(self) -> None: ...


class SegmentLog(Protocol):
    can_locate: bool  # whether finding an offset within a segment costs little
    chunk_bytes: int  # how much to read of a segment at a time

    def queues(self, vhost: str) -> list[QueueRef]: ...

    def contents(self, vhost: str, name: str) -> Contents: ...

    def contents_of(self, vhost: str, names: Sequence[str]) -> dict[str, Contents]:
        """The contents of many queues, by name; queues that do not exist are left out."""

    def ends_of(self, vhost: str, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, QueueEnds]:
        """Where queues begin and end, by name; queues that do not exist are left out. If nothing has changed
        since the last call, the log may wait up to `wait_s` for a change.
        """

    def open(self, queue: QueueRef, segment: SourceSegment) -> OpenSegment:
        """Raises SegmentGone if the segment was deleted; `OpenSegment.read` may raise it, too."""

    def close(self) -> None:
        """Close connections; the next call opens new ones."""


def pack_acked(runs: Iterable[tuple[int, int]]) -> bytes:
    """Pack runs of positions, each its first and its end, in any order, as `SourceSegment.acked` has them."""
    packed = array("q")
    for first, end in sorted(runs):
        if packed and first <= packed[-1]:
            packed[-1] = max(packed[-1], end)
        else:
            packed.extend((first, end))
    return packed.tobytes()
