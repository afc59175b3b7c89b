"""What there is of the copies of a shard's logs after a start: by names and sizes, as far as possible.

A segment that is over has an index or chunks beside it, which are written when all of it is synced. Of such
a segment only two headers are read. Any other segment, the last one as a rule, is read through: what is no
whole record at its end was never acked to anybody, and is cut off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from warren.storage.files import names_in, read_whole, remove_segment
from warren.storage.format import (
    CHUNKS_MAGIC,
    HEADER_BYTES,
    INDEX_MAGIC,
    MAGIC_BYTES,
    MARK_BYTES,
    UnknownVersion,
    base_of,
    count_and_end,
    scan,
    segment_epoch,
    segment_name,
    walk_records,
)
from warren.storage.log_directory import OFFSETS, parts_in
from warren.storage.named_offsets import read_offsets
from warren.storage.problems import Problems
from warren.storage.replication import LogId, SegmentState


@dataclass
class FoundSegment:
    """What a directory has of one segment."""

    state: SegmentState
    last: int | None  # the position of its last record, if that is known
    count: int  # of its records, if it was read through
    marks_bytes: int  # the size of its ack file, up to the last whole mark
    is_complete: bool  # it has its index, or its chunks


@dataclass
class FoundLog:
    """What a directory has of one log."""

    log: LogId
    path: str
    segments: list[FoundSegment]
    offsets: dict[str, int]  # the named offsets of a stream
    offsets_bytes: int  # the size of their file


def find_logs(directory: str, problems: Problems, *, machine_went_down: bool) -> list[FoundLog]:
    """All logs in the directory of a shard, each queue's own before its parts."""
    found = []
    for name in sorted(filter(str.isdecimal, names_in(directory)), key=int):
        path = f"{directory}/{name}"
        for part in ("", *parts_in(path)):
            log = LogId(int(name), part)
            where = f"{path}/{part}" if part else path
            found.append(find_log(log, where, problems, machine_went_down=machine_went_down))
    return found


def find_log(log: LogId, path: str, problems: Problems, *, machine_went_down: bool) -> FoundLog:
    sizes = _sizes(path)
    segments = []
    for base in sorted({base for base in map(_base, sizes) if base is not None}):
        name = segment_name(base)
        if not sizes.get(f"{name}.seg"):
            _without_records(f"{path}/{name}", sizes, problems)
            continue
        acks = sizes.get(f"{name}.acks", 0)
        finder = _Finder(f"{path}/{name}", base, sizes[f"{name}.seg"], acks, problems)
        try:
            segment = finder.find(machine_went_down=machine_went_down)
            if segment.count or segment.is_complete or segment.state.damaged:
                segments.append(segment)
        except OSError as error:
            problems.warn("cannot read segment", file=f"{path}/{name}.seg", error=str(error))
            segments.append(finder.damaged(0))
    offsets: dict[str, int] = {}
    offsets_bytes = 0
    if OFFSETS in sizes:
        try:
            offsets, offsets_bytes = read_offsets(Path(path, OFFSETS))
        except (OSError, ValueError) as error:
            problems.warn("cannot read offsets", file=f"{path}/{OFFSETS}", error=str(error))
    return FoundLog(log, path, segments, offsets, offsets_bytes)


def _without_records(path: str, sizes: dict[str, int], problems: Problems) -> None:
    """What a process leaves that ends before it has written a record, or before it has deleted all files of a
    segment. With an index or chunks, there were records: the leader sends them again.
    """
    name = path.rpartition("/")[2]
    if f"{name}.idx" in sizes or f"{name}.chunks" in sizes:
        problems.warn("segment is missing", file=path + ".seg")
    else:
        remove_segment(path)


def _base(name: str) -> int | None:
    return base_of(name.partition(".")[0])


def _sizes(path: str) -> dict[str, int]:
    with os.scandir(path) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


@dataclass
class _Finder:
    """Looks at one segment."""

    path: str
    base: int
    size: int
    acks: int
    problems: Problems

    def find(self, *, machine_went_down: bool) -> FoundSegment:
        try:
            epoch = segment_epoch(_head(self.path + ".seg"), self.base)
        except (ValueError, UnknownVersion) as error:
            if self._was_never_written(error, machine_went_down=machine_went_down):
                return self._found(SegmentState(self.base, 0, 0), None, 0, is_complete=False)
            self.problems.warn("segment's header is not sound", file=self.path + ".seg", error=str(error))
            return self.damaged(0)
        if self._known_end() == self.size:
            return self._found(SegmentState(self.base, epoch, self.size), None, 0, is_complete=True)
        return self._read_through(epoch, machine_went_down=machine_went_down)

    def _was_never_written(self, error: Exception, *, machine_went_down: bool) -> bool:
        """Whether a segment without a sound header is one whose first round did not end. It is set aside."""
        if isinstance(error, UnknownVersion) or self._known_end() is not None:
            return False
        data = read_whole(self.path + ".seg")
        if len(data) >= HEADER_BYTES and not machine_went_down:
            return False
        if len(data) > HEADER_BYTES and walk_records(data, HEADER_BYTES, self.base - 1)[1]:
            return False
        if not self.problems.set_aside(self.path, 0, data, "no record in segment"):
            return False
        os.unlink(self.path + ".seg")  # noqa: PTH108 - paths are text here
        return True

    def damaged(self, epoch: int) -> FoundSegment:
        state = SegmentState(self.base, epoch, self.size, damaged=True)
        return self._found(state, None, 0, is_complete=False)

    def _found(self, state: SegmentState, last: int | None, count: int, *, is_complete: bool) -> FoundSegment:
        marks = max(0, self.acks - (self.acks - HEADER_BYTES) % MARK_BYTES) if self.acks > HEADER_BYTES else 0
        return FoundSegment(state, last, count, marks, is_complete)

    def _known_end(self) -> int | None:
        """Where the last record ends, as the index says or the chunks do."""
        for suffix, magic in ((".idx", INDEX_MAGIC), (".chunks", CHUNKS_MAGIC)):
            try:
                head = _head(self.path + suffix)
            except FileNotFoundError:
                continue
            if len(head) == HEADER_BYTES and head[:MAGIC_BYTES] == magic:
                return count_and_end(head)[1]
        return None

    def _read_through(self, epoch: int, *, machine_went_down: bool) -> FoundSegment:
        data = read_whole(self.path + ".seg")
        end, count, last, _ = walk_records(data, HEADER_BYTES, self.base - 1)
        if end < len(data) and not machine_went_down and scan(data, self.base).end > end:
            # A process that ends leaves the beginning of what it was writing. If records follow, it is
            # damage.
            self.problems.warn("bad record", file=self.path + ".seg", offset=end)
            return self.damaged(epoch)
        if end < len(data):
            if not self.problems.set_aside(self.path, end, data[end:], "torn tail"):
                return self.damaged(epoch)
            os.truncate(self.path + ".seg", end)
        if not count:
            os.unlink(self.path + ".seg")  # noqa: PTH108 - paths are text here
        state = SegmentState(self.base, epoch, end)
        return self._found(state, last, count, is_complete=False)


def _head(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, HEADER_BYTES, 0)
    finally:
        os.close(file)
