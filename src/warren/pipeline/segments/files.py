"""Logs by path: segment files in a data directory that driver and executors can read. A broker may run on it.
Nothing in it is changed.

A broker that runs appends while we read, so only whole records count. The end of the last whole record in the
newest segment is found by walking over its records; it is remembered, and the next look walks on from there.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Self

from warren.broker.commands import DeclareQueue
from warren.pipeline.segments.decode import OPEN_END, find_sound, walk
from warren.pipeline.segments.errors import SegmentGone, UnknownQueue, Unreachable, Unreadable
from warren.pipeline.segments.log import (
    KINDS,
    STREAM,
    Contents,
    QueueEnds,
    QueueRef,
    Slice,
    SourceSegment,
    pack_acked,
)
from warren.storage.ack_file import read_fates
from warren.storage.checked_lines import line_content
from warren.storage.command_text import command_from_json
from warren.storage.data_files import DataFiles, InspectError, QueueFiles
from warren.storage.definition_keys import QueueKey
from warren.storage.definitions import parse_definition
from warren.storage.directory import stream_identity
from warren.storage.format import (
    HEADER_BYTES,
    INDEX_ENTRY_FIELDS,
    POSITIONS_MAX,
    UnknownVersion,
    base_of,
    segment_name,
)
from warren.storage.index import decode_index
from warren.storage.log_directory import MANIFEST, parts_in

CHUNK_BYTES = 1 << 20
RESTS = 49  # for each second of computing, sleep so many, so that looking takes 2 % of a core
SEEN = "seen"  # the part of a queue in which deduplication keeps its ids: it holds no messages


class FileLog:
    can_locate = True
    chunk_bytes = CHUNK_BYTES

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: dict[tuple[str, str], QueueRef] = {}  # by vhost and name: queues found so far
        self._ends: dict[str, tuple[int, int]] = {}  # by path: byte and position at which a segment ended
        self._computed_s = 0.0  # this process's CPU time when it last looked for news

    def __repr__(self) -> str:
        return f"FileLog({self.path!r})"

    def __reduce__(self) -> tuple[type[FileLog], tuple[str]]:
        return FileLog, (self.path,)

    def close(self) -> None:
        """Nothing to do: no file is kept open."""

    # --- queues ---

    def queues(self, vhost: str) -> list[QueueRef]:
        data = self._data_files()
        found = [_queue(data, files) for files in data.queues(vhost) if files.queue is not None]
        self._known.update(((queue.vhost, queue.name), queue) for queue in found)
        return found

    def queue(self, vhost: str, name: str) -> QueueRef:
        known = self._known.get((vhost, name))
        if known is not None and Path(self.path, known.place).is_dir():
            return known
        for queue in self.queues(vhost):
            if queue.name == name:
                return queue
        raise UnknownQueue(vhost, name)

    def _data_files(self) -> DataFiles:
        try:
            return DataFiles(Path(self.path))
        except InspectError as error:
            raise Unreachable(f"{error}: change the option path") from None
        except OSError as error:
            raise Unreadable(
                f"{error.filename or self.path}: {error.strerror}: see the option path"
            ) from None

    # --- what there is ---

    def contents(self, vhost: str, name: str) -> Contents:
        queue = self.queue(vhost, name)
        try:
            segments = [segment for part in self._parts(queue) for segment in self._segments(queue, part)]
        except OSError as error:
            raise Unreadable(
                f"{error.filename or self.path}: {error.strerror}: see the option path"
            ) from None
        first = min((segment.first_offset for segment in segments), default=0)
        end = max((segment.end_offset for segment in segments), default=0)
        return Contents(queue, first, end, tuple(segments))

    def contents_of(self, vhost: str, names: Sequence[str]) -> dict[str, Contents]:
        found = {}
        for name in names:
            with contextlib.suppress(UnknownQueue):
                found[name] = self.contents(vhost, name)
        return found

    def ends_of(self, vhost: str, names: Sequence[str], *, wait_s: float = 0.0) -> dict[str, QueueEnds]:
        """Where the queues begin and end. Spark asks every 10 ms, and nothing tells us when a file grows. So,
        if the caller can wait, sleep first, long enough for looking to take a small share of the time.
        """
        computed_s = time.process_time() - self._computed_s
        if wait_s:
            time.sleep(min(wait_s, computed_s * RESTS))
        self._computed_s = time.process_time()
        return {name: contents.ends for name, contents in self.contents_of(vhost, names).items()}

    def _parts(self, queue: QueueRef) -> list[str]:
        directory = Path(self.path, queue.place)
        if queue.is_stream or not directory.is_dir():
            return [""]
        return ["", *(part for part in parts_in(str(directory)) if part != SEEN)]

    def _segments(self, queue: QueueRef, part: str) -> Iterator[SourceSegment]:
        directory = Path(self.path, queue.place, part)
        sizes = dict(sorted(_segment_sizes(directory)))
        bases = _begun(sizes)
        for base, following in pairwise([*bases, 0]):
            path = _path(directory, base)
            try:
                size, end = (
                    (_size(path), following - 1) if following else self._sound_part(path, base, sizes[base])
                )
            except SegmentGone:  # deleted just now, since all its messages are acked or expired
                continue
            segment = SourceSegment(
                part=part, base=base, size_bytes=size, first_offset=base - 1, end_offset=end
            )
            yield segment if queue.is_stream else replace(segment, acked=_acked(path, base))

    def _sound_part(self, path: str, base: int, size: int) -> tuple[int, int]:
        """Where the last sound record of the newest segment ends, and the next offset."""
        at, above = self._ends.get(path, (HEADER_BYTES, base - 1))
        with _OpenFile(path) as file:
            at, above = file.walk(at, above, size)
        if path not in self._ends:  # a new segment: forget those that were deleted since
            self._ends = {known: end for known, end in self._ends.items() if Path(known).exists()}
        self._ends[path] = at, above
        return at, above

    def open(self, queue: QueueRef, segment: SourceSegment) -> _OpenFile:
        return _OpenFile(_path(Path(self.path, queue.place, segment.part), segment.base))


def _queue(data: DataFiles, files: QueueFiles) -> QueueRef:
    assert files.queue is not None
    place, kind = str(files.path.relative_to(data.path)), _kind(data, files)
    stream_id = stream_identity(data.identity, files.number) if kind == STREAM else ""
    return QueueRef(files.vhost, files.queue, kind, place, stream_id)


def _kind(data: DataFiles, files: QueueFiles) -> str:
    """The queue's type, from its arguments in the definitions, or else in the manifest in its directory."""
    line = data.definitions.live.get(QueueKey(files.vhost, files.queue or ""))
    try:
        if line is not None:
            command = parse_definition(line_content(line))[0]
        else:
            command = command_from_json(json.loads((files.path / MANIFEST).read_text()))
    except (OSError, ValueError) as error:
        raise Unreadable(f"{files.path}: cannot read what kind of queue this is: {error}") from error
    kind = command.arguments.get("x-queue-type") if isinstance(command, DeclareQueue) else None
    return kind if isinstance(kind, str) and kind in KINDS else KINDS[0]


