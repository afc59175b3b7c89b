"""The offsets of a stream that have a name: where a consumer, or a query, goes on. They are lines in the
stream's directory; the last one for a name holds, and null stands for none.

    queues/17/offsets    a3c1f0b2 {"name": "billing", "offset": 1041}

They are written when a turn ends, without a sync, as acks are: after a power cut some may be older than they
were, and something is read twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from warren.storage.checked_lines import Line, checked_line, line_content, scan_lines
from warren.storage.files import OpenFiles
from warren.storage.log_directory import OFFSETS, LogDirectory

SIZE_BYTES_MAX = 64 * 1024


class NamedOffsets:
    def __init__(self, directory: LogDirectory, files: OpenFiles, offsets: dict[str, int], size: int) -> None:
        self.directory = directory
        self.files = files
        self.offsets = offsets
        self.size = size
        self.size_max = SIZE_BYTES_MAX
        self.changed: set[str] = set()

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
        """Add what has changed; or write all anew, when most of the file is old."""
        if self.directory.deleted or not self.changed:
            return
        self.directory.make()
        if self.size > self.size_max:
            self._write_anew()
        else:
            data = b"".join(map(self._line, sorted(self.changed)))
            self.files.write(self.path, data, self.size)
            self.size += len(data)
        self.changed.clear()

    def _write_anew(self) -> None:
        data = b"".join(map(self._line, self.offsets))
        self.files.close(self.path)
        self.files.replace_whole(self.path, data)
        self.size = len(data)
        self.size_max = max(SIZE_BYTES_MAX, 4 * self.size)

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
