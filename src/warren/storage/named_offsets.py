"""Named offsets of a stream: where a consumer, or a query, goes on. They are lines of a file in the stream's
directory; the last line for a name holds, and null stands for no offset.

    queues/17/offsets    a3c1f0b2 {"name": "billing", "offset": 1041}

They are written when a turn ends, without a sync, as acks are: after a power cut some may be older than they
were, and some messages are read twice. But no name is lost: when the file is written anew, the new one is
synced before it replaces the old one, in the background.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from warren.storage.checked_lines import Line, checked_line, line_content, scan_lines
from warren.storage.files import NEW, OpenFiles
from warren.storage.housekeeping import Housekeeping
from warren.storage.log_directory import OFFSETS, LogDirectory

SIZE_BYTES_MAX = 64 * 1024


@dataclass
class Rewrite:
    """The writing anew of a file."""

    data: bytes  # what the new file begins with: written and synced in the background
    since: bytearray = field(default_factory=bytearray)  # what was added to the old file meanwhile
    is_ready: bool = False  # the new file can take the old one's place
    is_over: bool = False  # the background is done with it; if it is not ready, it failed


class NamedOffsets:
    """The named offsets of one stream."""

    def __init__(
        self,
        directory: LogDirectory,
        files: OpenFiles,
        housekeeping: Housekeeping,
        offsets: dict[str, int],
        size: int,
        *,
        sync: bool,
    ) -> None:
        self.directory = directory
        self.files = files
        self.housekeeping = housekeeping
        self.offsets = offsets  # by name
        self.size = size  # of the file
        self.sync = sync
        self.size_max = SIZE_BYTES_MAX  # a larger file is written anew
        self.changed: set[str] = set()  # names whose lines are to be written
        self.rewrite: Rewrite | None = None  # while the file is written anew

    @property
    def path(self) -> str:
        return f"{self.directory.path}/{OFFSETS}"

    def note(self, name: str, offset: int | None) -> None:
        if offset is None:
            self.offsets.pop(name, None)
        else:
            self.offsets[name] = offset
        self.changed.add(name)

    def write(self) -> None:
        """Add a line for each name that has changed. When most lines are old, write the file anew."""
        if self.directory.deleted or not self.changed:
            return
        self.directory.make()
        if self.rewrite is not None and self.rewrite.is_over:
            self._end_rewrite(self.rewrite)
        data = b"".join(map(self._line, sorted(self.changed)))
        self.files.write(self.path, data, self.size)
        self.size += len(data)
        self.changed.clear()
        if self.rewrite is not None:
            self.rewrite.since += data
        elif self.size > self.size_max:
            self.rewrite = self._begin_rewrite()

    def _begin_rewrite(self) -> Rewrite:
        rewrite = Rewrite(b"".join(map(self._line, self.offsets)))
        self.housekeeping.do("cannot write offsets anew", self.path, lambda: self._prepare(rewrite))
        return rewrite

    def _prepare(self, rewrite: Rewrite) -> None:
        """In the background: write the new file. If that fails it is tried again, but then to no purpose."""
        if self.directory.deleted or rewrite.is_over:
            return
        try:
            self.files.prepare(self.path, rewrite.data, sync=self.sync)
            rewrite.is_ready = True
        finally:
            rewrite.is_over = True

    def _end_rewrite(self, rewrite: Rewrite) -> None:
        """Add what was added to the old file meanwhile, and rename the new file to the old one."""
        if rewrite.is_ready:
            self.files.write(self.path + NEW, bytes(rewrite.since), len(rewrite.data))
            self.files.put_in_place(self.path)
            self.size = len(rewrite.data) + len(rewrite.since)
            self.size_max = max(SIZE_BYTES_MAX, 4 * self.size)
            if self.sync:
                self.housekeeping.do("cannot sync directory", self.directory.path, self._sync_directory)
        else:
            self.size_max = 2 * self.size
        self.rewrite = None

    def _sync_directory(self) -> None:
        if not self.directory.deleted:
            self.files.sync(self.directory.path)

    def _line(self, name: str) -> bytes:
        return checked_line({"name": name, "offset": self.offsets.get(name)})


def read_offsets(file: Path) -> tuple[dict[str, int], int]:
    """The offsets in a file, and its size up to the last sound line, behind which it is written on."""
    return offsets_in(scan_lines(file.read_bytes())) if file.exists() else ({}, 0)


def offsets_in(lines: Iterable[Line]) -> tuple[dict[str, int], int]:
    """The offsets that hold, and where the last sound line ends."""
    offsets: dict[str, int] = {}
    size = 0
    for line in lines:
        if not line.intact:
            continue
        content = line_content(line.raw)
        name, offset = content.get("name"), content.get("offset")
        if isinstance(name, str) and isinstance(offset, int):
            offsets[name] = offset
        elif isinstance(name, str):
            offsets.pop(name, None)
        size = line.offset + len(line.raw) + 1
    return offsets, size