def _path(directory: Path, base: int) -> str:
    return f"{directory}/{segment_name(base)}.seg"


def _segment_sizes(directory: Path) -> Iterator[tuple[int, int]]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                stem, _, suffix = entry.name.partition(".")
                base = base_of(stem)
                if suffix == "seg" and base is not None:
                    yield base, entry.stat().st_size
    except FileNotFoundError:  # the queue has no directory yet, or a segment was just deleted
        return


def _begun(sizes: dict[int, int]) -> list[int]:
    """The segments that have records; if none has, the last segment.

    A broker creates the next segment's file before it has written the rest of the present one, but it writes
    records in order: once the next segment has a record, the one before it is complete.
    """
    return [base for base, size in sizes.items() if size > HEADER_BYTES] or list(sizes)[-1:]


def _size(path: str) -> int:
    """The size now. It may be larger than when the directory was read and the next segment found in it."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are text here
    except FileNotFoundError:
        raise SegmentGone(path) from None


def _acked(path: str, base: int) -> bytes:
    """Runs of acked positions. If marks are damaged or not written yet, some acked messages are read, too."""
    try:
        fates, _, _ = read_fates(Path(path).with_suffix(".acks"), base)
    except (FileNotFoundError, ValueError, UnknownVersion):
        return b""
    return pack_acked((base + first, base + first + count) for first, count in fates.acked_runs(fates.places))


class _OpenFile:
    """A segment's file. It is read and not mapped: if a broker truncates it, a read is short, where access to
    mapped memory would raise a signal.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self.file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SegmentGone(name) from None
        except OSError as error:
            raise Unreadable(f"{name}: {error.strerror}: see the option path") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.file)

    def read(self, at: int, size: int) -> bytes:
        try:
            return os.pread(self.file, size, at)
        except OSError as error:
            raise Unreadable(f"{self.name} at {at}: {error.strerror}: see the option path") from None

    def locate(self, wanted: Slice) -> tuple[int, int]:
        """Find the first wanted record by the index, which has every record; without a sound index, begin
        where the slice says.
        """
        base, position = wanted.segment.base, wanted.first_offset + 1
        if position <= wanted.above + 1:
            return wanted.at, wanted.above
        try:
            index = decode_index(Path(self.name).with_suffix(".idx").read_bytes(), base)
        except (OSError, ValueError, UnknownVersion):
            return wanted.at, wanted.above
        entries = memoryview(index.entries).cast("I")
        relatives = entries[::INDEX_ENTRY_FIELDS]
        found = bisect_left(range(index.count), position - base, key=relatives.__getitem__)
        if found == index.count:
            return wanted.at, wanted.above
        return entries[found * INDEX_ENTRY_FIELDS + 1], position - 1

    def walk(self, at: int, above: int, size: int) -> tuple[int, int]:
        """Where the last sound record before byte `size` ends, and its position."""
        wanted = CHUNK_BYTES
        while at < size:
            data = self.read(at, min(wanted, size - at))
            if not data:
                break
            used, above, _, needed = walk(data, 0, above, OPEN_END, OPEN_END)
            at += used
            wanted = max(CHUNK_BYTES, needed)
            if not 0 < needed <= size - at:
                following = find_sound(self.read(at, size - at), 0, above, above + POSITIONS_MAX)
                if following < 0:
                    break
                at += following  # go on behind the damage: `reading.py` reports it when it gets there
        return at, above
