"""Reading the directory of a stream back: closed segments from their chunks files, the last one by a scan.

As for queues (recovery.py), no directory is refused, and nothing that could not be read is deleted. No offset
that a client may have seen is used again: records in a segment without chunks may not have been synced when
the broker was killed, so they are synced before any client gets them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warren.storage.files import names_in
from warren.storage.format import UnknownVersion, segment_name
from warren.storage.log_directory import OFFSETS
from warren.storage.named_offsets import read_offsets
from warren.storage.problems import Problems
from warren.storage.recovery import bases_in, close, last_possible, scanned
from warren.storage.segment_life import Life, OnDisk
from warren.storage.stream_segment import StreamSegment, decode_chunks

Sync: TypeAlias = Callable[[str], None]
"""Makes a file's bytes, or a directory's names, safe."""


@dataclass
class RecoveredStream:
    """What a stream's directory holds: its segments in order, the highest position that was ever used, the
    named offsets, and the size of their file.
    """

    segments: list[StreamSegment]
    position: int
    offsets: dict[str, int]
    offsets_size: int


def recover_stream(directory: str, problems: Problems, sync: Sync) -> RecoveredStream:
    recovered = RecoveredStream([], 0, *_offsets(Path(directory), problems))
    alone: list[Path] = []
    for base in bases_in(directory, problems, names_in(directory), is_of_part=False):
        path = f"{directory}/{segment_name(base)}"
        try:
            segment, last = _read(path, base, problems, sync)
        except OSError as error:
            problems.warn("cannot read segment", file=path + ".seg", error=str(error))
            problems.not_recovered(path)
            segment, last = None, last_possible(base)
        recovered.position = max(recovered.position, last)
        if segment is not None:
            _close_last(recovered, problems)
            recovered.segments.append(segment)
        elif not Path(path + ".seg").exists() and Path(path + ".chunks").exists():
            alone.append(Path(path + ".chunks"))
    if recovered.segments and recovered.segments[-1].is_closed():
        _close_last(recovered, problems)
    _look_at(alone, recovered.segments, problems)
    return recovered


def _look_at(alone: list[Path], segments: list[StreamSegment], problems: Problems) -> None:
    """Chunks without their segment. After a power cut they may be left of one that retention has dropped,
    which is before all others; else the segment is lost. They are of use only behind the last segment, where
    they tell which positions were taken.
    """
    for file in alone:
        if not segments or int(file.stem) > segments[0].base:
            problems.warn("segment is missing", file=str(file.with_suffix(".seg")))
        if segments and int(file.stem) < segments[-1].base:
            file.unlink(missing_ok=True)


def _offsets(directory: Path, problems: Problems) -> tuple[dict[str, int], int]:
    file = directory / OFFSETS
    try:
        return read_offsets(file)
    except (OSError, ValueError) as error:
        problems.warn("cannot read offsets", file=str(file), error=str(error))
        return {}, 0


def _read(path: str, base: int, problems: Problems, sync: Sync) -> tuple[StreamSegment | None, int]:
    """A segment, or None if nothing in it can be read, and the last position that it may have used."""
    file = Path(path + ".seg")
    if not file.exists():
        return None, _without_records(path, base, problems)
    segment = _closed(path, base, file.stat().st_size, problems)
    if segment is not None:
        return segment, segment.last
    segment = StreamSegment(path, base)
    if not scanned(segment, problems):
        return None, last_possible(base)
    if not segment.count:
        return None, _without_records(path, base, problems)
    segment.entries = b""  # streams do without
    segment.note_all(file.read_bytes())
    if Path(path + ".chunks").exists():
        close(segment)
    _make_safe(file, problems, sync)
    return segment, segment.last


def _make_safe(file: Path, problems: Problems, sync: Sync) -> None:
    """Sync a file's bytes, and the directories that lead to it."""
    try:
        for path in (file, file.parent, file.parent.parent):
            sync(str(path))
    except OSError as error:
        problems.warn("cannot sync", file=str(file), error=str(error))


def _without_records(path: str, base: int, problems: Problems) -> int:
    """The last position that is known to have been in use, of a segment without records. A broker that is
    killed leaves segments that are empty, and perhaps not all of the one before: nobody has seen those
    records. If there are chunks, though, there were records that somebody may have seen.
    """
    Path(path + ".chunks.new").unlink(missing_ok=True)
    file = Path(path + ".chunks")
    if not file.exists():
        return 0
    try:
        last: int = decode_chunks(file.read_bytes(), base)[2][0]
    except (OSError, ValueError, UnknownVersion) as error:
        problems.warn("chunks file is not sound", file=str(file), error=str(error))
        return last_possible(base)
    return last


def _closed(path: str, base: int, size: int, problems: Problems) -> StreamSegment | None:
    """A segment as its chunks file says, if that is sound and fits the segment."""
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
    segment.enter(OnDisk.MADE)
    segment.enter(Life.CLOSED)
    segment.enter(Life.COMPLETE)
    segment.chunks = None
    return segment


def _close_last(recovered: RecoveredStream, problems: Problems) -> None:
    """Close the last segment so far, and write its chunks file if that is missing."""
    if not recovered.segments:
        return
    segment = recovered.segments[-1]
    close(segment)
    if segment.life is not Life.COMPLETE:
        segment.enter(Life.COMPLETE)
        try:
            segment.write_index()
        except OSError as error:
            problems.warn("cannot write chunks", file=segment.path + ".chunks", error=str(error))
