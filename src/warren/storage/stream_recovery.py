"""Reading the directory of a stream back: closed segments from their chunks files, the last one by a scan.

The same holds as for queues (recovery.py): nothing is refused, and nothing that could not be read is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warren.storage.format import UnknownVersion
from warren.storage.log_directory import OFFSETS
from warren.storage.named_offsets import read_offsets
from warren.storage.queue_log import NAME_DIGITS
from warren.storage.recovery import Problems, bases_in, last_possible, scanned
from warren.storage.stream_segment import StreamSegment, decode_chunks


@dataclass
class RecoveredStream:
    """What a directory holds: segments in order, the highest position it knows of, the offsets that have a
    name and the size of their file.
    """

    segments: list[StreamSegment]
    position: int
    offsets: dict[str, int]
    offsets_size: int


def recover_stream(directory: Path, problems: Problems) -> RecoveredStream:
    recovered = RecoveredStream([], 0, *_offsets(directory, problems))
    for base in bases_in(directory, problems, is_of_part=False):
        path = f"{directory}/{str(base).zfill(NAME_DIGITS)}"
        try:
            segment = _read(path, base, problems)
        except OSError as error:
            problems.warn("cannot read segment", file=path + ".seg", error=str(error))
            recovered.position = max(recovered.position, last_possible(base))
            continue
        recovered.position = max(recovered.position, base - 1 if segment is None else segment.last)
        if segment is not None:
            _close_last(recovered, problems)
            recovered.segments.append(segment)
    return recovered


def _offsets(directory: Path, problems: Problems) -> tuple[dict[str, int], int]:
    file = directory / OFFSETS
    try:
        return read_offsets(file)
    except (OSError, ValueError) as error:
        problems.warn("cannot read offsets", file=str(file), error=str(error))
        return {}, 0


def _read(path: str, base: int, problems: Problems) -> StreamSegment | None:
    """None if there is nothing in it."""
    file = Path(path + ".seg")
    if not file.exists():
        problems.warn("files without their segment", file=path)
        return None
    segment = _closed(path, base, file.stat().st_size, problems)
    if segment is not None:
        return segment
    segment = StreamSegment(path, base)
    if not scanned(segment, problems) or not segment.count:
        return None
    segment.note_all(file.read_bytes())
    segment.closed |= Path(path + ".chunks").exists()
    return segment


def _closed(path: str, base: int, size: int, problems: Problems) -> StreamSegment | None:
    """What a sound chunks file that fits the segment says."""
    file = Path(path + ".chunks")
    if not file.exists():
        return None
    try:
        count, end, (last, last_ms), chunks = decode_chunks(file.read_bytes(), base)
    except (OSError, ValueError, UnknownVersion) as error:
        problems.warn("chunks file is not sound", file=str(file), error=str(error))
        return None
    if end > size:
        problems.warn("segment is shorter than its chunks say", file=path + ".seg")
        return None
    segment = StreamSegment(path, base)
    segment.count, segment.last, segment.last_ms = count, last, last_ms
    segment.end = segment.written = end
    segment.first_ms = chunks.first_ms()
    segment.created = segment.closed = segment.indexed = True
    segment.chunks = None
    return segment


def _close_last(recovered: RecoveredStream, problems: Problems) -> None:
    """Nothing is appended to the last one so far any more; its chunks file may be missing."""
    if not recovered.segments:
        return
    segment = recovered.segments[-1]
    segment.closed = True
    if not segment.indexed:
        segment.indexed = True
        try:
            segment.write_index()
        except OSError as error:
            problems.warn("cannot write chunks", file=segment.path + ".chunks", error=str(error))
