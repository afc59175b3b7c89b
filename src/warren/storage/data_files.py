"""Looking into a data directory from outside: with or without a broker on it, and without changing a byte.

    DataFiles           the directory, and its definitions
      QueueFiles        the directory of one queue, defined or not, or of a part of one
        SegmentFiles    what is named after one base

A broker that runs writes and deletes while we read, so a file that was listed may be gone, and the last
record of a tail may be half there: neither is a problem then. What is one goes to whoever is told, in one
line with file and offset, and reading goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from warren.broker.commands import Command, DeclareQueue
from warren.broker.rules import STREAM, queue_type
from warren.storage.command_text import command_from_json
from warren.storage.definitions import Definitions
from warren.storage.definitions_recovery import DefinitionProblem, recover_definitions
from warren.storage.directory import VERSION, read_identity
from warren.storage.format import SUFFIXES, base_of, segment_name
from warren.storage.log_directory import MANIFEST, OFFSETS, belongs_to_queue, parts_in

LOCKS = Path("/proc/locks")


class InspectError(Exception):
    """It cannot be looked into; in one line for the operator."""


class FileKind(Enum):
    DAMAGE = "damage"
    HARMLESS = "harmless"  # what a crash leaves, and the next start tidies up
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class FileProblem:
    kind: FileKind
    file: str
    text: str
    offset: int | None = None

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file} at {self.offset}"
        return f"{where}: {self.text}"


Tell: TypeAlias = Callable[[FileProblem], None]


# --- files ---


@dataclass(frozen=True)
class SegmentFiles:
    """The files of one segment."""

    path: str  # without a suffix
    base: int
    sizes: dict[str, int]  # of the files that there were, by suffix
    newest: bool  # it is the last segment of its queue that has any bytes, or comes after that
    live: bool  # a broker runs: files come and go
    is_of_stream: bool = False
    before_all: bool = False  # it comes before the first segment that has records

    @property
    def closed(self) -> bool:
        """Nothing is added to it any more."""
        return "idx" in self.sizes or "chunks" in self.sizes

    def name(self, suffix: str) -> str:
        return f"{self.path}.{suffix}"

    def read(self, suffix: str, tell: Tell) -> bytes | None:
        """The bytes of a file; None if it is not there, is gone by now, or cannot be read."""
        if suffix not in self.sizes:
            return None
        try:
            return Path(self.name(suffix)).read_bytes()
        except OSError as error:
            self.tell_unreadable(suffix, error, tell)
            return None

    def tell_unreadable(self, suffix: str, error: OSError, tell: Tell) -> None:
        """Unless it is only gone by now."""
        if not (self.live and isinstance(error, FileNotFoundError)):
            tell(FileProblem(FileKind.UNREADABLE, self.name(suffix), error.strerror or str(error)))


@dataclass(frozen=True)
class QueueFiles:
    """The directory of one log of a queue."""

    vhost: str
    queue: str | None  # the queue's name; None if neither the definitions nor the directory say it
    number: int  # the queue's, after which its directory is named
    path: Path  # the directory, which may not be there yet
    defined: bool  # the definitions have the queue
    live: bool  # a broker runs: files come and go
    part: str = ""  # which part of the queue this is the log of; a stream has no parts
    is_stream: bool = False

    def parts(self) -> list[QueueFiles]:
        """The further logs of a queue."""
        try:
            names = parts_in(str(self.path))
        except OSError:  # that is told when its segments are listed
            return []
        return [replace(self, path=self.path / name, part=name) for name in names]

    def segments(self, tell: Tell) -> list[SegmentFiles]:
        """In order."""
        found: dict[int, dict[str, int]] = {}
        for name, size in self._sizes(tell).items():
            stem, _, suffix = name.partition(".")
            base = base_of(stem)
            if base is not None and suffix in SUFFIXES:
                found.setdefault(base, {})[suffix] = size
            elif self.part or not belongs_to_queue(str(self.path), name):
                tell(FileProblem(FileKind.DAMAGE, f"{self.path}/{name}", "foreign file"))
        with_records = [base for base, sizes in found.items() if sizes.get("seg")]
        newest, oldest = max(with_records, default=0), min(with_records, default=0)
        return [
            SegmentFiles(
                f"{self.path}/{segment_name(base)}",
                base,
                found[base],
                newest=base >= newest,
                live=self.live,
                is_of_stream=self.is_stream,
                before_all=base < oldest,
            )
            for base in sorted(found)
        ]

    def _sizes(self, tell: Tell) -> dict[str, int]:
        try:
            with os.scandir(self.path) as entries:
                sizes = {entry.name: _size(entry) for entry in entries}
            return {name: size for name, size in sizes.items() if size is not None}
        except FileNotFoundError:
            return {}
        except OSError as error:
            tell(FileProblem(FileKind.UNREADABLE, str(self.path), error.strerror or str(error)))
            return {}


def _size(entry: os.DirEntry[str]) -> int | None:
    """None if it is gone by now."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return None


