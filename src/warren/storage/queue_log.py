"""The messages of one queue, in segments: appended at the tail, read on by a cursor, deleted when done with.

    segments   [ 1 ] [ 2 ] [ 3 ] [ 4 = tail ]
                        ^cursor: what is before it the queue holds, or has sent out

A segment goes when none of its messages is alive, wherever in the list it is. Positions only ever go up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from warren.broker.entry_list import EntryList
from warren.broker.message import Message
from warren.broker.store import NOTHING_TO_READ, MessageLog
from warren.storage.commit import GroupCommit
from warren.storage.cursor import Cursor
from warren.storage.segment import Segment

if TYPE_CHECKING:
    from warren.broker.queue import Queue
    from warren.storage.cursor import Problems

DEAD_TAIL_BYTES_MIN = 64 * 1024
READ_BYTES_MAX = 4 * 1024 * 1024
NAME_DIGITS = 20
MANIFEST = "queue.json"


class QueueLog(MessageLog):
    """A `volatile` one holds what memory has no room for: it is gone as soon as it is read. `made`: its
    directory is there; `named`: a sync covers the name of that.
    """

    def __init__(
        self,
        path: str,
        commit: GroupCommit,
        problems: Problems,
        segment_bytes: int,
        *,
        segments: list[Segment] | None = None,
        volatile: bool = False,
        describe: Callable[[], str] | None = None,
    ) -> None:
        self.path = path
        self.commit = commit
        self.segment_bytes = segment_bytes
        self.volatile = volatile
        self.describe = describe
        self.deleted = False
        self.segments = segments or []
        self.tail: Segment | None = None
        self.recent: Segment | None = None
        self.cursor = Cursor(commit.files, problems)
        self.unread = sum(segment.unread for segment in self.segments)
        self.unread_bytes = sum(s.end * s.unread // max(s.count, 1) for s in self.segments)
        self.made = bool(self.segments)
        self.named = False
        for segment in self.segments:
            segment.log = self
        if self.segments:
            self.cursor.move(self.segments[0], 0)
            if not self.segments[-1].closed:
                self.tail = self.segments[-1]

    # --- on the path of every message ---

    def append(self, message: Message, position: int, taken: bool) -> int:
        tail = self.tail
        if tail is None or tail.is_full(self.segment_bytes, position):
            tail = self.roll(position)
        if not tail.dirty:
            self.commit.gather(tail)
        size = tail.append(message, position)
        self.commit.unsafe_bytes += size
        if taken:
            self.cursor.skip_to_end(tail)
        else:
            tail.unread += 1
            self.unread += 1
            self.unread_bytes += size
        return tail.end - size

    def peek(self) -> int:
        while self.unread:
            position = self.cursor.position()
            if position != NOTHING_TO_READ:
                return position
            self.next_segment()
        return NOTHING_TO_READ

    def read_on(self, queue: Queue, ready: EntryList, most: int, before: int) -> None:
        while most > 0 and ready.bytes < READ_BYTES_MAX:
            position = self.peek()
            if position >= before:
                break
            message = self.cursor.take()
            ready.append_new(message, queue, position, self.cursor.deliveries)
            segment = self.cursor.segment
            assert segment is not None, "a message came from it"
            segment.unread -= 1
            self.unread -= 1
            self.unread_bytes -= self.cursor.taken_bytes
            most -= 1
            if self.volatile:
                self.settle(segment, 1)
        if not self.unread:
            self.unread_bytes = 0

    def delivered(self, position: int, deliveries: int) -> None:
        segment = self.find(position)
        segment.note_delivered(position, deliveries)
        if not segment.marked:
            self.commit.mark(segment)

    def acked(self, position: int) -> None:
        segment = self.find(position)
        segment.note_done(position, 1)
        if not segment.marked:
            self.commit.mark(segment)
        segment.alive -= 1
        if segment.alive == 0:
            self.drop_if_dead(segment)

    def find(self, position: int) -> Segment:
        """The segment that has a message which is alive."""
        recent = self.recent
        if recent is None or position < recent.base or position > recent.last:
            recent = self.segments[self._index(position) - 1]
            self.recent = recent
        return recent

    def _index(self, position: int) -> int:
        """Of the first segment that begins beyond a position."""
        return bisect_right(self.segments, position, key=lambda segment: segment.base)

    # --- segments ---

    def make_directory(self) -> None:
        """See to it that it is there. It says itself which queue it is of, if that is not deleted by now."""
        if self.made:
            return
        files = self.commit.files
        files.make_directory(self.path)
        if self.describe is not None and not self.deleted:
            files.write_whole(f"{self.path}/{MANIFEST}", self.describe())
        self.made = True

    def roll(self, position: int) -> Segment:
        """Close the tail, and begin a new one."""
        closed, self.tail = self.tail, None
        if closed is not None:
            closed.closed = True
            if not closed.dirty and closed.flying is None:
                self.commit.close(closed)
            self.drop_if_dead(closed)
        name = str(position).zfill(NAME_DIGITS)
        self.tail = Segment(f"{self.path}/{name}", position, self, volatile=self.volatile)
        self.segments.append(self.tail)
        if self.cursor.segment is None:
            self.cursor.move(self.tail, 0)
        return self.tail

    def next_segment(self) -> None:
        """The cursor's segment is read to its end. What should have been there and was not is lost."""
        segment = self.cursor.segment
        assert segment is not None, "there is something unread, so there is a segment"
        lost, segment.unread = segment.unread, 0
        self.unread -= lost
        index = self._index(segment.base)
        if index < len(self.segments):
            self.cursor.move(self.segments[index], 0)
        else:
            self.unread = self.unread_bytes = 0
        self.settle(segment, lost)

    def settle(self, segment: Segment, count: int) -> None:
        segment.alive -= count
        self.drop_if_dead(segment)

    def drop_if_dead(self, segment: Segment) -> None:
        if segment.alive > 0:
            return
        if segment is self.tail:
            if segment.end >= DEAD_TAIL_BYTES_MIN:
                self.commit.dead_tails.add(self)
        else:
            self.drop(segment)

    def drop(self, segment: Segment) -> None:
        index = self._index(segment.base)
        del self.segments[index - 1]
        if self.recent is segment:
            self.recent = None
        if self.cursor.segment is segment:  # and at its end, or it would not be dead
            self.cursor.move(self.segments[index - 1] if index <= len(self.segments) else None, 0)
        self.commit.drop(segment)

    def drop_dead_tail(self) -> None:
        """Nothing has come for a while: give the space back."""
        if self.tail is not None and self.tail.alive == 0:
            tail, self.tail = self.tail, None
            self.drop(tail)

    def purge(self) -> None:
        for segment in self.segments[:]:
            if segment.unread:
                first = max(segment.base, self.cursor.above + 1)
                segment.note_done(first, segment.last - first + 1)
                if not segment.marked:
                    self.commit.mark(segment)
                done, segment.unread = segment.unread, 0
                self.settle(segment, done)
        self.unread = self.unread_bytes = 0
        if self.tail is not None:
            self.cursor.skip_to_end(self.tail)
        else:
            self.cursor.move(None, 0)

    def delete(self) -> None:
        self.deleted = True
        self.unread = self.unread_bytes = 0
        self.cursor.move(None, 0)
        self.commit.forget(self.segments, self.path)
        self.segments, self.tail, self.recent = [], None, None
