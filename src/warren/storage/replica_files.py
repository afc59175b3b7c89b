"""The files of a copied segment: how they are cut, set aside and replaced, in a thread and step by step.

Each function leaves the files, after whichever of its steps the process ends or the power is cut, in a state
that says the truth of itself: it may be called again then, or the leader asks for it again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, Self

from warren.storage.ack_file import read_fates
from warren.storage.diverged import Diverged
from warren.storage.fates import Fates
from warren.storage.files import OpenFiles, read_whole, remove_segment
from warren.storage.format import (
    ACKS_MAGIC,
    HEADER_BYTES,
    MARK,
    UnknownVersion,
    encode_header,
    encode_mark,
    scan,
    walk_records,
)
from warren.storage.log_directory import LogDirectory
from warren.storage.replication import LogId, SegmentState
from warren.storage.segment import Segment
from warren.storage.segment_life import OnDisk
from warren.storage.stream_segment import StreamSegment


class Owner(Protocol):
    """The log of a copied segment."""

    removing: dict[int, CopiedSegment]

    def write_index(self, segment: CopiedSegment) -> None: ...


class CopiedSegment(Segment):
    """A segment of which another node has the original."""

    def __init__(self, path: str, base: int, directory: LogDirectory, epoch: int, log: Owner) -> None:
        super().__init__(path, base, directory, epoch=epoch)
        self.log = log
        self.is_retired = False  # another object stands for it now

    def found(self, *, length: int, last: int, count: int, marks_written: int) -> Self:
        """Its files are there, with so many bytes."""
        self.enter(OnDisk.MADE)
        self.end = self.written = length
        self.last, self.count, self.marks_written = last, count, marks_written
        return self

    def again(
        self,
        log: Owner,
        *,
        length: int | None = None,
        last: int | None = None,
        count: int | None = None,
        marks_written: int | None = None,
    ) -> CopiedSegment:
        """An open segment in place of this one, of which nothing is on its way to disk."""
        directory = self.directory
        assert directory is not None, "it is a log's"
        new = CopiedSegment(self.path, self.base, directory, self.epoch, log).found(
            length=self.end if length is None else length,
            last=self.last if last is None else last,
            count=self.count if count is None else count,
            marks_written=self.marks_written if marks_written is None else marks_written,
        )
        new.unjournaled = self.unjournaled
        return new

    def write_index(self) -> None:
        self.log.write_index(self)

    def write_files(self, *, is_stream: bool) -> None:
        """Write the index and the due file, or the chunks file."""
        if not is_stream:
            super().write_index()
            return
        data = read_whole(self.path + ".seg")
        found = scan(data, self.base)
        segment = StreamSegment(self.path, self.base)
        segment.end, segment.count = found.end, found.count
        segment.last = self.base - 1 if found.last is None else found.last
        segment.note_all(data)
        segment.write_index()

    def remove_files(self) -> None:
        super().remove_files()
        if self.log.removing.get(self.base) is self:
            del self.log.removing[self.base]


def remove_leftovers(path: str, files: OpenFiles, *, sync: bool) -> None:
    """Delete all files of an earlier segment, so that another one can begin at this path."""
    remove_segment(path)
    if sync and Path(path).parent.exists():
        files.sync(str(Path(path).parent))


def compare_marks(path: str, base: int, marks: bytes) -> tuple[int, bytes] | None:
    """How an ack file comes to say what these marks say, and no more: its size, and what to add to it. None
    if it says something that they do not, so that it has to be replaced. Most often it does not: and to
    replace very many files, each of them synced, would take long.
    """
    known = _marks(path, base)
    if known is None:
        return None
    fates, size = known
    if fates.encode() == marks:
        return size, b""
    fates.add(marks)
    return (size, marks) if fates.encode() == marks else None


def replace_marks(path: str, base: int, marks: bytes, files: OpenFiles, *, sync: bool) -> int:
    """Put these marks in place of those that the ack file has. The size of the file."""
    new = path + ".acks.new"
    files.write_anew(new, encode_header(ACKS_MAGIC, base) + marks)
    if sync:
        files.sync(new)
    Path(new).rename(path + ".acks")
    if sync:
        files.sync(str(Path(path).parent))
    return HEADER_BYTES + len(marks)


def _marks(path: str, base: int) -> tuple[Fates, int] | None:
    """What the sound marks of an ack file come to, and its size; None if it is not sound. A file that is not
    there says nothing, and so does one whose first mark was not written.
    """
    try:
        fates, bad, size = read_fates(path + ".acks", base)
    except FileNotFoundError:
        return Fates(base), 0
    except (ValueError, UnknownVersion):
        return None
    return None if bad else (fates, size)


def set_aside(
    path: str, shard: int, log: LogId, state: SegmentState, diverged: Diverged, files: OpenFiles
) -> None:
    """Keep the records of a segment elsewhere, and delete its files."""
    if Path(path + ".seg").exists():
        data = read_whole(path + ".seg")[HEADER_BYTES:]
        diverged.keep(shard, log, state.base, state.epoch, HEADER_BYTES, data)
    remove_leftovers(path, files, sync=diverged.sync)


def cut_segment(
    segment: Segment, shard: int, log: LogId, length: int, diverged: Diverged, files: OpenFiles
) -> tuple[int, int, int] | None:
    """Cut records behind a length, and their marks. The position of the last record that is left, the number
    of records, and the size of the ack file; None if no record ends at this length: then nothing is done.
    """
    path, base = segment.path, segment.base
    data = read_whole(path + ".seg")
    end, count, last, _ = walk_records(data[:length], HEADER_BYTES, base - 1)
    if end != length:
        return None
    diverged.keep(shard, log, base, segment.epoch, length, data[length:])
    marks = _marks_up_to(path, base, last - base + 1)
    same = compare_marks(path, base, marks)
    marks_written = replace_marks(path, base, marks, files, sync=diverged.sync) if same is None else same[0]
    for suffix in (".idx", ".due", ".chunks"):
        Path(path + suffix).unlink(missing_ok=True)
    if diverged.sync:
        files.sync(str(Path(path).parent))
    os.truncate(path + ".seg", length)
    if diverged.sync:
        files.sync(path + ".seg")
    return last, count, marks_written


def _marks_up_to(path: str, base: int, places: int) -> bytes:
    """The marks of the first positions, as few as say the same. Those of a file that is not sound are lost,
    so that messages are delivered again.
    """
    known = _marks(path, base)
    fates = Fates(base) if known is None else known[0]
    return b"".join(
        encode_mark(base, first, min(count, places - first), deliveries)
        for first, count, deliveries, _ in MARK.iter_unpack(fates.encode())
        if first < places
    )
