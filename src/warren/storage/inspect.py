"""Looking into a data directory from outside: with or without a broker on it, and without changing a byte.

    DataFiles           the directory, and its definitions
      QueueFiles        the directory of one queue, defined or not
        SegmentFiles    what is named after one base

A broker that runs writes and deletes while we read, so a file that was listed may be gone, and the last
record of a tail may be half there: neither is a problem then. What is one goes to whoever is told, in one
line with file and offset, and reading goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

from warren.broker.commands import DeclareQueue
from warren.broker.message import Message
from warren.storage.command_text import command_from_json
from warren.storage.definitions import Definitions
from warren.storage.definitions_recovery import Problem as DefinitionProblem
from warren.storage.definitions_recovery import recover_definitions
from warren.storage.directory import VERSION
from warren.storage.format import (
    ACKED,
    ACKS_MAGIC,
    HEADER_BYTES,
    INDEX_MAGIC,
    SEGMENT_MAGIC,
    Scan,
    UnknownVersion,
    check_header,
    marks,
    records,
    scan,
)
from warren.storage.queue_log import MANIFEST, NAME_DIGITS
from warren.storage.recovery import INDEX_ENTRY_BYTES, SUFFIXES, fill, last_of
from warren.storage.segment import Segment

LOCKS = Path("/proc/locks")
TIME_OFFSET, TIME_BYTES = 16, 8  # of a record's time


class InspectError(Exception):
    """It cannot be looked into; in one line for the operator."""


class Kind(Enum):
    DAMAGE = "damage"
    HARMLESS = "harmless"  # what a crash leaves, and the next start tidies up
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Problem:
    kind: Kind
    file: str
    text: str
    offset: int | None = None

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file} at {self.offset}"
        return f"{where}: {self.text}"


Tell: TypeAlias = Callable[[Problem], None]


# --- files ---


@dataclass(frozen=True)
class SegmentFiles:
    """`path` is without a suffix; `sizes` are those of the files that there were, by suffix. The `newest` is
    the last one of its queue that has any bytes, or comes after it; in a `live` one files come and go.
    """

    path: str
    base: int
    sizes: dict[str, int]
    newest: bool
    live: bool

    def name(self, suffix: str) -> str:
        return f"{self.path}.{suffix}"

    def read(self, suffix: str, tell: Tell) -> bytes | None:
        """None if it is not there, or not any more, or cannot be read."""
        if suffix not in self.sizes:
            return None
        try:
            return Path(self.name(suffix)).read_bytes()
        except OSError as error:
            if not (self.live and isinstance(error, FileNotFoundError)):
                tell(Problem(Kind.UNREADABLE, self.name(suffix), error.strerror or str(error)))
            return None


@dataclass(frozen=True)
class QueueFiles:
    """Of a queue that is not `defined` the directory says what it is; if it does not, there is no `queue`.
    One that is defined may have no directory yet.
    """

    vhost: str
    queue: str | None
    number: int
    path: Path
    defined: bool
    live: bool

    def segments(self, tell: Tell) -> list[SegmentFiles]:
        """In order."""
        found: dict[int, dict[str, int]] = {}
        for name, size in self._sizes(tell).items():
            stem, _, suffix = name.partition(".")
            if stem.isdecimal() and len(stem) == NAME_DIGITS and suffix in SUFFIXES:
                found.setdefault(int(stem), {})[suffix] = size
            elif name != MANIFEST:
                tell(Problem(Kind.DAMAGE, f"{self.path}/{name}", "foreign file"))
        newest = max((base for base, sizes in found.items() if sizes.get("seg")), default=0)
        return [
            SegmentFiles(
                f"{self.path}/{str(base).zfill(NAME_DIGITS)}",
                base,
                found[base],
                newest=base >= newest,
                live=self.live,
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
            tell(Problem(Kind.UNREADABLE, str(self.path), error.strerror or str(error)))
            return {}


def _size(entry: os.DirEntry[str]) -> int | None:
    """None if it is gone by now."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return None


