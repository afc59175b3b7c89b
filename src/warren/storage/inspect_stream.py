"""What is in the files of a stream, for whoever looks at it from outside: as inspect.py does for queues.

What is in a closed segment its chunks file says, so that a large stream need not be read to count its
messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.storage.checked_lines import Line, scan_lines
from warren.storage.data_files import FileKind, FileProblem, QueueFiles, SegmentFiles, Tell
from warren.storage.format import UnknownVersion, records
from warren.storage.inspect import QueueSummary, RecordPlace, SegmentSummary, read_sound
from warren.storage.log_directory import OFFSETS
from warren.storage.named_offsets import offsets_in
from warren.storage.stream_segment import Chunks, decode_chunks


@dataclass(frozen=True)
class ChunksFile:
    """`end` is where the last record ends."""

    count: int
    end: int
    last: int
    last_ms: int
    chunks: Chunks


@dataclass(frozen=True)
class Counted:
    """What a segment has."""

    count: int
    first: RecordPlace | None
    last: RecordPlace | None


def read_chunks(files: SegmentFiles, tell: Tell) -> ChunksFile | None:
    """What a sound file that fits its segment says."""
    data = files.read("chunks", tell)
    if data is None:
        return None
    try:
        count, end, (last, last_ms), chunks = decode_chunks(data, files.base)
    except (ValueError, UnknownVersion) as error:
        tell(FileProblem(FileKind.DAMAGE, files.name("chunks"), f"chunks file is not sound: {error}", 0))
        return None
    size = files.sizes.get("seg", end)
    if end > size:
        if not files.live:  # else it was shorter when it was listed
            text = f"segment is shorter than its chunks say, {size} of {end} bytes"
            tell(FileProblem(FileKind.DAMAGE, files.name("seg"), text))
        return None
    return ChunksFile(count, end, last, last_ms, chunks)


def summarize_stream(files: QueueFiles) -> QueueSummary:
    summary = QueueSummary(files)
    tell = summary.problems.append
    for segment in files.segments(tell):
        found = _count(segment, tell)
        size = sum(segment.sizes.values())
        indexed = "chunks" in segment.sizes
        summary.segments.append(SegmentSummary(segment.base, found.count, found.count, size, indexed))
        summary.oldest = summary.oldest or found.first
        summary.newest = found.last or summary.newest
    summary.offsets = offsets_in(read_offset_lines(files, tell))[0]
    return summary


def _count(files: SegmentFiles, tell: Tell) -> Counted:
    if not files.sizes.get("seg"):
        return Counted(0, None, None)
    known = read_chunks(files, tell)
    if known is not None:
        first = RecordPlace(files.base, known.chunks.first_ms())
        return Counted(known.count, first, RecordPlace(known.last, known.last_ms))
    data = read_sound(files, tell)
    places = (
        [] if data is None else [RecordPlace(record.position, record.time_ms) for record in records(data)]
    )
    return Counted(len(places), places[0], places[-1]) if places else Counted(0, None, None)


def read_offset_lines(files: QueueFiles, tell: Tell) -> list[Line]:
    file = files.path / OFFSETS
    try:
        return list(scan_lines(file.read_bytes()))
    except FileNotFoundError:
        return []
    except OSError as error:
        tell(FileProblem(FileKind.UNREADABLE, str(file), error.strerror or str(error)))
        return []
