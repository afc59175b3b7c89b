"""The segments of a log as other programs may read them: which records are safe, and which are done with.

It takes two steps, since a log changes all the time and files take long to read. On the event loop a
`Snapshot` of each segment is taken, which is cheap. In a thread, `describe` reads the files and makes a
`ListedSegment` of it. A segment only ever grows, so what a snapshot calls safe can be read as long as the
file is there.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from warren.broker.queue import Queue
from warren.storage.ack_file import read_fates
from warren.storage.fates import Fates
from warren.storage.format import (
    HEADER_BYTES,
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    RECORD_HEAD,
    UnknownVersion,
    scan,
)
from warren.storage.queue_log import QueueLog
from warren.storage.segment import Segment, index_beyond
from warren.storage.stream_log import SegmentedStream
from warren.storage.stream_segment import StreamSegment

KNOWN_MAX = 65_536  # segments of which the ends are remembered


Log: TypeAlias = QueueLog | SegmentedStream


@dataclass(frozen=True, slots=True)
class SegmentEnds:
    """The last position in the first `size` bytes of a segment, and the times of the first and last record
    there; None if a time cannot be read.
    """

    size: int
    last: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A segment at one moment."""

    path: str
    base: int
    size: int  # how many bytes are safe
    last: int | None  # the last position that is safe, if that is known without reading
    closed: bool  # it gets no more records
    marks_written: int  # the size of the ack file
    marks: bytes  # those that are not in the ack file yet
    ends: SegmentEnds | None  # what was known before, of as many bytes or of fewer


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """`acked` are runs [position, count]."""

    path: str
    base: int
    closed: bool
    ends: SegmentEnds
    acked: list[list[int]]

    def up_to(self, last: int) -> ListedSegment:
        """The same without what is behind a position."""
        return self if self.ends.last <= last else replace(self, ends=replace(self.ends, last=last))


def logs_of(queue: Queue) -> list[tuple[str, Log]]:
    """A queue's logs by the name of their part: of priorities, or the one."""
    return [(part, log) for part, log in queue.logs() if isinstance(log, QueueLog | SegmentedStream)]


def find_segment(log: Log, base: int) -> Segment | None:
    segments: Sequence[Segment] = log.segments
    index = index_beyond(segments, base)
    found = segments[index - 1] if index else None
    return found if found is not None and found.base == base else None


class LogListing:
    """Remembers what was read of segments, so that no file is read twice."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, SegmentEnds] = OrderedDict()

    def take(self, log: Log, segments: Iterable[Segment]) -> list[Snapshot]:
        """Snapshots of some segments of a log: of those with safe records. Marks should have been written
        just before.
        """
        sized = [(segment, log.safe_bytes(segment)) for segment in segments]
        return [
            self._snapshot(log, segment, size)
            for segment, size in sized
            if size > HEADER_BYTES and not segment.is_dropped()
        ]

    def _snapshot(self, log: Log, segment: Segment, size: int) -> Snapshot:
        last = segment.last if size == segment.end else None
        ends = self.known.get(segment.path)
        if isinstance(log, SegmentedStream) and isinstance(
            segment, StreamSegment
        ):  # it knows all that of itself
            last = min(segment.safe_last(), log.safe_position())
            ends = SegmentEnds(size, last, segment.first_ms, segment.last_ms)
        return Snapshot(
            path=segment.path,
            base=segment.base,
            size=size,
            last=last,
            closed=segment.is_closed(),
            marks_written=segment.marks_written,
            marks=segment.marks_to_write() if segment.marked else b"",
            ends=ends,
        )

    def remember(self, listed: Iterable[ListedSegment]) -> None:
        for segment in listed:
            self.known[segment.path] = segment.ends
            self.known.move_to_end(segment.path)
        while len(self.known) > KNOWN_MAX:
            self.known.popitem(last=False)


# --- in a thread ---


def describe(snapshots: Sequence[Snapshot]) -> list[ListedSegment]:
    """A segment that is deleted by now is left out: all its messages are done with, or too old."""
    listed = []
    for snapshot in snapshots:
        try:
            listed.append(_describe(snapshot))
        except FileNotFoundError:
            continue
    return listed


def _describe(snapshot: Snapshot) -> ListedSegment:
    ends = snapshot.ends
    if ends is None or ends.size != snapshot.size:
        ends = _read_ends(snapshot)
    places = ends.last - snapshot.base + 1
    acked = _fates(snapshot).acked_runs(places)
    for run in acked:
        run[0] += snapshot.base
    return ListedSegment(snapshot.path, snapshot.base, snapshot.closed, ends, acked)


def _fates(snapshot: Snapshot) -> Fates:
    """The ack file may have more by now than when the snapshot was taken, and in fewer marks."""
    if not snapshot.marks_written:
        fates = Fates(snapshot.base)
        fates.add(snapshot.marks[HEADER_BYTES:])
        return fates
    try:
        fates, _, _ = read_fates(snapshot.path + ".acks", snapshot.base)
    except (ValueError, UnknownVersion):  # damaged while the broker runs: nothing is known to be done with
        fates = Fates(snapshot.base)
    fates.add(snapshot.marks)
    return fates


def _read_ends(snapshot: Snapshot) -> SegmentEnds:
    """Read the heads of the first and the last record. An index says where the last one is."""
    file = os.open(snapshot.path + ".seg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        known = snapshot.ends
        first_ms = _time_at(file, HEADER_BYTES, snapshot.base) if known is None else known.first_ms
        if snapshot.closed and snapshot.last is not None:
            offset = _last_offset(snapshot.path, snapshot.base, snapshot.last)
            if offset is not None:
                last_ms = _time_at(file, offset, snapshot.last)
                return SegmentEnds(snapshot.size, snapshot.last, first_ms, last_ms)
        return _scan_rest(file, snapshot, first_ms)
    finally:
        os.close(file)


def _time_at(file: int, offset: int, position: int) -> int | None:
    head = os.pread(file, RECORD_HEAD.size, offset)
    if len(head) < RECORD_HEAD.size:
        return None
    _crc, _length, found, time_ms, _properties, _flags = RECORD_HEAD.unpack(head)
    return int(time_ms) if found == position else None


def _last_offset(path: str, base: int, last: int) -> int | None:
    """Where the last record begins, by the last entry of the index, if that is written yet."""
    try:
        with open(path + ".idx", "rb") as index:  # noqa: PTH123 - paths are text here
            index.seek(-INDEX_ENTRY_BYTES, os.SEEK_END)
            relative, offset, _body = INDEX_ENTRY.unpack(index.read(INDEX_ENTRY_BYTES))
    except (OSError, struct.error):
        return None
    return int(offset) if base + relative == last else None


def _scan_rest(file: int, snapshot: Snapshot, first_ms: int | None) -> SegmentEnds:
    """Walk through the records that have come since the last time."""
    known = snapshot.ends
    start = HEADER_BYTES if known is None else known.size
    data = os.pread(file, snapshot.size - start + HEADER_BYTES, start - HEADER_BYTES)
    found = scan(data, snapshot.base)
    if found.last is None:
        last = snapshot.base - 1 if known is None else known.last
        return SegmentEnds(snapshot.size, last, first_ms, None if known is None else known.last_ms)
    _relative, offset, _body = INDEX_ENTRY.unpack(found.entries[-INDEX_ENTRY_BYTES:])
    time_ms = RECORD_HEAD.unpack_from(data, offset)[3]
    return SegmentEnds(snapshot.size, found.last, first_ms, time_ms)
