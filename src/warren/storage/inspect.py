"""Counts and messages from the files of a data directory, for looking at it without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from warren.broker.message import Message
from warren.storage.ack_file import read_fates
from warren.storage.data_files import FileKind, FileProblem, QueueFiles, SegmentFiles, Tell
from warren.storage.fates import Fates
from warren.storage.format import (
    ACKED,
    HEADER_BYTES,
    INDEX_ENTRY_FIELDS,
    RECORD_HEAD_BYTES,
    SEGMENT_MAGIC,
    TIME_AT,
    Scan,
    UnknownVersion,
    check_header,
    records,
    scan,
    uint64_at,
)
from warren.storage.index import Index, decode_dues, decode_index
from warren.storage.segment import Segment

# --- what a segment holds ---


def read_segment(files: SegmentFiles, tell: Tell) -> Segment | None:
    """A segment's records, by the index if there is one, and what became of each. None if it has none."""
    if "seg" not in files.sizes:
        return None
    index = read_index(files, tell)
    found = _read_records(files, tell) if index is None else index.scan(files.base)
    if found is None:
        return None
    segment = Segment(files.path, files.base)
    segment.fill(found)
    segment.recover_fates(read_marks(files, tell)[0])
    return segment


def read_index(files: SegmentFiles, tell: Tell) -> Index | None:
    """What a sound index that fits its segment says."""
    data = files.read("idx", tell)
    if data is None:
        return None
    try:
        index = decode_index(data, files.base)
    except (ValueError, UnknownVersion) as error:
        tell(FileProblem(FileKind.DAMAGE, files.name("idx"), f"index is not sound: {error}", 0))
        return None
    size = files.sizes.get("seg", index.end)
    if index.end > size:
        if files.live:  # it was shorter when it was listed
            return None
        text = f"segment is shorter than its index says, {size} of {index.end} bytes"
        tell(FileProblem(FileKind.DAMAGE, files.name("seg"), text))
        return None
    return index


def read_dues(files: SegmentFiles, index: Index, tell: Tell) -> bytes | None:
    """The entries of the due file that an index is about; None if it is not there, or not sound."""
    if not index.dues:
        return b""
    data = files.read("due", tell)
    if data is None:
        if "due" not in files.sizes and not files.live:
            tell(FileProblem(FileKind.DAMAGE, files.name("due"), "due file is missing"))
        return None
    try:
        return decode_dues(data, files.base, index)
    except (ValueError, UnknownVersion) as error:
        tell(FileProblem(FileKind.DAMAGE, files.name("due"), f"due file is not sound: {error}", 0))
        return None


def _read_records(files: SegmentFiles, tell: Tell) -> Scan | None:
    data = read_sound(files, tell) if files.sizes["seg"] else None
    return None if data is None else scan(data, files.base)


def read_sound(files: SegmentFiles, tell: Tell) -> bytes | None:
    """The bytes of a segment in which there may be records, even if its header is damaged."""
    data = files.read("seg", tell)
    if data is None:
        return None
    try:
        check_header(SEGMENT_MAGIC, data, files.base)
    except UnknownVersion as error:
        tell(FileProblem(FileKind.DAMAGE, files.name("seg"), str(error), 0))
        return None
    except ValueError as error:
        kind = FileKind.HARMLESS if files.newest and len(data) < HEADER_BYTES else FileKind.DAMAGE
        tell(FileProblem(kind, files.name("seg"), f"header is not sound: {error}", 0))
    return data


def read_marks(files: SegmentFiles, tell: Tell) -> tuple[Fates, int]:
    """What the sound marks come to, and how many are not sound: their messages may be delivered again."""
    nothing = Fates(files.base), 0
    if "acks" not in files.sizes:
        return nothing
    name = files.name("acks")
    try:
        fates, bad, _ = read_fates(name, files.base)
    except (ValueError, UnknownVersion) as error:
        kind = FileKind.HARMLESS if files.sizes["acks"] < HEADER_BYTES else FileKind.DAMAGE
        tell(FileProblem(kind, name, f"ack file is not sound: {error}", 0))
    except OSError as error:
        files.tell_unreadable("acks", error, tell)
    else:
        return fates, bad
    return nothing


# --- counts ---


@dataclass(frozen=True)
class SegmentSummary:
    base: int
    records: int
    ready: int
    bytes: int
    indexed: bool


