"""The offsets of a stream that have a name: where a consumer, or a query, goes on. They are lines in the
stream's directory; the last one for a name holds, and null stands for none.

    queues/17/offsets    a3c1f0b2 {"name": "billing", "offset": 1041}

They are written when a turn ends, without a sync, as acks are: after a power cut some may be older than they
were, and something is read twice. But none is lost that was there before: a file that replaces another is
synced first, in the background, where that keeps nobody waiting.
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
    """The file anew: `data` is written and synced in the background, and `since` is what was added to the old
    one meanwhile. `is_ready`: it can take the old one's place; `is_over` without that: it failed.
    """

    data: bytes
    since: bytearray = field(default_factory=bytearray)
    is_ready: bool = False
    is_over: bool = False


class NamedOffsets:
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
        self.offsets = offsets
        self.size = size
        self.sync = sync
        self.size_max = SIZE_BYTES_MAX
        self.changed: set[str] = set()
        self.rewrite: Rewrite | None = None

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
        """Add what has changed. When most of the file is old, all of it is written anew in the background."""
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
        """In the background. If it fails it may be tried again, but by then nobody waits for it."""
        if self.directory.deleted or rewrite.is_over:
            return
        try:
            self.files.prepare(self.path, rewrite.data, sync=self.sync)
            rewrite.is_ready = True
        finally:
            rewrite.is_over = True

    def _end_rewrite(self, rewrite: Rewrite) -> None:
        """The new file gets what was added meanwhile, and the old one's name."""
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
    """What the file says, and how much of it is sound to write on behind."""
    return offsets_in(scan_lines(file.read_bytes())) if file.exists() else ({}, 0)


def offsets_in(lines: Iterable[Line]) -> tuple[dict[str, int], int]:
    """Those that hold, and where the last sound line ends."""
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
