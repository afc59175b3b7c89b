"""Checking the files of one segment: each by itself, and against the others.

.seg     the header and every record
.idx     that it says what is in the segment
.due     the same, of what is due when
.acks    the header and every mark, and that they are of records that are there
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Self

from warren.storage.data_files import Kind, Problem, SegmentFiles
from warren.storage.format import HEADER_BYTES, Scan, encode_mark, marks, scan
from warren.storage.index import DUE_BYTES, ENTRY_BYTES, Index, last_of, without_bodies
from warren.storage.inspect import read_acks, read_dues, read_index, read_sound
from warren.storage.recovery import MARK_BYTES, leave_undone

SET_ASIDE = {"torn": "bytes", "acks.torn": "marks"}
CHECKED_SUFFIXES = ("seg", "idx", "due", "acks")
MARK = struct.Struct("<III")


class SegmentCheck:
    """What `run` found, which may be in a thread of its own. `last` is the position of the last record."""

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self.problems: list[Problem] = []
        self.exists = "seg" in files.sizes
        self.bytes = sum(files.sizes.get(suffix, 0) for suffix in CHECKED_SUFFIXES)
        self.records = 0
        self.last: int | None = None

    def run(self) -> Self:
        self._check_left()
        if self.exists:
            index = read_index(self.files, self.problems.append)
            self._check_records(index)
            self._check_marks(index)
        else:
            self._check_missing()
        return self

    def tell(self, kind: Kind, suffix: str, text: str, offset: int | None = None) -> None:
        self.problems.append(Problem(kind, self.files.name(suffix), text, offset))

    # --- files that are there, or not ---

    def _check_left(self) -> None:
        for suffix, what in SET_ASIDE.items():
            if suffix in self.files.sizes:
                self.tell(Kind.HARMLESS, suffix, f"{what} set aside by an earlier start")
        if "idx.new" in self.files.sizes and not self.files.live:
            self.tell(Kind.HARMLESS, "idx.new", "an index whose writing did not finish")

    def _check_missing(self) -> None:
        """A broker that is killed leaves marks alone: of records that were not written yet, or are deleted,
        since marks go last. With an index, there was more.
        """
        if self.files.live:
            return
        if "idx" in self.files.sizes:
            self.tell(Kind.DAMAGE, "seg", "segment is missing")
        elif "due" in self.files.sizes:
            self.tell(Kind.HARMLESS, "due", "of a segment that is gone")
        elif "acks" in self.files.sizes:
            self.tell(Kind.HARMLESS, "acks", "of a segment that is gone, or was never written")

    # --- records ---

    def _check_records(self, index: Index | None) -> None:
        if self.files.sizes["seg"] == 0:
            self._check_empty()
            return
        data = read_sound(self.files, self.problems.append)
        if data is None:
            return
        found = scan(data, self.files.base)
        self.records, self.last = found.count, found.last
        for offset, size in found.bad:
            self.tell(Kind.DAMAGE, "seg", f"bad record, {size} bytes", offset)
        self._check_end(found, len(data))
        if index is not None:
            self._check_index(index, found, len(data))

    def _check_empty(self) -> None:
        """As is a file that was made and not written before the broker was killed."""
        if not self.files.live:
            self.tell(Kind.HARMLESS if self.files.newest else Kind.DAMAGE, "seg", "segment is empty")

    def _check_end(self, found: Scan, size: int) -> None:
        rest = size - found.end
        if rest <= 0:
            return
        if self.files.live and "idx" not in self.files.sizes:
            self.tell(Kind.HARMLESS, "seg", f"{rest} bytes are being written", found.end)
        elif "idx" in self.files.sizes or not self.files.newest:
            self.tell(Kind.DAMAGE, "seg", f"bad record, {rest} bytes at the end", found.end)
        else:
            text = f"torn tail, {rest} bytes of a write that did not finish; the next start sets them aside"
            self.tell(Kind.HARMLESS, "seg", text, found.end)

    def _check_index(self, index: Index, found: Scan, size: int) -> None:
        """Apart from the bad records, which it may have, being older."""
        bad = [*found.bad, (found.end, size - found.end)]
        entries = without_bodies(found.entries) if index.without_bodies else found.entries
        if not _say_the_same(index.entries, entries, ENTRY_BYTES, bad):
            self.tell(Kind.DAMAGE, "idx", "index does not say what is in the segment")
        dues = None if index.without_bodies else read_dues(self.files, index, self.problems.append)
        if dues is not None and not _say_the_same(dues, found.dues, DUE_BYTES, bad):
            self.tell(Kind.DAMAGE, "due", "due file does not say what is in the segment")

    # --- marks ---

    def _check_marks(self, index: Index | None) -> None:
        data = read_acks(self.files, self.problems.append)
        found, bad = marks(data, self.files.base)
        if bad:
            self._check_bad_marks(data)
        if self.last is not None and not self.files.live:
            indexed = None if index is None else last_of(index.entries, self.files.base)
            self._check_last(found, max(self.last, indexed or 0))

    def _check_last(self, found: list[tuple[int, int, int]], last: int) -> None:
        """What is delivered and acked may be so before it is written, if the broker is killed in between."""
        base = self.files.base
        highest = max((base + first + count - 1 for first, count, _ in found), default=0)
        if highest > last:
            is_lost = not self.files.newest and leave_undone(found, last + 1 - base)
            text = f"marks up to position {highest}, but the last record is {last}"
            self.tell(Kind.DAMAGE if is_lost else Kind.HARMLESS, "acks", text)

    def _check_bad_marks(self, data: bytes) -> None:
        """A stretch of bad marks at the end is of a write that did not finish."""
        for offset, end in _bad_marks(data, self.files.base):
            if end < len(data):
                self.tell(Kind.DAMAGE, "acks", f"bad marks, {end - offset} bytes", offset)
            else:
                text = f"torn tail, {end - offset} bytes; what they were about is delivered again"
                self.tell(Kind.HARMLESS, "acks", text, offset)


def _say_the_same(told: bytes, found: bytes, entry_bytes: int, bad: list[tuple[int, int]]) -> bool:
    """Entries, each with the offset of a record behind four other bytes."""
    if told == found:
        return True
    sound = [
        entry
        for entry in _entries(told, entry_bytes)
        if not any(at <= int.from_bytes(entry[4:8], "little") < at + length for at, length in bad)
    ]
    return sound == list(_entries(found, entry_bytes))


def _entries(data: bytes, entry_bytes: int) -> Iterator[bytes]:
    return (data[at : at + entry_bytes] for at in range(0, len(data), entry_bytes))


def _bad_marks(data: bytes, base: int) -> list[tuple[int, int]]:
    """Stretches, each from an offset to another."""
    stretches: list[tuple[int, int]] = []
    for at in range(HEADER_BYTES, len(data), MARK_BYTES):
        mark = data[at : at + MARK_BYTES]
        if len(mark) == MARK_BYTES and encode_mark(base, *MARK.unpack_from(mark)) == mark:
            continue
        end = at + len(mark)
        if stretches and stretches[-1][1] == at:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((at, end))
    return stretches