class DataFiles:
    """A data directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.queues_path = path / "queues"
        self.definitions_path = path / "definitions.log"
        self._check_version()
        self.identity = read_identity(path)
        self.holder = _holder(path / "lock")  # the process of the broker that runs on it, if there is one
        self.definitions_data = self.definitions_path.read_bytes() if self.definitions_path.exists() else b""
        recovered = recover_definitions(self.definitions_data)
        self.definitions: Definitions = recovered.definitions
        self.definition_problems: list[DefinitionProblem] = recovered.problems

    def _check_version(self) -> None:
        if not self.path.is_dir():
            raise InspectError(f"{self.path}: no such directory")
        try:
            found = (self.path / "VERSION").read_text().strip()
        except FileNotFoundError:
            raise InspectError(f"{self.path} is not a data directory: it has no file VERSION") from None
        if found != str(VERSION):
            raise InspectError(f"{self.path} has version {found!r} of the layout, expected {VERSION}")

    def logs(self, vhost: str | None = None) -> Iterator[QueueFiles]:
        """All queues, each with its parts behind it."""
        for queue in self.queues(vhost):
            yield queue
            yield from queue.parts()

    def queues(self, vhost: str | None = None) -> Iterator[QueueFiles]:
        """Those defined by name, then the directories of others by number; of one vhost, or of all."""
        names = sorted((key.vhost, key.name, number) for key, number in self.definitions.numbers.items())
        for of_vhost, name, number in names:
            if vhost in {None, of_vhost}:
                is_stream = _is_stream(self.definitions.queue(of_vhost, name))
                files = self._files(of_vhost, name, number, str(number), defined=True)
                yield replace(files, is_stream=is_stream)
        known = set(self.definitions.numbers.values())
        for number, directory in self._directories():
            if number not in known:
                of_vhost, undefined, is_stream = _described(self.queues_path / directory)
                if vhost in {None, of_vhost}:
                    files = self._files(of_vhost, undefined, number, directory, defined=False)
                    yield replace(files, is_stream=is_stream)

    def copied_logs(self) -> Iterator[QueueFiles]:
        """In a cluster: the logs that other nodes have copies of, by shard and number. Nothing here says what
        their queues are called.
        """
        shards = self.path / "shards"
        for shard in sorted(filter(_is_number, shards.iterdir()) if shards.exists() else (), key=_number):
            for path in sorted(filter(_is_number, shard.iterdir()), key=_number):
                live = self.holder is not None
                is_stream = (path / OFFSETS).exists() or any(path.glob("*.chunks"))
                queue = QueueFiles(
                    "", None, _number(path), path, defined=True, live=live, is_stream=is_stream
                )
                yield queue
                yield from queue.parts()

    def queue(self, vhost: str, name: str) -> QueueFiles:
        for queue in self.queues(vhost):
            if queue.queue == name:
                return queue
        raise InspectError(f"no queue '{name}' in vhost '{vhost}'")

    def _files(
        self, vhost: str, queue: str | None, number: int, directory: str, *, defined: bool
    ) -> QueueFiles:
        path = self.queues_path / directory
        return QueueFiles(vhost, queue, number, path, defined=defined, live=self.holder is not None)

    def _directories(self) -> list[tuple[int, str]]:
        if not self.queues_path.exists():
            return []
        names = os.listdir(self.queues_path)  # noqa: PTH208 - names are all that is needed
        return sorted((int(name), name) for name in names if name.isdecimal())


def _is_number(path: Path) -> bool:
    return path.name.isdecimal() and path.is_dir()


def _number(path: Path) -> int:
    return int(path.name)


def _described(path: Path) -> tuple[str, str | None, bool]:
    """The vhost and name of a queue, as its directory has them, and whether it is a stream."""
    try:
        command = command_from_json(json.loads((path / MANIFEST).read_text()))
    except (OSError, ValueError):
        return "", None, False
    if not isinstance(command, DeclareQueue):
        return "", None, False
    return command.vhost, command.name, _is_stream(command)


def _is_stream(command: Command) -> bool:
    return isinstance(command, DeclareQueue) and queue_type(command.arguments) == STREAM


def _holder(lock: Path) -> int | None:
    """The process that has the lock. To try for it might keep a broker from starting: the kernel is asked."""
    if not lock.exists() or not LOCKS.exists():
        return None
    inode = str(lock.stat().st_ino)
    noted = lock.read_text(errors="replace").strip()
    for line in LOCKS.read_text().splitlines():
        _, kind, _, mode, process, file, *_ = line.replace(" -> ", " ").split()
        if (kind, mode) == ("FLOCK", "WRITE") and (process == noted or file.rpartition(":")[2] == inode):
            return int(process)
    return None
