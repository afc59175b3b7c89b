"""The files that are open: as many as are in use, and no more than a limit; and how files are made.

All that a running broker does to files goes through here, through the disk's thread or through housekeeping,
so that a test can put a disk that fails in between. Files hold messages and password hashes, so they are for
their owner alone, whatever the umask is.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from warren.storage.disk import sync_file_system, write_at_once

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
NEW = ".new"
READ_BYTES_MAX = 1 << 30
SMALL_BYTES_MAX = 16 * 1024
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})  # no file can be opened before another one is closed

T = TypeVar("T")


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


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_directory(path: str) -> None:
    """One that may exist already, and those above it: `mkdir(parents=True)` would let others into these."""
    missing = [Path(path)]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        each.mkdir(DIRECTORY_MODE, exist_ok=True)


def write_file(path: str, data: bytes, *, append: bool = False) -> None:
    """All of a file, or more of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as file:
        file.write(data)


def replace_derived(path: str, data: bytes) -> None:
    """A file that says what others say as well: at once or not at all, but not synced. After a power cut it
    may be damaged, which its checksum tells, and then it is made again.
    """
    write_file(path + NEW, data)
    Path(path + NEW).rename(path)


def remove_segment(path: str) -> None:
    """All files of a segment in which nothing is alive. The marks go last: alone they do no harm."""
    for suffix in (".idx", ".due", ".chunks", ".seg", ".acks.new", ".acks"):
        Path(path + suffix).unlink(missing_ok=True)


def remove_tree(path: str) -> None:
    """A directory with all that is in it, if it is there."""
    if Path(path).exists():
        shutil.rmtree(path)


class OpenFiles:
    """Opened when asked for, and closed again when the limit is reached, those not used for longest first.
    What is `pinned`, because the disk is writing it, stays. `when_short` is called when the system has no
    descriptor left.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.files: OrderedDict[str, int] = OrderedDict()
        self.pinned: set[str] = set()
        self.when_short: Callable[[], None] = lambda: None

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
            self.close_some()
        file = self._open(path, flags | os.O_CLOEXEC)
        self.files[path] = file
        return file

    def _open(self, path: str, flags: int) -> int:
        return self.try_twice(lambda: os.open(path, flags, FILE_MODE))

    def try_twice(self, work: Callable[[], T]) -> T:
        """The process may have fewer files to open than the limit says, as when clients have taken them."""
        try:
            return work()
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            self.when_short()
            self.close_some()
        return work()

    def close_some(self) -> None:
        """Those that were not used for longest."""
        for path in [path for path in self.files if path not in self.pinned][: len(self.files) // 8 + 1]:
            self.close(path)

    def keep_to(self, limit: int) -> None:
        """From now on, no more than so many are open."""
        self.limit = limit
        over = len(self.files) - limit
        if over > 0:
            for path in [path for path in self.files if path not in self.pinned][:over]:
                self.close(path)

    def open_directory(self, path: str) -> int:
        """For the moment: the caller closes it."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return self.try_twice(lambda: os.open(path, flags))

    def write(self, path: str, data: bytes, offset: int) -> None:
        """At once, into a file that may not exist yet."""
        self.write_piece(self.create(path), data, offset)

    def make_directory(self, path: str) -> None:
        """One that may exist already."""
        make_directory(path)

    def write_whole(self, path: str, data: bytes) -> None:
        """A small file that is written once."""
        self.try_twice(lambda: write_file(path, data))

    # --- replacing a file: its name leads to all of the old bytes or to all of the new ones ---

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """At once, and safe if it is synced."""
        self.prepare(path, data, sync=sync)
        self.put_in_place(path)
        if sync:
            self.sync(os.path.dirname(path))  # noqa: PTH120 - paths are text here

    def prepare(self, path: str, data: bytes, *, sync: bool) -> None:
        """The new bytes have to be safe before the name leads to them."""
        self.write_whole(path + NEW, data)
        if sync:
            self.sync(path + NEW)

    def put_in_place(self, path: str) -> None:
        """What was prepared. It is safe when the directory is synced."""
        self.close(path)
        self.close(path + NEW)
        Path(path + NEW).rename(path)

    def write_anew(self, path: str, data: bytes) -> None:
        """A file that is to take the place of another; in any thread."""
        with open(path, "wb", opener=_open_private) as file:
            file.write(data)

    def read(self, path: str, size: int, offset: int) -> bytes:
        """At once, from an existing file that has so many bytes."""
        file = self.open(path)
        data = os.pread(file, size, offset)
        if len(data) != size:
            raise OSError(errno.EIO, "the file is shorter than it should be", path)
        return data

    def rename(self, path: str, target: str) -> None:
        """At once; what either of them was is closed."""
        self.close(path)
        self.close(target)
        Path(path).rename(target)

    def remove(self, path: str) -> None:
        """At once: a file that may not exist."""
        self.close(path)
        Path(path).unlink(missing_ok=True)

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
            self.sync_file_system(file)
        finally:
            os.close(file)

    def sync_file_system(self, directory: int) -> None:
        """At once, and in any thread: all of the one that an open directory is in. It fails if anything could
        not be written since this was asked last, or since the directory was opened.
        """
        sync_file_system(directory)

    def write_pieces(self, path: str, pieces: list[tuple[int, bytes]]) -> None:
        """At once, and in any thread: each at its offset, into a file that exists; no file is made."""
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            for offset, data in pieces:
                self.write_piece(file, data, offset)
        finally:
            os.close(file)

    def write_piece(self, file: int, data: bytes, offset: int) -> None:
        if len(data) <= SMALL_BYTES_MAX:
            write_at_once(file, data, offset)
            return
        written = 0
        while written < len(data):
            written += os.pwrite(file, data[written:], offset + written)

    def close(self, path: str) -> None:
        """Close it, if it is open and nobody is writing it."""
        if path in self.files and path not in self.pinned:
            os.close(self.files.pop(path))

    def close_all(self) -> None:
        self.pinned.clear()
        for path in list(self.files):
            self.close(path)
