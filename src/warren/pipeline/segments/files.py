"""Logs by path: the segment files of a data directory that driver and executors can read, with or without a
broker on it. Nothing is changed.

A broker that runs appends while we read. What counts is whole records: where the last one of the newest
segment ends is found by walking through it, and remembered, so that the next look goes on from there.
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
RESTS = 49  # seconds for each that was computed, as far as the caller waits that long
SEEN = "seen"  # the part with what deduplication remembers, which are no messages


class FileLog:
    can_locate = True
    chunk_bytes = CHUNK_BYTES

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: dict[tuple[str, str], QueueRef] = {}
        self._ends: dict[str, tuple[int, int]] = {}  # how far the newest segments were sound: byte, position
        self._computed_s = 0.0  # by this process, when it last looked for news

    def __reduce__(self) -> tuple[type[FileLog], tuple[str]]:
        return FileLog, (self.path,)

    def close(self) -> None:
        """It keeps nothing open."""

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
        """Nobody tells when a file grows, and Spark asks every 10 ms. A caller who may wait rests first, so
        long that looking takes a small share of the time.
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
            except SegmentGone:  # just now: all of it was done with
                continue
            segment = SourceSegment(
                part=part, base=base, size_bytes=size, first_offset=base - 1, end_offset=end
            )
            yield segment if queue.is_stream else replace(segment, acked=_acked(path, base))

    def _sound_part(self, path: str, base: int, size: int) -> tuple[int, int]:
        """Where the last sound record of the newest segment ends, and the offset behind it."""
        at, above = self._ends.get(path, (HEADER_BYTES, base - 1))
        with _OpenFile(path) as file:
            at, above = file.walk(at, above, size)
        if path not in self._ends:  # it may stand in for another, which is gone
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
    """By the arguments it was declared with, as the definitions have them, or else its directory."""
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
    except FileNotFoundError:  # a queue that has no directory yet, or a segment that was just deleted
        return


def _begun(sizes: dict[int, int]) -> list[int]:
    """The segments with something in them. A broker makes the file of the next one before it has written the
    rest of the one before, but writes in order: what is in the next says that the one before is whole.
    """
    return [base for base, size in sizes.items() if size > HEADER_BYTES] or list(sizes)[-1:]


def _size(path: str) -> int:
    """As it is now: it may have grown since the directory was read, in which the next one was found."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are text here
    except FileNotFoundError:
        raise SegmentGone(path) from None


def _acked(path: str, base: int) -> bytes:
    """Bad marks, and what was not written yet, cost nothing but that a message is read that is done with."""
    try:
        fates, _, _ = read_fates(Path(path).with_suffix(".acks"), base)
    except (FileNotFoundError, ValueError, UnknownVersion):
        return b""
    return pack_acked((base + first, base + first + count) for first, count in fates.acked_runs(fates.places))


class _OpenFile:
    """Read, not mapped: a file that gets shorter is then a short read and not a signal."""

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
        """By the index, which has every record, if there is a sound one; else from what the slice says."""
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
                at += following  # behind damage, which whoever reads it will tell
        return at, above
