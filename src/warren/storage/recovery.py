"""Reading a log's directory back after whatever has happened to it.

No directory is refused, and nothing that could not be read is deleted: a torn tail and bad records are set
aside in a `.torn` file, files that cannot be understood stay where they are, and the broker's log has a line
for each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from warren.storage.ack_file import read_fates
from warren.storage.fates import Fates
from warren.storage.files import read_whole, remove_segment, write_file
from warren.storage.format import (
    HEADER_BYTES,
    RELATIVE_MAX,
    SUFFIXES,
    Scan,
    UnknownVersion,
    base_of,
    scan,
    segment_epoch,
    segment_name,
)
from warren.storage.index import Index, decode_dues, decode_index, write_index
from warren.storage.log_directory import belongs_to_queue
from warren.storage.problems import Problems
from warren.storage.segment import Segment
from warren.storage.segment_life import Life


@dataclass
class RecoveredLog:
    """What a directory holds: its segments in order, and the highest position that was ever used there."""

    segments: list[Segment]
    position: int


def recover(
    directory: str, problems: Problems, names: list[str], *, marks_may_be_lost: bool, is_of_part: bool = False
) -> RecoveredLog:
    """Read one directory back. `names` are all names in it. If `marks_may_be_lost`, the machine went down,
    and what was not synced may be gone. A queue's directory has those of its parts in it, which are recovered
    by calls of their own, with `is_of_part`.
    """
    recovered = RecoveredLog([], 0)
    for base, suffixes in bases_in(directory, problems, names, is_of_part=is_of_part).items():
        path = f"{directory}/{segment_name(base)}"
        try:
            segment, last = _read(path, base, suffixes, problems)
        except OSError as error:
            problems.warn("cannot read segment", file=path + ".seg", error=str(error))
            problems.not_recovered(path)
            segment, last = None, last_possible(base)
        recovered.position = max(recovered.position, last)
        if segment is not None:
            _add(recovered, segment, problems, marks_may_be_lost=marks_may_be_lost)
    if recovered.segments and recovered.segments[-1].is_closed():
        _close_last(recovered, problems)
    _remove_dead(recovered)
    return recovered


def recover_short(segments: list[Segment], problems: Problems, *, marks_may_be_lost: bool) -> RecoveredLog:
    """The same for a directory with at most one segment, which `short_logs.pyx` has read already."""
    recovered = RecoveredLog([], 0)
    for segment in segments:
        recovered.position = segment.last
        _add(recovered, segment, problems, marks_may_be_lost=marks_may_be_lost)
    _remove_dead(recovered)
    return recovered


def _add(recovered: RecoveredLog, segment: Segment, problems: Problems, *, marks_may_be_lost: bool) -> None:
    if marks_may_be_lost and segment.alive:
        _assume_delivered(segment, problems)
    _close_last(recovered, problems)
    recovered.segments.append(segment)


def last_possible(base: int) -> int:
    """The last position that a segment which cannot be read may have: none up to it is used again, since the
    segment may be readable at the next start.
    """
    return base + RELATIVE_MAX


def bases_in(
    directory: str, problems: Problems, names: list[str], *, is_of_part: bool
) -> dict[int, set[str]]:
    """The bases of all segments, in order, and the suffixes of the files that each has. A segment may have
    nothing left but its acks.
    """
    bases: dict[int, set[str]] = {}
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        base = base_of(stem)
        if base is not None and suffix in SUFFIXES:
            bases.setdefault(base, set()).add(suffix)
        elif is_of_part or not belongs_to_queue(directory, name):
            problems.warn("foreign file", file=f"{directory}/{name}")
    return bases


def _read(path: str, base: int, suffixes: set[str], problems: Problems) -> tuple[Segment | None, int]:
    """A segment, or None if nothing in it can be read, and the last position that it may have used."""
    size = os.stat(path + ".seg").st_size if "seg" in suffixes else 0  # noqa: PTH116 - there are very many
    if size == 0:
        return None, _without_records(path, base, problems)
    segment = _segment(path, base, size, suffixes, problems)
    last = last_possible(base) if segment is None else segment.last
    if "acks" in suffixes:
        last = max(last, _marks(path, base, segment, problems))
    return segment, last


def _without_records(path: str, base: int, problems: Problems) -> int:
    """The last position that may have been in use, of a segment without a byte. A broker that is killed
    leaves empty files. It also leaves marks without records: those that were not written yet, and those that
    are deleted, since marks are deleted last. If there is an index, though, there were records.
    """
    fates, _ = _read_marks(path, base, problems)
    is_there = Path(path + ".seg").exists()
    if is_there:
        problems.warn("segment is empty", file=path + ".seg")
    if Path(path + ".idx").exists():
        if not is_there:
            problems.warn("segment is missing", file=path + ".seg")
        return last_possible(base)
    if fates.leave_undone():
        problems.warn("marks of records that were never written", file=path + ".acks")
    remove_segment(path)
    return max(base, base + fates.places - 1)


def _segment(path: str, base: int, size: int, suffixes: set[str], problems: Problems) -> Segment | None:
    """A segment by its index, or else by its records; None if there is nothing that can be understood."""
    found = _index(path, base, size, problems) if "idx" in suffixes else None
    if found is not None:
        return _indexed(path, base, found)
    segment = _scanned(path, base, problems)
    if segment is not None and "idx" in suffixes:
        close(segment)  # an index, sound or not, is written when nothing follows
    return segment


def _index(path: str, base: int, size: int, problems: Problems) -> Scan | None:
    """What the index says, if it is sound, fits the segment, and has the sizes of bodies."""
    file = Path(path + ".idx")
    try:
        index = decode_index(file.read_bytes(), base)
    except (OSError, ValueError, UnknownVersion) as error:
        problems.warn("index is not sound", file=str(file), error=str(error))
        return None
    if index.end > size:
        problems.warn("segment is shorter than its index says", file=path + ".seg")
        return None
    dues = None if index.without_bodies else _dues(path, base, index, problems)
    return None if dues is None else index.scan(base, dues)


def _dues(path: str, base: int, index: Index, problems: Problems) -> bytes | None:
    if not index.dues:
        return b""
    file = Path(path + ".due")
    try:
        return decode_dues(file.read_bytes(), base, index)
    except (OSError, ValueError, UnknownVersion) as error:
        problems.warn("due file is not sound", file=str(file), error=str(error))
        return None


def _indexed(path: str, base: int, found: Scan) -> Segment:
    segment = Segment(path, base)
    segment.fill(found)
    segment.enter(Life.CLOSED)
    segment.enter(Life.COMPLETE)
    return segment


def _scanned(path: str, base: int, problems: Problems) -> Segment | None:
    segment = Segment(path, base)
    return segment if scanned(segment, problems) else None


def scanned(segment: Segment, problems: Problems) -> bool:
    """Fill a segment from its file, and set aside what is no record. False if the file cannot be used."""
    path, base = segment.path, segment.base
    data = read_whole(path + ".seg")
    try:
        segment.epoch = segment_epoch(data, base)
    except UnknownVersion as error:
        problems.warn("segment is of an unknown version", file=path + ".seg", error=str(error))
        problems.not_recovered(path)
        return False
    except ValueError as error:
        problems.warn("segment's header is not sound", file=path + ".seg", error=str(error))
    found = scan(data, base)
    for offset, size in found.bad:
        problems.not_recovered(path)
        problems.set_aside(path, offset, data[offset : offset + size], "bad record")
    segment.fill(found)
    if found.count == 0:
        if len(data) > HEADER_BYTES:
            problems.not_recovered(path)
        if not problems.set_aside(path, 0, data, "no record in segment"):
            return False
        Path(path + ".seg").unlink()
    elif found.end < len(data):
        if problems.set_aside(path, found.end, data[found.end :], "torn tail"):
            os.truncate(path + ".seg", found.end)
        else:
            close(segment)
    return True


def close(segment: Segment) -> None:
    """Nothing is appended to this segment, which may have been known already."""
    if not segment.is_closed():
        segment.enter(Life.CLOSED)


def _marks(path: str, base: int, segment: Segment | None, problems: Problems) -> int:
    """Apply the ack file to its segment, if there is one. The highest position in the file."""
    fates, size = _read_marks(path, base, problems)
    highest = base + fates.places - 1
    if segment is not None:
        if highest > segment.last:
            problems.warn("acks beyond the data", file=path + ".acks", last=segment.last, acked=highest)
        segment.recover_fates(fates)
        segment.marks_written = size
    return highest


def _read_marks(path: str, base: int, problems: Problems) -> tuple[Fates, int]:
    """What the sound marks come to, and the size of the file without a mark that is only partly there."""
    Path(path + ".acks.new").unlink(missing_ok=True)  # its writing did not finish
    file = Path(path + ".acks")
    if not file.exists():
        return Fates(base), 0
    try:
        fates, bad, size = read_fates(file, base)
    except (ValueError, UnknownVersion) as error:
        problems.warn("ack file is not sound", file=str(file), error=str(error))
        if problems.keep(Path(path + ".acks.torn"), file.read_bytes()):
            file.unlink()
        return Fates(base), 0
    if bad:
        problems.warn("bad marks in ack file", file=str(file), count=bad)
    return fates, size


def _assume_delivered(segment: Segment, problems: Problems) -> None:
    segment.assume_delivered()
    path = segment.path + ".acks"
    try:
        if segment.marks_written:
            os.truncate(path, segment.marks_written)  # to whole marks: that there were others was reported
        write_file(path, segment.marks_to_write(), append=bool(segment.marks_written))
    except OSError as error:  # then these marks are written with the next ones
        problems.warn("cannot write marks", file=path, error=str(error))
    else:
        segment.marks_are_written()


def _close_last(recovered: RecoveredLog, problems: Problems) -> None:
    """Close the last segment so far, and write its index if that is missing."""
    if not recovered.segments:
        return
    segment = recovered.segments[-1]
    close(segment)
    if segment.alive and segment.life is not Life.COMPLETE:
        segment.enter(Life.COMPLETE)
        found = Scan(segment.count, segment.last, segment.end, [], segment.entries, segment.dues)
        try:
            write_index(segment.path, segment.base, found)
        except OSError as error:
            problems.warn("cannot write index", file=segment.path + ".idx", error=str(error))
    segment.entries = b""  # kept for every segment, they would take much memory


def _remove_dead(recovered: RecoveredLog) -> None:
    for segment in recovered.segments:
        segment.entries = b""
        if segment.alive == 0:
            remove_segment(segment.path)
    recovered.segments = [segment for segment in recovered.segments if segment.alive]