class DataFiles:
    """A data directory. `holder` is the process of the broker that runs on it, if there is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.queues_path = path / "queues"
        self.definitions_path = path / "definitions.log"
        self._check_version()
        self.holder = _holder(path / "lock")
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

    def queues(self, vhost: str | None = None) -> Iterator[QueueFiles]:
        """Those defined by name, then the directories of others by number; of one vhost, or of all."""
        names = sorted((key.vhost, key.name, number) for key, number in self.definitions.numbers.items())
        for of_vhost, name, number in names:
            if vhost in {None, of_vhost}:
                yield self._files(of_vhost, name, number, str(number), defined=True)
        known = set(self.definitions.numbers.values())
        for number, directory in self._directories():
            if number not in known:
                of_vhost, undefined = _described(self.queues_path / directory)
                if vhost in {None, of_vhost}:
                    yield self._files(of_vhost, undefined, number, directory, defined=False)

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


def _described(path: Path) -> tuple[str, str | None]:
    """The vhost and name of a queue, as its directory has them."""
    try:
        command = command_from_json(json.loads((path / MANIFEST).read_text()))
    except (OSError, ValueError):
        return "", None
    return (command.vhost, command.name) if isinstance(command, DeclareQueue) else ("", None)


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


# --- what a segment holds ---


def read_segment(files: SegmentFiles, tell: Tell) -> Segment | None:
    """Its records, by the index if there is one, and what became of each. None if there is nothing."""
    if "seg" not in files.sizes:
        return None
    found = read_index(files, tell) or _read_records(files, tell)
    if found is None:
        return None
    segment = Segment(files.path, files.base)
    fill(segment, found)
    segment.recover_marks(read_marks(files, tell))
    return segment


def read_index(files: SegmentFiles, tell: Tell) -> Scan | None:
    """What a sound index that fits its segment says."""
    data = files.read("idx", tell)
    if data is None:
        return None
    try:
        check_header(INDEX_MAGIC, data, files.base)
    except (ValueError, UnknownVersion) as error:
        tell(Problem(Kind.DAMAGE, files.name("idx"), f"index is not sound: {error}", 0))
        return None
    end, entries = int.from_bytes(data[28:32], "little"), data[HEADER_BYTES:]
    size = files.sizes.get("seg", end)
    if end > size:
        if files.live:  # it was shorter when it was listed
            return None
        text = f"segment is shorter than its index says, {size} of {end} bytes"
        tell(Problem(Kind.DAMAGE, files.name("seg"), text))
        return None
    return Scan(len(entries) // INDEX_ENTRY_BYTES, last_of(entries, files.base), end, [], entries)


def _read_records(files: SegmentFiles, tell: Tell) -> Scan | None:
    data = read_sound(files, tell) if files.sizes["seg"] else None
    return None if data is None else scan(data, files.base)


def read_sound(files: SegmentFiles, tell: Tell) -> bytes | None:
    """The bytes of a segment in which there may be records, even if its header is damaged."""
    data = files.read("seg", tell)
    if data is None:
        return None
    try:
        check_header(SEGMENT_MAGIC, data, files.base)
    except UnknownVersion as error:
        tell(Problem(Kind.DAMAGE, files.name("seg"), str(error), 0))
        return None
    except ValueError as error:
        kind = Kind.HARMLESS if files.newest and len(data) < HEADER_BYTES else Kind.DAMAGE
        tell(Problem(kind, files.name("seg"), f"header is not sound: {error}", 0))
    return data


def read_marks(files: SegmentFiles, tell: Tell) -> list[tuple[int, int, int]]:
    """The sound ones. Bad marks are lost: at worst something is delivered again."""
    return marks(read_acks(files, tell), files.base)[0]


def read_acks(files: SegmentFiles, tell: Tell) -> bytes:
    """The ack file, nothing if it is not one."""
    data = files.read("acks", tell)
    if data is None:
        return b""
    try:
        check_header(ACKS_MAGIC, data, files.base)
    except (ValueError, UnknownVersion) as error:
        kind = Kind.HARMLESS if len(data) < HEADER_BYTES else Kind.DAMAGE
        tell(Problem(kind, files.name("acks"), f"ack file is not sound: {error}", 0))
        return b""
    return data


# --- counts ---


@dataclass(frozen=True)
class SegmentSummary:
    base: int
    records: int
    ready: int
    bytes: int
    indexed: bool


@dataclass(frozen=True)
class Place:
    """Where a message is, and when it came."""

    position: int
    time_ms: int


@dataclass
class QueueSummary:
    """`oldest` and `newest` are of the messages that are ready; `bytes` are those on disk."""

    files: QueueFiles
    segments: list[SegmentSummary] = field(default_factory=list)
    oldest: Place | None = None
    newest: Place | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(segment.ready for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


def summarize(files: QueueFiles) -> QueueSummary:
    summary = QueueSummary(files)
    tell = summary.problems.append
    newest: Segment | None = None
    for files_of_one in files.segments(tell):
        segment = read_segment(files_of_one, tell)
        size = sum(files_of_one.sizes.values())
        indexed = "idx" in files_of_one.sizes
        count, ready = (segment.count, segment.alive) if segment is not None else (0, 0)
        summary.segments.append(SegmentSummary(files_of_one.base, count, ready, size, indexed))
        if segment is not None and ready:
            newest = segment
            summary.oldest = summary.oldest or _first_ready(segment, range(count), tell)
    if newest is not None:
        summary.newest = _first_ready(newest, range(newest.count - 1, -1, -1), tell)
    return summary


def _first_ready(segment: Segment, order: range, tell: Tell) -> Place | None:
    entries = memoryview(segment.entries).cast("I")
    for index in order:
        position = segment.base + entries[2 * index]
        if segment.fate_of(position) != ACKED:
            return _place(segment, position, entries[2 * index + 1], tell)
    return None


def _place(segment: Segment, position: int, offset: int, tell: Tell) -> Place | None:
    try:
        with Path(segment.path + ".seg").open("rb") as file:
            time = os.pread(file.fileno(), TIME_BYTES, offset + TIME_OFFSET)
    except FileNotFoundError:
        return None
    except OSError as error:
        tell(Problem(Kind.UNREADABLE, segment.path + ".seg", error.strerror or str(error)))
        return None
    return Place(position, int.from_bytes(time, "little"))


# --- messages ---


@dataclass(frozen=True)
class StoredMessage:
    """`deliveries` is how often it was given to a consumer; `acked`, that it is done with."""

    position: int
    time_ms: int
    deliveries: int
    acked: bool
    message: Message


def read_messages(
    files: QueueFiles, tell: Tell, *, first: int = 0, with_acked: bool = False
) -> Iterator[StoredMessage]:
    """Those from a position on, in order. One segment is in memory at a time."""
    segments = files.segments(tell)
    later_bases = [following.base for following in segments[1:]]
    for files_of_one, later_base in zip_longest(segments, later_bases):
        if later_base is not None and later_base <= first:
            continue
        segment = read_segment(files_of_one, tell)
        if segment is None or not (segment.alive or with_acked):
            continue
        data = files_of_one.read("seg", tell)
        if data is not None:
            yield from _messages_of(segment, data, tell, first=first, with_acked=with_acked)


def _messages_of(
    segment: Segment, data: bytes, tell: Tell, *, first: int, with_acked: bool
) -> Iterator[StoredMessage]:
    expected = HEADER_BYTES
    for record in records(data):
        if record.offset != expected:
            text = f"bad record, {record.offset - expected} bytes"
            tell(Problem(Kind.DAMAGE, segment.path + ".seg", text, expected))
        expected = record.offset + record.size
        fate = segment.fate_of(record.position)
        if record.position >= first and (with_acked or fate != ACKED):
            deliveries = 0 if fate == ACKED else fate
            yield StoredMessage(record.position, record.time_ms, deliveries, fate == ACKED, record.message)
