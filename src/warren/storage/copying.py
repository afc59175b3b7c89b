"""Reading a log for somebody who makes a copy of it.

On the event loop it is noted what is to be read: a `SegmentSource`, or a `MarksSource`. In a thread it is
read, some at a time. What a source names stays as it is, since a segment only ever grows, and marks only ever
become more. If its segment is dropped meanwhile, reading fails with FileNotFoundError, and need not go on.

Bytes that no round has written yet are in memory, and are taken on the event loop (`unwritten`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from warren.storage.ack_file import read_fates
from warren.storage.fates import Fates
from warren.storage.format import HEADER_BYTES, UnknownVersion, walk_records
from warren.storage.replication import AllMarks, LogId, Records, SegmentState
from warren.storage.segment import Segment, index_beyond

CHUNK_BYTES = 256 * 1024  # that are read at once, if no record is larger


class DamagedSegment(Exception):
    """A segment has bytes that are no record, so it cannot be copied from here."""


class SegmentSource(NamedTuple):
    """The records of a segment that are in its file."""

    log: LogId
    path: str  # without a suffix
    base: int
    epoch: int
    written: int  # how many bytes are


class MarksSource(NamedTuple):
    """The marks of a segment."""

    log: LogId
    path: str  # without a suffix
    base: int
    epoch: int
    is_written: bool  # whether there is an ack file: one that is just being made has no header yet
    unwritten: bytes  # marks that are not in the ack file yet


# --- on the event loop ---


def segment_at(segments: Sequence[Segment], base: int) -> Segment | None:
    index = index_beyond(segments, base)
    found = segments[index - 1] if index else None
    return found if found is not None and found.base == base else None


def states_of(segments: Iterable[Segment]) -> list[SegmentState]:
    """What there is of a log, with what no round has written yet."""
    return [SegmentState(one.base, one.epoch, one.end, one.damaged) for one in segments if one.end]


def source_of(log: LogId, segment: Segment, end: int | None = None) -> SegmentSource:
    """The file of a segment, as far as it is written, or up to an offset."""
    written = segment.written if end is None else min(segment.written, end)
    return SegmentSource(log, segment.path, segment.base, segment.epoch, written)


def unwritten(log: LogId, segment: Segment, offset: int, end: int) -> Records | None:
    """All that a segment has from an offset to another, none of which may be in its file only; None if that
    is nothing.
    """
    if offset >= min(segment.end, end):
        return None
    data = segment.unwritten_from(offset)[: end - offset]
    _, count, last, _ = walk_records(data, HEADER_BYTES if offset == 0 else 0, segment.base - 1)
    return Records(log, segment.base, segment.epoch, offset, last, count, data)


def marks_of(log: LogId, segment: Segment) -> MarksSource:
    """All marks up to now. Marks that come later are handed out by the log's tap."""
    marks = segment.marks_to_write()
    is_written = segment.marks_written > 0
    return MarksSource(
        log,
        segment.path,
        segment.base,
        segment.epoch,
        is_written,
        marks if is_written else marks[HEADER_BYTES:],
    )


# --- in a thread ---


def read_records(source: SegmentSource, offset: int) -> Records | None:
    """The next records from an offset on: as many as fit into `CHUNK_BYTES`, but at least one. None if there
    are no more. DamagedSegment if what is there is no record.
    """
    wanted = min(CHUNK_BYTES, source.written - offset)
    if wanted <= 0:
        return None
    file = os.open(source.path + ".seg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        at, start = (HEADER_BYTES, offset) if offset == 0 else (0, offset)
        data = _read(file, wanted, start)
        end, count, last, needed = walk_records(data, at, source.base - 1)
        if count == 0 and wanted < at + needed <= source.written - offset:
            data = _read(file, at + needed, start)
            end, count, last, needed = walk_records(data, at, source.base - 1)
    finally:
        os.close(file)
    if count == 0:
        raise DamagedSegment(f"no record at {offset + at} in {source.path}.seg")
    return Records(source.log, source.base, source.epoch, offset, last, count, data[:end])


def _read(file: int, size: int, offset: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(file, size, offset)):
        pieces.append(piece)
        size -= len(piece)
        offset += len(piece)
    return b"".join(pieces)


def read_marks(source: MarksSource) -> AllMarks:
    """All marks of a segment, as few as say the same."""
    fates = Fates(source.base)
    try:
        if source.is_written:
            fates, _, _ = read_fates(source.path + ".acks", source.base)
    except FileNotFoundError:  # the segment was dropped meanwhile
        fates = Fates(source.base)
    except (ValueError, UnknownVersion) as error:
        raise DamagedSegment(f"{source.path}.acks: {error}") from error
    fates.add(source.unwritten)
    return AllMarks(source.log, source.base, source.epoch, fates.encode())
