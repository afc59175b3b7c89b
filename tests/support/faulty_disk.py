"""A disk that loses what was not synced, and that fails when told to, over real files in a real directory.

The broker reads and writes real files: these stand for what the kernel has in its cache. Beside them, in
memory, is what would be on the platter: for every file its bytes at the last sync, for every directory its
names. The platter changes only by a sync, and all syncs go through here; other code may change files freely.

    real files   = all that was written            what the end of a process leaves
    platter      = all that was synced             what a power cut leaves at least
    crash()      = anything between the two        what a power cut leaves

After a failed sync, the kernel forgets that the pages were ever changed: they stay readable, but no later
sync brings them to the platter unless they are written again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from warren.storage.disk import RENAME, SYNC, SYNC_ALL, SYNC_DIRECTORY, WRITE, WRITE_SAFELY, Operation
from warren.storage.files import OpenFiles
from warren.storage.housekeeping import BackgroundJob, Housekeeping

PAGE_BYTES = 4096
NEW, OLD, TORN = range(3)

Tree = dict[str, "bytes | Tree"]


@dataclass
class Synced:
    """What the platter has of one file or directory."""

    handle: int  # an open descriptor, which keeps the inode from being used again
    is_directory: bool
    content: bytes = b""  # of a file
    names: dict[str, int] = field(default_factory=dict)  # of a directory: names and inodes
    forgotten: set[int] = field(default_factory=set)  # pages that a failed sync made the kernel forget


@dataclass
class Fault:
    """The `left` operations from number `at` on fail."""

    at: int
    error: int
    left: int = 1


class Faults:
    """Counts the operations that can fail, and makes those fail that the plan names."""

    def __init__(self) -> None:
        self.before: Callable[[], None] | None = None  # called before each operation
        self.done: list[str] = []  # all operations so far, in words
        self.failed = 0  # how many of them failed
        self.plan: Fault | None = None

    def fail(self, *, at: int, error: int, times: int = 1) -> None:
        """Let the operations `at`, `at + 1`, … fail, `times` of them. The first operation has number 0."""
        self.plan = Fault(at, error, times)

    def strikes(self, what: str, path: str) -> OSError | None:
        """Count one operation, and return its error if it is to fail."""
        if self.before is not None:
            self.before()
        number = len(self.done)
        self.done.append(f"{what} {path}")
        plan = self.plan
        if plan is None or number < plan.at or plan.left == 0:
            return None
        plan.left -= 1
        self.failed += 1
        return OSError(plan.error, os.strerror(plan.error), path)

    def check(self, what: str, path: str) -> None:
        error = self.strikes(what, path)
        if error is not None:
            raise error


class Platter:
    """What is synced of a directory, its files and subdirectories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[int, Synced] = {}
        self.sync_all()

    def close(self) -> None:
        for synced in self.known.values():
            os.close(synced.handle)
        self.known.clear()

    # --- what is written and synced ---

    def wrote(self, file: int, offset: int, size: int) -> None:
        """A write: the next sync brings these pages to the platter, even if they were forgotten before."""
        synced = self.known.get(os.fstat(file).st_ino)
        if synced is not None and size:
            synced.forgotten -= set(range(offset // PAGE_BYTES, (offset + size - 1) // PAGE_BYTES + 1))

    def sync(self, path: Path) -> None:
        """Sync one file, its bytes, or one directory, its names."""
        synced = self._know(path)
        if synced.is_directory:
            synced.names = {entry.name: entry.inode() for entry in os.scandir(path)}
            for name in synced.names:
                self._know(path / name)
        else:
            synced.content = self._reachable(path, synced)

    def sync_all(self) -> None:
        for directory, _, files in os.walk(self.root):
            self.sync(Path(directory))
            for name in files:
                self.sync(Path(directory, name))

    def failed_sync(self, path: Path) -> None:
        """A failed sync: pages that changed since the last sync are forgotten."""
        synced = self._know(path)
        if not synced.is_directory:
            now = path.read_bytes()
            synced.forgotten |= {n for n in range(page_count(now)) if page(now, n) != page(synced.content, n)}

    def failed_sync_all(self) -> None:
        for directory, _, files in os.walk(self.root):
            for name in files:
                self.failed_sync(Path(directory, name))

    def _know(self, path: Path) -> Synced:
        status = path.stat()
        if status.st_ino not in self.known:
            self.known[status.st_ino] = Synced(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path.is_dir())
        return self.known[status.st_ino]

    def _reachable(self, path: Path, synced: Synced) -> bytes:
        """What a sync of a file brings to the platter: all but the pages that were forgotten."""
        now = path.read_bytes()
        pages = [
            resized(page(synced.content, n), len(page(now, n))) if n in synced.forgotten else page(now, n)
            for n in range(page_count(now))
        ]
        return b"".join(pages)

    # --- what a power cut leaves ---

    def least(self) -> Tree:
        """What is left if everything is lost that was not synced."""
        return self._tree(
            self.root.stat().st_ino, lambda old, _new: old, lambda synced, _path: synced.content
        )

    def crashed(self, rng: Random) -> Tree:
        """A random state that a power cut may leave."""

        def name(old: int | None, new: int | None) -> int | None:
            return rng.choice((old, new))

        def content(synced: Synced, path: Path | None) -> bytes:
            return synced.content if path is None else survivor(rng, synced, self._reachable(path, synced))

        return self._tree(self.root.stat().st_ino, name, content)

    def _tree(
        self,
        root: int,
        choose: Callable[[int | None, int | None], int | None],
        content: Callable[[Synced, Path | None], bytes],
    ) -> Tree:
        paths = self._paths()

        def directory(inode: int) -> Tree:
            path = paths.get(inode)
            now = {} if path is None else {entry.name: entry.inode() for entry in os.scandir(path)}
            names = choose_names(self.known[inode].names, now, choose)
            return {name: node(inode) for name, inode in sorted(names.items())}

        def node(inode: int) -> bytes | Tree:
            synced = self.known[inode]
            return directory(inode) if synced.is_directory else content(synced, paths.get(inode))

        return directory(root)

    def _paths(self) -> dict[int, Path]:
        """The paths of all files and directories, by inode."""
        paths: dict[int, Path] = {}
        for directory, _, files in os.walk(self.root):
            for path in [Path(directory), *(Path(directory, name) for name in files)]:
                self._know(path)
                paths[path.stat().st_ino] = path
        return paths

    def replace(self, tree: Tree) -> None:
        """Replace all files by these, and count them as synced."""
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_tree(self.root, tree)
        self.close()
        self.sync_all()


def choose_names(
    old: dict[str, int], new: dict[str, int], choose: Callable[[int | None, int | None], int | None]
) -> dict[str, int]:
    """A random mix of old and new names. A file that was renamed has either its old or its new name."""
    moved = {inode: name for name, inode in old.items() if inode in new.values() and name not in new}
    chosen = {}
    for name in sorted({*old, *new} - set(moved.values())):
        before, now = old.get(name), new.get(name)
        inode = before if before == now else choose(before, now)
        if inode is not None:
            chosen[name] = inode
        if now in moved and inode != now:
            chosen[moved[now]] = now
    return chosen


def page_count(data: bytes) -> int:
    return -(-len(data) // PAGE_BYTES)


def page(data: bytes, number: int) -> bytes:
    return data[number * PAGE_BYTES : (number + 1) * PAGE_BYTES]


def resized(data: bytes, size: int) -> bytes:
    """The data cut to this size, or filled up with zeros, as a file that grows."""
    return data[:size].ljust(size, b"\0")


def survivor(rng: Random, synced: Synced, new: bytes) -> bytes:
    """A file after a power cut: each page is old, new or torn, and the size is any between old and new."""
    old = synced.content
    if old == new:
        return old
    size = rng.choice((len(old), len(new), rng.randint(*sorted((len(old), len(new))))))
    pages = []
    for number in range(page_count(resized(b"", size))):
        before, now = resized(page(old, number), PAGE_BYTES), resized(page(new, number), PAGE_BYTES)
        fate = rng.choice((NEW, OLD, TORN))
        split = {NEW: PAGE_BYTES, OLD: 0, TORN: rng.randrange(PAGE_BYTES)}[fate]
        pages.append(now[:split] + before[split:])
    return resized(b"".join(pages), size)


def write_tree(root: Path, tree: Tree) -> None:
    root.mkdir(exist_ok=True)
    for name, node in tree.items():
        if isinstance(node, bytes):
            (root / name).write_bytes(node)
        else:
            write_tree(root / name, node)


class FaultyDisk:
    """Stands in for `Disk`: operations that are submitted wait until the test calls `work`."""

    def __init__(self, platter: Platter, faults: Faults) -> None:
        self.platter = platter
        self.faults = faults
        self.pending: list[Operation] = []
        self.error: OSError | None = None
        self.is_busy = False

    def submit(self, operations: list[Operation]) -> None:
        assert not self.is_busy, "one list at a time"
        self.pending = list(operations)
        self.error = None
        self.is_busy = True

    def work(self, most: int | None = None) -> None:
        """Carry out all submitted operations, or at most `most` of them."""
        while self.pending and most != 0:
            operation = self.pending.pop(0)
            self.error = self._carry_out(operation)
            if self.error is not None:
                self.pending.clear()
            most = most and most - 1

    def write_part(self, rng: Random) -> None:
        """Carry out only a part of the next operation, if it is a write."""
        if self.pending and self.pending[0].kind in {WRITE, WRITE_SAFELY}:
            self._write(self.pending[0], rng.random())

    def result(self) -> OSError | None:
        assert self.is_busy, "asked when there was something to do"
        assert not self.pending, "asked when it is over"
        self.is_busy = False
        return self.error

    def _carry_out(self, operation: Operation) -> OSError | None:
        path = file_path(operation)
        names = {
            WRITE: "write",
            SYNC: "sync",
            SYNC_ALL: "sync all",
            SYNC_DIRECTORY: "sync names",
            RENAME: "rename",
            WRITE_SAFELY: "write safely",
        }
        error = self.faults.strikes(names[operation.kind], path.name)
        if operation.kind == WRITE:
            self._write(operation, 1.0 if error is None else 0.5)
        elif operation.kind == WRITE_SAFELY:
            self._write(operation, 1.0 if error is None else 0.5)
            self.platter.sync(path) if error is None else self.platter.failed_sync(path)
        elif operation.kind == RENAME:
            self._rename(operation, error)
        elif operation.kind == SYNC_ALL:
            self.platter.sync_all() if error is None else self.platter.failed_sync_all()
        elif path.exists():  # else it was deleted meanwhile, and there is nothing to sync
            self.platter.sync(path) if error is None else self.platter.failed_sync(path)
        return error

    def _write(self, operation: Operation, share: float) -> None:
        data = operation.tobytes()
        part = data[: int(len(data) * share)]
        os.pwrite(operation.file, part, operation.offset)
        self.platter.wrote(operation.file, operation.offset, len(part))

    def _rename(self, operation: Operation, error: OSError | None) -> None:
        assert operation.path is not None, "a rename has paths"
        assert operation.target is not None, "a rename has paths"
        if error is None and Path(os.fsdecode(operation.path)).exists():
            os.rename(operation.path, operation.target)  # noqa: PTH104 - these are bytes


def file_path(operation: Operation) -> Path:
    if operation.path is not None:
        return Path(os.fsdecode(operation.path))
    return Path(f"/proc/self/fd/{operation.file}").readlink()


class FaultyFiles(OpenFiles):
    """Operations on files outside of the disk's thread, which can fail, too: creating, and writing marks."""

    def __init__(self, limit: int, platter: Platter, faults: Faults) -> None:
        super().__init__(limit)
        self.platter = platter
        self.faults = faults

    def create(self, path: str) -> int:
        if path not in self.files and not Path(path).exists():
            self.faults.check("create", Path(path).name)
        return super().create(path)

    def write(self, path: str, data: bytes, offset: int) -> None:
        error = self.faults.strikes("write", Path(path).name)
        part = data if error is None else data[: len(data) // 2]
        if error is None or error.errno == errno.ENOSPC:
            super().write(path, part, offset)
        if error is not None:
            raise error

    def make_directory(self, path: str) -> None:
        self.faults.check("make directory", Path(path).name)
        super().make_directory(path)

    def write_whole(self, path: str, data: bytes) -> None:
        self.faults.check("write", Path(path).name)
        super().write_whole(path, data)

    def put_in_place(self, path: str) -> None:
        self.faults.check("rename", Path(path).name)
        super().put_in_place(path)

    def write_anew(self, path: str, data: bytes) -> None:
        error = self.faults.strikes("write", Path(path).name)
        super().write_anew(path, data if error is None else data[: len(data) // 2])
        if error is not None:
            raise error

    def rename(self, path: str, target: str) -> None:
        self.faults.check("rename", Path(path).name)
        super().rename(path, target)

    def sync(self, path: str) -> None:
        error = self.faults.strikes("sync", Path(path).name)
        if error is not None:
            self.platter.failed_sync(Path(path))
            raise error
        self.platter.sync(Path(path))

    def sync_file_system(self, directory: int) -> None:
        error = self.faults.strikes("sync all", "journal")
        if error is not None:
            self.platter.failed_sync_all()
            raise error
        self.platter.sync_all()

    def write_piece(self, file: int, data: bytes, offset: int) -> None:
        super().write_piece(file, data, offset)
        self.platter.wrote(file, offset, len(data))

    def write_pieces(self, path: str, pieces: list[tuple[int, bytes]]) -> None:
        self.faults.check("write pieces", Path(path).name)
        super().write_pieces(path, pieces)


class PatientHousekeeping(Housekeeping):
    """Housekeeping whose jobs wait until the test says so."""

    def __init__(
        self, warn: Callable[..., object], report: Callable[[Exception], None], faults: Faults
    ) -> None:
        super().__init__(warn, report)
        self.faults = faults
        self.waiting: list[BackgroundJob] = []

    def _submit(self, *jobs: BackgroundJob) -> None:
        self.waiting += jobs

    def _work(self, job: BackgroundJob) -> None:
        self.faults.check(job.trouble.removeprefix("cannot "), Path(job.path).name)
        super()._work(job)

    def run(self, most: int | None = None) -> None:
        while self.waiting and most != 0:
            self._run(self.waiting.pop(0))
            most = most and most - 1

    def stop(self) -> None:
        self.run()
        super().stop()
