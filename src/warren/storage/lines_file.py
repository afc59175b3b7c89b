"""A file of lines that rounds of the group commit append to, and that is written anew when most lines are
dead.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from warren.storage.disk import RENAME, SYNC, SYNC_DIRECTORY, WRITE, Operation
from warren.storage.files import FILE_MODE, OpenFiles


class Lines(Protocol):
    """What such a file says."""

    @property
    def pending(self) -> list[bytes]:
        """Lines that are to be written."""

    @property
    def wants_compaction(self) -> bool:
        """Whether most lines of the file are dead."""

    def take_pending(self) -> bytes:
        """The lines that are to be written, which are taken."""

    def compacted(self) -> bytes:
        """The whole file anew, with what is pending."""


class LinesFile:
    """Says to the group commit what to write, and hears from it when that is safe."""

    def __init__(self, path: Path, files: OpenFiles, lines: Lines, *, sync: bool) -> None:
        self.path = path
        self.files = files
        self.lines = lines  # what the file says
        self.made = path.with_suffix(".new")  # where the file is written anew
        self.sync = sync
        self.size = 0  # how much of the file is safe
        self.writing = 0  # how many bytes the round in flight adds
        self.named = False  # whether the file's name is known to be on disk
        self.file = -1  # the open file
        self.next_file = -1  # the one that takes its place with the round in flight
        self.directory = -1  # the open directory that the file is in

    def open(self) -> None:
        self.directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    # --- what the group commit asks ---

    def has_news(self) -> bool:
        return bool(self.lines.pending)

    def operations(self) -> list[Operation]:
        if self.lines.wants_compaction:
            return self._written_anew()
        data = self.lines.take_pending()
        self.writing = len(data)
        return self._write(self.file, data, self.size, [] if self.named else self._sync_names())

    def _written_anew(self) -> list[Operation]:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.next_file = self.files.try_twice(lambda: os.open(self.made, flags, FILE_MODE))
        data = self.lines.compacted()  # only now: what is pending must not be lost if that fails
        self.writing = len(data)
        rename = Operation(RENAME, path=os.fsencode(self.made), target=os.fsencode(self.path))
        return self._write(self.next_file, data, 0, [rename, *self._sync_names()])

    def _sync_names(self) -> list[Operation]:
        return [Operation(SYNC_DIRECTORY, file=self.directory)] if self.sync else []

    def _write(self, file: int, data: bytes, offset: int, then: list[Operation]) -> list[Operation]:
        syncs = [Operation(SYNC, file=file)] if self.sync else []
        return [Operation(WRITE, file=file, data=data, offset=offset), *syncs, *then]

    def are_safe(self) -> None:
        if self.next_file >= 0:
            os.close(self.file)
            self.file, self.next_file = self.next_file, -1
            self.size = 0
        self.size += self.writing
        self.writing = 0
        self.named = True

    def close(self) -> None:
        for file in (self.file, self.next_file, self.directory):
            if file >= 0:
                os.close(file)
        self.file = self.next_file = self.directory = -1