@dataclass(frozen=True)
class RecordPlace:
    """Where a message is, and when it came."""

    position: int
    time_ms: int


@dataclass
class QueueSummary:
    """What is known of a queue by its files."""

    files: QueueFiles
    segments: list[SegmentSummary] = field(default_factory=list)
    oldest: RecordPlace | None = None  # the first message that is ready
    newest: RecordPlace | None = None  # the last message that is ready
    problems: list[FileProblem] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)  # the named offsets of a stream

    @property
    def messages(self) -> int:
        return sum(segment.ready for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


def summarize(files: QueueFiles) -> QueueSummary:
    summary = QueueSummary(files)
    tell = summary.problems.append
    newest: Segment | None = None
    for files_of_one in files.segments(tell):
        segment = read_segment(files_of_one, tell)
        size = sum(files_of_one.sizes.values())
        indexed = "idx" in files_of_one.sizes
        count, ready = (segment.count, segment.alive) if segment is not None else (0, 0)
        summary.segments.append(SegmentSummary(files_of_one.base, count, ready, size, indexed))
        if segment is not None and ready:
            newest = segment
            summary.oldest = summary.oldest or _first_ready(segment, range(count), tell)
    if newest is not None:
        summary.newest = _first_ready(newest, range(newest.count - 1, -1, -1), tell)
    return summary


def _first_ready(segment: Segment, order: range, tell: Tell) -> RecordPlace | None:
    entries = memoryview(segment.entries).cast("I")
    for index in order:
        relative, offset, _ = entries[INDEX_ENTRY_FIELDS * index : INDEX_ENTRY_FIELDS * (index + 1)]
        if segment.fate_of(segment.base + relative) != ACKED:
            return _place(segment, segment.base + relative, offset, tell)
    return None


def _place(segment: Segment, position: int, offset: int, tell: Tell) -> RecordPlace | None:
    try:
        with Path(segment.path + ".seg").open("rb") as file:
            head = os.pread(file.fileno(), RECORD_HEAD_BYTES, offset)
    except FileNotFoundError:
        return None
    except OSError as error:
        tell(FileProblem(FileKind.UNREADABLE, segment.path + ".seg", error.strerror or str(error)))
        return None
    return RecordPlace(position, uint64_at(head, TIME_AT))


# --- messages ---


@dataclass(frozen=True)
class StoredMessage:
    """A message in a segment, and what is known of it."""

    position: int
    time_ms: int  # when it came, or if it is scheduled, when it is due
    deliveries: int  # how often it was given to a consumer
    acked: bool  # it is done with
    message: Message
    part: str = ""  # in which of the queue's logs it is
    is_of_stream: bool = False  # its position is an offset


def read_messages(
    files: QueueFiles, tell: Tell, *, first: int = 0, with_acked: bool = False
) -> Iterator[StoredMessage]:
    """The messages from a position on, in order. One segment is in memory at a time."""
    segments = files.segments(tell)
    later_bases = [following.base for following in segments[1:]]
    for files_of_one, later_base in zip_longest(segments, later_bases):
        if later_base is not None and later_base <= first:
            continue
        segment = read_segment(files_of_one, tell)
        if segment is None or not (segment.alive or with_acked):
            continue
        data = files_of_one.read("seg", tell)
        if data is not None:
            found = _messages_of(segment, data, tell, first=first, with_acked=with_acked)
            is_plain = not files.part and not files.is_stream
            yield from (
                found
                if is_plain
                else (replace(message, part=files.part, is_of_stream=files.is_stream) for message in found)
            )


def _messages_of(
    segment: Segment, data: bytes, tell: Tell, *, first: int, with_acked: bool
) -> Iterator[StoredMessage]:
    expected = HEADER_BYTES
    for record in records(data):
        if record.offset != expected:
            text = f"bad record, {record.offset - expected} bytes"
            tell(FileProblem(FileKind.DAMAGE, segment.path + ".seg", text, expected))
        expected = record.offset + record.size
        fate = segment.fate_of(record.position)
        if record.position >= first and (with_acked or fate != ACKED):
            deliveries = 0 if fate == ACKED else fate
            yield StoredMessage(record.position, record.time_ms, deliveries, fate == ACKED, record.message)
