"""The journal: where the rounds of the group commit become safe by one small write, however many queues they
are of.

A file that grows costs twice the sync of one whose bytes were there before, and many files cost many syncs.
So what a round writes into segments is written once more, as one record, into a file that is full of zeros
from the start; it is the record that is synced. The segments themselves are synced in the background, all at
once, when the file is full:

    journal/1   the round in flight is added to it
    journal/2   full: what it has is being synced where it belongs; then it is used again from its beginning

A start writes all that is in the journal into the segments, where most of it is already. Each byte of a
segment has only ever one value, so that to write it twice, or in any order, does no harm. In a cluster a path
may get another segment, which has another epoch; and what was cut off a segment must not come back
(`shards_file.py`). A segment that was cut is not journaled any more. Only segments whose
names are safe are journaled: one that is not there any more has been deleted, and is left alone.

A failed sync may lose whatever was written before, and the next one succeeds all the same. So after any
failure, all that is in the journal is written again before the background sync that is to make it safe.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from warren.storage.directory import DirectoryError
from warren.storage.disk import WRITE_SAFELY, Buffer, Operation
from warren.storage.files import OpenFiles, read_whole
from warren.storage.format import HEADER_BYTES, JOURNAL_MAGIC, NAME_DIGITS, UnknownVersion, segment_epoch
from warren.storage.journal_record import put_head, read_record
from warren.storage.segment import Segment

DIRECTORY = "journal"
NAMES = ("1", "2")
ROUND_BYTES_MAX = 1024 * 1024  # beyond, to write all of it twice costs more than syncs
SEGMENT_BYTES_MAX = 128 * 1024  # the same, of a segment in the mean
# In a cluster all members are waited for, so a late sync of many files costs more than writing twice.
CLUSTER_ROUND_BYTES_MAX = 4 * ROUND_BYTES_MAX
FREE_SHARE_MAX = 16  # a journal takes no more than one of so many parts of what is free on the disk
SALT_BITS = 64
MAGIC = JOURNAL_MAGIC.to_bytes(4, "little")  # of which the last byte is the version
COPIED = re.compile(rf"(shards/\d+/\d+(?:/[a-z0-9-]+)?/(\d{{{NAME_DIGITS}}}))@(\d+)", re.ASCII)
SEGMENT = re.compile(rf"queues/\d+(?:/[a-z0-9-]+)?/\d{{{NAME_DIGITS}}}", re.ASCII)


class BackgroundWork(Protocol):
    def do(self, trouble: str, path: str, work: Callable[[], None]) -> None: ...


class Journal:
    """The two files of the journal, of which one is in use."""

    def __init__(
        self, root: Path, files: OpenFiles, housekeeping: BackgroundWork, file_bytes: int, *, sync: bool
    ) -> None:
        self.root = str(root)  # the data directory
        self.path = str(root / DIRECTORY)
        self.files = files
        self.housekeeping = housekeeping
        self.file_bytes = file_bytes  # the size of each file
        self.is_wanted = sync  # without syncs there is no use for it
        self.is_asked_for = False  # housekeeping was told to make the files
        self.is_made = False  # they are there
        self.handles: list[int] = []  # of both files
        self.round_bytes_max = ROUND_BYTES_MAX  # of a round that is journaled
        self.root_handle = -1  # of the data directory, for the sync of its file system
        self.free = [True, True]  # of each file: all it has is safe in the segments, so it can be used again
        self.suspect = [False, False]  # of each file: what it has must be written to the segments once more
        self.used = 0  # the file in use
        self.end = 0  # where the next record goes in it
        self.writing = 0  # the size of the record in flight
        self.salt = secrets.randbits(SALT_BITS)  # of all records in the file in use
        self.head = Buffer()  # of the record in flight
        self.cuts: dict[str, int] = {}  # where segments end now that were cut, by path and epoch

    # --- a round ---

    def record(self, segments: list[Segment]) -> Operation | None:
        """The operation that makes a round safe which writes to these segments; their names must be safe
        already. None if the round has to be made safe in another way: it is large, or the background sync is
        not over.
        """
        if not segments:
            return None
        if not self.is_made:
            self._ask_for_files()
            return None
        size = sum(len(segment.flying or ()) for segment in segments)
        if size > min(self.round_bytes_max, SEGMENT_BYTES_MAX * len(segments)):
            return None
        size = put_head(self.head, self.salt, segments, len(self.root) + 1)
        if self.end + size > self.file_bytes:
            if size > self.file_bytes or not self._begin_other_file():
                return None
            put_head(self.head, self.salt, segments, len(self.root) + 1)
        self.writing = size
        self.free[self.used] = False
        buffers = [segment.flying for segment in segments if segment.flying is not None]
        handle = self.handles[self.used]
        return Operation(WRITE_SAFELY, file=handle, data=self.head, offset=self.end, parts=buffers)

    def is_written(self) -> None:
        """The round is over."""
        self.end += self.writing

    def _begin_other_file(self) -> bool:
        """The one in use is full. Whether the other one is free."""
        full, other = self.used, 1 - self.used
        if not self.free[other]:
            return False
        self.used, self.end, self.salt = other, 0, secrets.randbits(SALT_BITS)
        self.housekeeping.do("cannot sync segments", self.path, lambda: self._sync_segments(full))
        return True

    # --- in the background ---

    def _ask_for_files(self) -> None:
        if self.is_wanted and not self.is_asked_for:
            self.is_asked_for = True
            self.housekeeping.do("cannot make the journal", self.path, self._make)

    def _make(self) -> None:
        status = os.statvfs(self.root)
        if status.f_bavail * status.f_frsize < FREE_SHARE_MAX * len(NAMES) * self.file_bytes:
            raise OSError(errno.ENOSPC, "the disk has too little room for it")
        self.files.make_directory(self.path)
        for name in NAMES:
            self._make_file(f"{self.path}/{name}")
        self.files.sync(self.path)
        self.files.sync(self.root)
        self.root_handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.is_made = True

    def _make_file(self, path: str) -> None:
        if len(self.handles) == len(NAMES):
            return  # at an earlier attempt
        self.files.write_anew(path, bytes(self.file_bytes))
        self.files.sync(path)
        self.handles.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def _sync_segments(self, number: int) -> None:
        """Sync the segments that a file is about, so that the file is free. If a round fails meanwhile, this
        sync does not count: some of the bytes may be lost.
        """
        while True:
            again, self.suspect[number] = self.suspect[number], False
            try:
                if again:
                    self._write_segments(read_whole(f"{self.path}/{NAMES[number]}"))
                self.files.sync_file_system(self.root_handle)
            except OSError:
                self.suspect = [True, True]
                raise
            if not self.suspect[number]:
                self.free[number] = True
                return

    def distrust(self) -> None:
        """A round has failed."""
        self.suspect = [True, True]

    # --- after a crash, and at the end ---

    def recover(self, warn: Callable[..., Any]) -> int:
        """Write into the segments what the journal has, and return the number of rounds. Without this,
        confirmed messages might be lost for good, so a broker whose disk has no room for it does not start.
        """
        if not Path(self.path).exists():
            return 0
        rounds = sum(self._recover_file(str(path), warn) for path in sorted(Path(self.path).iterdir()))
        if rounds:
            self.files.sync_all(self.root)
        self._remove()
        return rounds

    def _recover_file(self, path: str, warn: Callable[..., Any]) -> int:
        data = read_whole(path)
        if data.startswith(MAGIC[:-1]) and not data.startswith(MAGIC):
            raise DirectoryError(f"{path} is of an unknown version")
        for at in bad_records_in(data):
            warn("bad record in the journal", file=path, offset=at)
        try:
            return self._write_segments(data)
        except OSError as error:
            raise DirectoryError(f"cannot write into segments what {path} has: {error}") from error

    def _write_segments(self, data: bytes) -> int:
        pieces: dict[str, list[tuple[int, bytes]]] = {}
        rounds = 0
        for _, parts in records_in(data):
            rounds += parts is not None
            for name, offset, piece in parts or ():
                pieces.setdefault(name, []).append((offset, piece))
        for name, some in pieces.items():
            if SEGMENT.fullmatch(name):
                self.files.write_pieces(f"{self.root}/{name}.seg", some)
            elif found := COPIED.fullmatch(name):
                path, base, epoch = found.groups()
                if _has_epoch(f"{self.root}/{path}.seg", int(base), int(epoch)):
                    self.files.write_pieces(f"{self.root}/{path}.seg", self._without_cut(name, some))
        return rounds

    def _without_cut(self, name: str, pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The pieces of a segment, as far as they were not taken away since."""
        end = self.cuts.get(name)
        if end is None:
            return pieces
        return [(offset, data[: end - offset]) for offset, data in pieces if offset < end]

    def _remove(self) -> None:
        for path in Path(self.path).iterdir():
            path.unlink()
        if self.is_wanted:
            self.files.sync(self.path)

    def close(self, *, well: bool) -> None:
        """If it ends well, all is synced, and there is nothing that the next start needs."""
        for handle in [*self.handles, self.root_handle]:
            if handle >= 0:
                os.close(handle)
        self.handles, self.root_handle, self.is_made = [], -1, False
        if well and Path(self.path).exists():
            self.files.sync_all(self.root)
            self._remove()


def _has_epoch(path: str, base: int, epoch: int) -> bool:
    """Whether the segment that has this path now is the one with this epoch."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - paths are text here
            return segment_epoch(file.read(HEADER_BYTES), base) == epoch
    except (FileNotFoundError, ValueError, UnknownVersion):
        return False


def records_in(data: bytes) -> Iterator[tuple[int, list[tuple[str, int, bytes]] | None]]:
    """Where each record begins, and its parts; None in place of the parts of a damaged record."""
    at, salt = 0, None
    while (found := read_record(data, at, salt)) is not None:
        salt, size, parts = found
        yield at, parts
        at += size


def bad_records_in(data: bytes) -> list[int]:
    """Where damaged records begin. Damage at the end does not count: that write did not finish, and nobody
    was told that it had.
    """
    found = list(records_in(data))
    while found and found[-1][1] is None:
        found.pop()
    return [at for at, parts in found if parts is None]
