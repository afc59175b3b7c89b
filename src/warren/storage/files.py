"""The files that are open: as many as are in use, and no more than a limit.

All that a running broker does to files goes through here, through the disk's thread or through housekeeping,
so that a test can put a disk that fails in between.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from pathlib import Path

from warren.storage.disk import sync_file_system

FILE_MODE = 0o640
READ_BYTES_MAX = 1 << 30


def names_in(directory: str) -> list[str]:
    """Of all that is there. A start looks into very many directories, and names are all that it needs."""
    return os.listdir(directory)  # noqa: PTH208 - several times as fast


def read_whole(path: str) -> bytes:
    """A file, with as few system calls as that takes: a start reads very many small ones."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        data = os.read(file, size + 1)
        if len(data) == size:
            return data
        pieces = [data]  # a large one, which the system hands out in pieces, or one that grows
        while pieces[-1]:
            pieces.append(os.read(file, READ_BYTES_MAX))
        return b"".join(pieces)
    finally:
        os.close(file)


class OpenFiles:
    """Opened when asked for, and closed again when the limit is reached, those not used for longest first.
    What is `pinned`, because the disk is writing it, stays.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.files: OrderedDict[str, int] = OrderedDict()
        self.pinned: set[str] = set()

    def open(self, path: str) -> int:
        """An existing file."""
        return self._get(path, os.O_RDWR)

    def create(self, path: str) -> int:
        """A file that may not exist yet."""
        return self._get(path, os.O_RDWR | os.O_CREAT)

    def _get(self, path: str, flags: int) -> int:
        file = self.files.get(path)
        if file is not None:
            self.files.move_to_end(path)
            return file
        if len(self.files) >= self.limit:
            self._close_some()
        file = self._open(path, flags | os.O_CLOEXEC)
        self.files[path] = file
        return file

    def _open(self, path: str, flags: int) -> int:
        """The process may have fewer files to open than the limit says, as when clients have taken them."""
        try:
            return os.open(path, flags, FILE_MODE)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
        self._close_some()
        return os.open(path, flags, FILE_MODE)

    def _close_some(self) -> None:
        for path in [path for path in self.files if path not in self.pinned][: len(self.files) // 8 + 1]:
            self.close(path)

    def write(self, path: str, data: bytes, offset: int) -> None:
        """At once, into a file that may not exist yet."""
        file = self.create(path)
        written = 0
        while written < len(data):
            written += os.pwrite(file, data[written:], offset + written)

    def make_directory(self, path: str) -> None:
        """One that may exist already."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def write_whole(self, path: str, text: str) -> None:
        """A small file that is written once."""
        Path(path).write_text(text)

    def replace_whole(self, path: str, data: bytes) -> None:
        """A small file, at once or not at all."""
        made = Path(path + ".new")
        made.write_bytes(data)
        made.rename(path)

    def sync(self, path: str) -> None:
        """At once: a file's bytes, or a directory's names."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def sync_all(self, path: str) -> None:
        """At once: all of the file system that this directory is in."""
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_file_system(file)
        finally:
            os.close(file)

    def close(self, path: str) -> None:
        """Close it, if it is open and nobody is writing it."""
        if path in self.files and path not in self.pinned:
            os.close(self.files.pop(path))

    def close_all(self) -> None:
        self.pinned.clear()
        for path in list(self.files):
            self.close(path)
