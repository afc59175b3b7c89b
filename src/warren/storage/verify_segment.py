"""Checking the files of one segment: each by itself, and against the others.

.seg     the header and every record
.idx     that it says what is in the segment
.due     the same, of what is due when
.acks    the header and every mark, and that they are of records that are there
.chunks  of a stream, that it says what is in the segment
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from warren.storage.ack_file import pieces
from warren.storage.data_files import FileKind, FileProblem, SegmentFiles
from warren.storage.fates import Fates
from warren.storage.format import (
    DUE_ENTRY_BYTES,
    HEADER_BYTES,
    INDEX_ENTRY_BYTES,
    MARK,
    MARK_BYTES,
    OFFSET_IN_ENTRY_AT,
    Scan,
    encode_mark,
    records,
    scan,
    uint32_at,
)
from warren.storage.index import Index, last_of, without_bodies
from warren.storage.inspect import read_dues, read_index, read_marks, read_sound
from warren.storage.inspect_stream import ChunksFile, read_chunks
from warren.storage.stream_segment import StreamSegment

SET_ASIDE = {"torn": "bytes", "acks.torn": "marks"}
CHECKED_SUFFIXES = ("seg", "idx", "due", "acks", "chunks")
UNFINISHED = {"idx.new": "an index", "acks.new": "an ack file", "chunks.new": "a chunks file"}
NOT_OF_STREAMS = ("idx", "due", "acks")


class SegmentCheck:
    """The check of one segment. `run` may be called in any thread."""

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self.problems: list[FileProblem] = []  # what was found
        self.exists = "seg" in files.sizes
        self.bytes = sum(files.sizes.get(suffix, 0) for suffix in CHECKED_SUFFIXES)  # how many were checked
        self.records = 0  # how many sound records there are
        self.last: int | None = None  # the position of the last one

    def run(self) -> Self:
        self._check_left()
        if self.exists and self.files.is_of_stream:
            self._check_stream()
        elif self.exists:
            index = read_index(self.files, self.problems.append)
            self._check_records(index)
            self._check_marks(index)
        else:
            self._check_missing()
        return self

    def tell(self, kind: FileKind, suffix: str, text: str, offset: int | None = None) -> None:
        self.problems.append(FileProblem(kind, self.files.name(suffix), text, offset))

    # --- files that are there, or not ---

    def _check_left(self) -> None:
        for suffix, what in SET_ASIDE.items():
            if suffix in self.files.sizes:
                self.tell(FileKind.HARMLESS, suffix, f"{what} set aside by an earlier start")
        for suffix, what in UNFINISHED.items():
            if suffix in self.files.sizes and not self.files.live:
                self.tell(FileKind.HARMLESS, suffix, f"{what} whose writing did not finish")
        for suffix in NOT_OF_STREAMS if self.files.is_of_stream else ("chunks",):
            if suffix in self.files.sizes:
                self.tell(FileKind.DAMAGE, suffix, "foreign file: not of a queue of this type")

    def _check_missing(self) -> None:
        """A broker that is killed leaves marks alone: of records that were not written yet, or are deleted,
        since marks go last. With an index, there was more. Of a stream, the oldest go.
        """
        if self.files.live:
            return
        if self.files.is_of_stream and self.files.before_all:
            self.tell(FileKind.HARMLESS, "chunks", "of a segment that is gone")
        elif self.files.closed:
            self.tell(FileKind.DAMAGE, "seg", "segment is missing")
        elif "due" in self.files.sizes:
            self.tell(FileKind.HARMLESS, "due", "of a segment that is gone")
        elif "acks" in self.files.sizes:
            self.tell(FileKind.HARMLESS, "acks", "of a segment that is gone, or was never written")

    # --- records ---

    def _check_records(self, index: Index | None) -> None:
        data = self._read_records()
        if data is not None:
            found = self._scan(data)
            if index is not None:
                self._check_index(index, found, len(data))

    def _read_records(self) -> bytes | None:
        if self.files.sizes["seg"] == 0:
            self._check_empty()
            return None
        return read_sound(self.files, self.problems.append)

    def _scan(self, data: bytes) -> Scan:
        found = scan(data, self.files.base)
        self.records, self.last = found.count, found.last
        for offset, size in found.bad:
            self.tell(FileKind.DAMAGE, "seg", f"bad record, {size} bytes", offset)
        self._check_end(found, len(data))
        return found

    def _check_empty(self) -> None:
        """As is a file that was made and not written before the broker was killed."""
        if not self.files.live:
            self.tell(FileKind.HARMLESS if self.files.newest else FileKind.DAMAGE, "seg", "segment is empty")

    def _check_end(self, found: Scan, size: int) -> None:
        rest = size - found.end
        if rest <= 0:
            return
        if self.files.live and not self.files.closed:
            self.tell(FileKind.HARMLESS, "seg", f"{rest} bytes are being written", found.end)
        elif self.files.closed or not self.files.newest:
            self.tell(FileKind.DAMAGE, "seg", f"bad record, {rest} bytes at the end", found.end)
        else:
            text = f"torn tail, {rest} bytes of a write that did not finish; the next start sets them aside"
            self.tell(FileKind.HARMLESS, "seg", text, found.end)

    def _check_index(self, index: Index, found: Scan, size: int) -> None:
        """Apart from the bad records, which it may have, being older."""
        bad = [*found.bad, (found.end, size - found.end)]
        entries = without_bodies(found.entries) if index.without_bodies else found.entries
        if not _say_the_same(index.entries, entries, INDEX_ENTRY_BYTES, bad):
            self.tell(FileKind.DAMAGE, "idx", "index does not say what is in the segment")
        dues = None if index.without_bodies else read_dues(self.files, index, self.problems.append)
        if dues is not None and not _say_the_same(dues, found.dues, DUE_ENTRY_BYTES, bad):
            self.tell(FileKind.DAMAGE, "due", "due file does not say what is in the segment")

    # --- streams ---

    def _check_stream(self) -> None:
        told = read_chunks(self.files, self.problems.append)
        data = self._read_records()
        if data is None:
            return
        found = self._scan(data)
        self._check_times(data)
        if told is not None and not found.bad and found.end == len(data):
            self._check_chunks(told, found, data)

    def _check_chunks(self, told: ChunksFile, found: Scan, data: bytes) -> None:
        """Of a sound segment: of a bad record nobody knows what was noted of it."""
        anew = StreamSegment(self.files.path, self.files.base)
        anew.end = found.end
        anew.note_all(data)
        assert anew.chunks is not None, "they were just made"
        is_right = (told.count, told.end, told.last) == (found.count, found.end, found.last)
        if not is_right or (told.last_ms, told.chunks.tobytes()) != (anew.last_ms, anew.chunks.tobytes()):
            self.tell(FileKind.DAMAGE, "chunks", "chunks file does not say what is in the segment")

    def _check_times(self, data: bytes) -> None:
        newest_ms = 0
        for record in records(data):
            if record.time_ms < newest_ms:
                self.tell(FileKind.DAMAGE, "seg", "record is older than the one before", record.offset)
            newest_ms = max(newest_ms, record.time_ms)

    # --- marks ---

    def _check_marks(self, index: Index | None) -> None:
        fates, bad = read_marks(self.files, self.problems.append)
        if bad:
            self._check_bad_marks()
        if self.last is not None and not self.files.live:
            indexed = None if index is None else last_of(index.entries, self.files.base)
            self._check_last(fates, max(self.last, indexed or 0))

    def _check_last(self, fates: Fates, last: int) -> None:
        """What is delivered and acked may be so before it is written, if the broker is killed in between."""
        base = self.files.base
        highest = base + fates.places - 1
        if highest > last:
            is_lost = not self.files.newest and fates.leave_undone(last + 1 - base)
            text = f"marks up to position {highest}, but the last record is {last}"
            self.tell(FileKind.DAMAGE if is_lost else FileKind.HARMLESS, "acks", text)

    def _check_bad_marks(self) -> None:
        """A stretch of bad marks at the end is of a write that did not finish."""
        try:
            stretches, size = _bad_marks(self.files.name("acks"), self.files.base)
        except OSError as error:
            self.files.tell_unreadable("acks", error, self.problems.append)
            return
        for offset, end in stretches:
            if end < size:
                self.tell(FileKind.DAMAGE, "acks", f"bad marks, {end - offset} bytes", offset)
            else:
                text = f"torn tail, {end - offset} bytes; what they were about is delivered again"
                self.tell(FileKind.HARMLESS, "acks", text, offset)


def _say_the_same(told: bytes, found: bytes, entry_bytes: int, bad: list[tuple[int, int]]) -> bool:
    """Whether two lists of entries are the same, apart from records in the bad stretches."""
    if told == found:
        return True
    sound = [
        entry
        for entry in _entries(told, entry_bytes)
        if not any(at <= uint32_at(entry, OFFSET_IN_ENTRY_AT) < at + length for at, length in bad)
    ]
    return sound == list(_entries(found, entry_bytes))


def _entries(data: bytes, entry_bytes: int) -> Iterator[bytes]:
    return (data[at : at + entry_bytes] for at in range(0, len(data), entry_bytes))


def _bad_marks(name: str, base: int) -> tuple[list[tuple[int, int]], int]:
    """Stretches in an ack file, each from an offset to another, and the size of the file."""
    stretches: list[tuple[int, int]] = []
    offset = HEADER_BYTES
    with open(name, "rb") as file:  # noqa: PTH123 - paths are text here
        for piece in pieces(file.fileno(), HEADER_BYTES):
            for at in range(0, len(piece), MARK_BYTES):
                mark = piece[at : at + MARK_BYTES]
                if len(mark) < MARK_BYTES or encode_mark(base, *MARK.unpack(mark)[:-1]) != mark:
                    _note_bad(stretches, offset + at, offset + at + len(mark))
            offset += len(piece)
    return stretches, offset


def _note_bad(stretches: list[tuple[int, int]], start: int, end: int) -> None:
    if stretches and stretches[-1][1] == start:
        stretches[-1] = (stretches[-1][0], end)
    else:
        stretches.append((start, end))
