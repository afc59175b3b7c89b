"""The messages of one stream, in segments: appended at the tail, read by anybody, dropped from the front.

    segments   [ 1 ] [ 2 ] [ 3 ] [ 4 = tail ]
                ^retention    ^a reader   ^another

The last segment of which anything is safe always stays: it says which offset comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from warren.broker.gate import Gate
from warren.broker.message import Message
from warren.broker.safety import Safety
from warren.broker.store import StreamLog
from warren.broker.stream_filter import StreamFilter
from warren.storage.commit import GroupCommit
from warren.storage.cursor import Cursor
from warren.storage.log_directory import LogDirectory
from warren.storage.log_tap import LogTap
from warren.storage.named_offsets import NamedOffsets
from warren.storage.problems import Problems
from warren.storage.segment import Segment
from warren.storage.segment_chain import SegmentChain
from warren.storage.stream_reader import LogReader, Reach, position_at
from warren.storage.stream_segment import StreamSegment, values_of
from warren.storage.window import Window

Place: TypeAlias = tuple[int, int, int]
"""A record's position, the base of its segment, and where the record ends there."""


class SegmentedStream(StreamLog):
    """The log of a stream."""

    def __init__(
        self,
        directory: LogDirectory,
        commit: GroupCommit,
        problems: Problems,
        segment_bytes: int,
        named: NamedOffsets,
        segments: list[StreamSegment] | None = None,
        before: int = 0,
    ) -> None:
        super().__init__(commit)
        self.commit = commit  # writes what is appended, and the offsets
        self.problems = problems  # told of what cannot be read
        self.named = named  # the file with the offsets
        self.offsets = named.offsets
        self.segment_bytes_usual = segment_bytes  # the size of a segment, unless the stream has its own
        self.chain = SegmentChain(directory, commit, [*(segments or ())], segment_bytes)
        self.segments = cast("list[StreamSegment]", self.chain.all)  # the same list, closer at hand
        self.tap: LogTap | None = None  # of a log that other nodes copy: is told what changes
        self.before = before  # the position that the first message comes after, if there is no segment
        self.window = Window(commit.files)  # through which readers near the end read
        self.reach: Reach | None = None  # how far a replicated log may be read; None: as far as it is synced
        self.gate: Gate[Place] | None = None  # moves `reach` on
        self.tell: Callable[[], None] | None = None  # called when it has
        self.known: bytes | None = None  # the properties of the last message,
        self.values = b""  # and what filters look for in them
        self.count = sum(segment.count for segment in self.segments)
        self.size_bytes = sum(segment.end for segment in self.segments)
        for index, segment in enumerate(self.segments):
            if segment.first_ms:
                self._nothing_before_is_newer(index, segment.first_ms)

    # --- on the path of every message ---

    def append(self, message: Message, position: int, time_ms: int) -> None:
        tail = self.chain.tail_for(position)
        assert tail is None or isinstance(tail, StreamSegment), "a stream has no other segments"
        if tail is None or time_ms < tail.last_ms:
            tail = self.roll(position, time_ms)
        if not tail.dirty:
            self.commit.gather(tail)
        if message.properties is not self.known:
            self.known = message.properties
            self.values = values_of(message.properties)
        end = tail.end
        tail.add(message, position, time_ms, self.values)
        self.commit.unsafe_bytes += tail.end - end
        self.size_bytes += tail.end - end
        self.count += 1
        if self.tap is not None:
            self.tap.note()
        if self.gate is not None:
            self.gate.note((position, tail.base, tail.end))

    # --- a log that is replicated ---

    def hold_back(self, safety: Safety) -> None:
        """From now on nothing is read before this says that it is safe: on all members. What is there
        already is.
        """
        last = self.segments[-1] if self.segments else None
        self.safety, self.holds_back = safety, True
        self.reach = Reach(
            self.safe_position(), 0 if last is None else last.base, 0 if last is None else last.end
        )
        self.gate = Gate(safety, self._is_safe)

    def when_more_is_safe(self, tell: Callable[[], None]) -> None:
        self.tell = tell

    def _is_safe(self, place: Place) -> None:
        assert self.reach is not None, "it has a gate"
        self.reach.position, self.reach.base, self.reach.end = place
        if self.tell is not None:
            self.tell()

    def safe_bytes(self, segment: Segment) -> int:
        """How many bytes of a segment others may read."""
        return segment.written if self.reach is None else self.reach.within(segment)

    # --- reading ---

    def first_position(self) -> int:
        for segment in self.segments:
            if segment.count:
                return segment.base
        return self.safe_position() + 1

    def safe_position(self) -> int:
        if self.reach is not None:
            return self.reach.position
        for segment in reversed(self.segments):
            if segment.written:
                return segment.safe_last()
        return self.segments[0].base - 1 if self.segments else self.before

    def all_is_safe(self) -> bool:
        tail = self.chain.tail
        return tail is None or self.safe_bytes(tail) == tail.end

    def newest_ms(self) -> int:
        return self.segments[-1].last_ms if self.segments else 0

    def position_at(self, time_ms: int) -> int:
        found = position_at(self.segments, Cursor(self.commit.files, self.problems), time_ms)
        return self.safe_position() + 1 if found is None else found

    def reader(self, position: int, wanted: StreamFilter | None) -> LogReader:
        cursor = Cursor(self.commit.files, self.problems)
        return LogReader(self.segments, self.window, cursor, position, wanted, self.reach)

    # --- segments ---

    def set_segment_bytes(self, segment_bytes: int | None) -> None:
        self.chain.segment_bytes = segment_bytes or self.segment_bytes_usual

    def roll(self, position: int, time_ms: int) -> StreamSegment:
        """Close the tail, and begin a new one."""
        self.chain.close_tail()
        path = self.chain.path_of(position)
        tail = StreamSegment(path, position, self.chain.directory, epoch=self.chain.epoch)
        self.chain.begin(tail)
        self._nothing_before_is_newer(len(self.segments) - 1, time_ms)
        return tail

    def _nothing_before_is_newer(self, index: int, time_ms: int) -> None:
        """The segment at this index begins at this time. If the ones before it seem newer, the clock was
        ahead when they were written; they count as older now, or retention would keep them too long.
        """
        index -= 1
        while index >= 0 and self.segments[index].newest_ms() > time_ms:
            self.segments[index].until_ms = time_ms - 1
            index -= 1

    def retain(self, max_bytes: int | None, max_messages: int | None, since_ms: int | None) -> int:
        oldest = self._oldest_to_go()
        while oldest is not None and self._is_too_much(oldest, max_bytes, max_messages, since_ms):
            self._drop(oldest)
            oldest = self._oldest_to_go()
        return 0 if oldest is None else oldest.newest_ms()

    def _oldest_to_go(self) -> StreamSegment | None:
        """The first segment, if something of a later one is safe."""
        if len(self.segments) > 1 and any(self.safe_bytes(segment) for segment in self.segments[1:]):
            return self.segments[0]
        return None

    def _is_too_much(
        self, oldest: StreamSegment, max_bytes: int | None, max_messages: int | None, since_ms: int | None
    ) -> bool:
        if max_bytes is not None and self.size_bytes > max_bytes:
            return True
        if max_messages is not None and self.segments[-1].last - oldest.base + 1 > max_messages:
            return True
        return since_ms is not None and oldest.newest_ms() < since_ms

    def _drop(self, segment: StreamSegment) -> None:
        self.count -= segment.count
        self.size_bytes -= segment.end
        self.chain.drop(segment)

    # --- the rest ---

    def note_offset(self, name: str, offset: int | None) -> None:
        self.named.note(name, offset)
        self.commit.note_offsets(self.named)
        if self.tap is not None:
            self.tap.named(name, offset)

    def seal(self, epoch: int, tap: LogTap) -> None:
        """Lead this log in an epoch: the first record that is appended begins a segment of it."""
        self.tap = tap
        self.chain.seal(epoch, tap)

    def let_go(self) -> list[Segment]:
        """This node does not lead the log any more."""
        self.tap = self.gate = self.tell = None
        self.count = self.size_bytes = 0
        return self.chain.let_go()

    def delete(self) -> None:
        self.chain.delete()
