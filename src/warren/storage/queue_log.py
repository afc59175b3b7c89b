"""The messages of one queue, in segments: appended at the tail, read on by a cursor, deleted when done with.

    segments   [ 1 ] [ 2 ] [ 3 ] [ 4 = tail ]
                        ^cursor

Messages before the cursor are held by the queue, or with a consumer. Messages behind it are unread, except
those that were taken out of the middle: the cursor will skip them. A segment is dropped when none of its
messages is alive, wherever in the list it is. Positions only ever go up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.message import Message
from warren.broker.store import NOTHING_TO_READ, MessageLog
from warren.storage.browser import QueueBrowser
from warren.storage.commit import GroupCommit
from warren.storage.cursor import Cursor
from warren.storage.format import DUE_ENTRY
from warren.storage.log_directory import LogDirectory
from warren.storage.log_tap import LogTap
from warren.storage.problems import Problems
from warren.storage.segment import Segment, index_beyond
from warren.storage.segment_chain import SegmentChain

DEAD_TAIL_BYTES_MIN = 64 * 1024


class QueueLog(MessageLog):
    """The log of a queue, or of a part of one; or, if volatile, what a queue in memory has no room for."""

    def __init__(
        self,
        directory: LogDirectory,
        commit: GroupCommit,
        problems: Problems,
        segment_bytes: int,
        *,
        segments: list[Segment] | None = None,
        volatile: bool = False,
    ) -> None:
        super().__init__(commit)
        self.commit = commit  # writes what is appended, delivered and acked
        self.problems = problems  # told of what cannot be read
        self.volatile = volatile  # a message is done with as soon as it is read
        self.chain = SegmentChain(directory, commit, segments or [], segment_bytes)
        self.segments = self.chain.all  # the same list, closer at hand
        self.tap: LogTap | None = None  # of a log that other nodes copy: is told what changes
        self.recent: Segment | None = None  # where the last message was that was looked for
        self.purged: deque[tuple[Segment, int]] = deque()  # with how many messages, not settled yet
        self.cursor = Cursor(commit.files, problems)  # how far the queue has read on
        self.unread = sum(segment.unread for segment in self.segments)
        self.unread_bytes = sum(segment.unread_bytes for segment in self.segments)
        if directory.parent is not None:
            directory.parent.parts.append(self)
        if self.segments:
            self.cursor.move(self.segments[0], 0)

    # --- on the path of every message ---

    def append(self, message: Message, position: int, taken: bool) -> int:
        tail = self.chain.tail_for(position)
        if tail is None:
            tail = self.roll(position)
        if not tail.dirty:
            self.commit.gather(tail)
        size = tail.append(message, position, message.time_ms)
        self.commit.unsafe_bytes += size
        if self.tap is not None:
            self.tap.note()
        if not taken:
            tail.unread += 1
            tail.unread_bytes += len(message.body)
            self.unread += 1
            self.unread_bytes += len(message.body)
        elif self.unread:
            tail.take_out(position)
        else:
            self.cursor.skip_to_end(tail)
        return tail.end - size

    def peek(self) -> int:
        while self.unread:
            segment = self.cursor.segment
            assert segment is not None, "there is something unread, so there is a segment"
            if segment.unread:
                position = self.cursor.position()
                if position != NOTHING_TO_READ:
                    return position
            self.next_segment()
        return NOTHING_TO_READ

    def read_on(self, queue: object, ready: EntryList, most: int, most_bytes: int, before: int) -> None:
        self.cursor.set_step(most_bytes)
        while most > 0 and ready.bytes < most_bytes:
            position = self.peek()
            if position >= before:
                break
            segment, location = self.cursor.segment, self.cursor.offset
            assert segment is not None, "a message is about to come from it"
            message = self.cursor.take()
            ready.append_new(message, queue, position, location, self.cursor.deliveries)
            ready.tail.returned = segment.has_returned(position)  # type: ignore[union-attr]  # it is there now
            self.leaves(segment, len(message.body))
            most -= 1
            if self.volatile:
                self.settle(segment, 1)

    def give_back(self, entry: Entry) -> None:
        """If the cursor has passed the message's record, it steps back over it. It will skip what it has read
        behind that: those messages are out, in memory, or acked.
        """
        assert entry.location, "its record is in this log"
        position = entry.position
        segment = self.find(position)
        cursor = self.cursor
        reading = cursor.segment
        if reading is None or position <= cursor.above:
            if reading is not None:
                reading.take_out_all(max(position + 1, reading.base), cursor.above)
            cursor.seek(segment, entry.location, position - 1)
        if segment.unread == 0:
            segment.take_out_all(segment.base, segment.last)
        segment.give_back(position, entry.delivery_count, entry.returned)
        segment.unread += 1
        segment.unread_bytes += entry.size
        self.unread += 1
        self.unread_bytes += entry.size
        self.given_back += 1

    def rest(self) -> None:
        self.cursor.rest()

    def leaves(self, segment: Segment, body_bytes: int) -> None:
        """One message less is unread."""
        segment.unread -= 1
        segment.unread_bytes -= body_bytes
        self.unread -= 1
        self.unread_bytes -= body_bytes
        if segment.unread == 0:
            self.all_is_read(segment)

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
        """The segment of a message that is alive."""
        recent = self.recent
        if recent is None or position < recent.base or position > recent.last:
            recent = self.segments[index_beyond(self.segments, position) - 1]
            self.recent = recent
        return recent

    # --- out of order ---

    def take_out(self, position: int, location: int) -> Message | None:
        segment = self.waiting_in(position)
        if segment is None:
            return None
        message = self.commit.window.read(segment, location, position, self.problems)
        segment.take_out(position)
        if message is None:
            self._tell_bad(segment, position, location)
            self.leaves(segment, 0)
            self.settle(segment, 1)
            return None
        self.leaves(segment, len(message.body))
        if self.volatile:
            self.settle(segment, 1)
        return message

    def waiting_in(self, position: int) -> Segment | None:
        """The segment of an unread message; None if the message is not unread any more."""
        segment = self.recent
        if segment is None or position < segment.base or position > segment.last:
            index = index_beyond(self.segments, position)
            if index == 0:
                return None
            segment = self.segments[index - 1]
            if position > segment.last:
                return None
            self.recent = segment
        return segment if position > self.cursor.above and segment.waits(position) else None

    def _tell_bad(self, segment: Segment, position: int, offset: int) -> None:
        """Report a bad record as the cursor would if it came by."""
        finder = Cursor(self.commit.files, self.problems)
        finder.seek(segment, offset, position - 1)
        finder.find_next()

    def deliveries_of(self, position: int) -> int:
        segment = self.find(position)
        return segment.fate(position)

    def has_returned(self, position: int) -> bool:
        return self.find(position).has_returned(position)

    def browse(self) -> QueueBrowser:
        return QueueBrowser(self, self.segments, self.cursor, Cursor(self.commit.files, self.problems))

    def due(self) -> Iterator[tuple[int, int, int]]:
        for segment in self.segments[:]:
            dues, segment.dues = segment.dues, b""
            for relative, offset, due_ms in DUE_ENTRY.iter_unpack(dues):
                if self.waiting_in(segment.base + relative) is segment:
                    yield due_ms, segment.base + relative, offset

    # --- copies on other nodes ---

    def safe_bytes(self, segment: Segment) -> int:
        """How many bytes of a segment others may read."""
        return segment.written

    def seal(self, epoch: int, tap: LogTap) -> None:
        """Lead this log in an epoch: the first record that is appended begins a segment of it."""
        self.tap = tap
        self.chain.seal(epoch, tap)

    def let_go(self) -> list[Segment]:
        """This node does not lead the log any more."""
        while self.purged:
            self.mark_purged()
        self.tap = None
        self.unread = self.unread_bytes = 0
        self.cursor.move(None, 0)
        self.recent = None
        return self.chain.let_go()

    # --- segments ---

    def roll(self, position: int) -> Segment:
        """Close the tail, and begin a new one."""
        closed = self.chain.close_tail()
        if closed is not None:
            if not closed.unread:
                closed.forget_gone()
            self.drop_if_dead(closed)
        path = self.chain.path_of(position)
        tail = Segment(path, position, self.chain.directory, volatile=self.volatile, epoch=self.chain.epoch)
        self.chain.begin(tail)
        if self.cursor.segment is None:
            self.cursor.move(tail, 0)
        return tail

    def next_segment(self) -> None:
        """Go on to the next segment: this one is read to its end. Unread messages that were not there are
        lost.
        """
        segment = self.cursor.segment
        assert segment is not None, "there is something unread, so there is a segment"
        lost, segment.unread = segment.unread, 0
        self.unread -= lost
        self.all_is_read(segment)
        if self.unread:
            following = self.chain.following(segment)
            assert following is not None, "what is unread is behind the cursor"
            self.cursor.move(following, 0)
        self.settle(segment, lost)

    def all_is_read(self, segment: Segment) -> None:
        """All messages of a segment are read, or lost. Of lost ones the sizes were not known before."""
        self.unread_bytes -= segment.unread_bytes
        segment.unread_bytes = 0
        tail = self.chain.tail
        if self.unread == 0 and tail is not None:
            self.cursor.skip_to_end(tail)
            tail.forget_gone()
        if segment is not tail:
            segment.forget_gone()

    def settle(self, segment: Segment, count: int) -> None:
        """So many messages of a segment are done with."""
        segment.alive -= count
        self.drop_if_dead(segment)

    def drop_if_dead(self, segment: Segment) -> None:
        """Drop a segment in which nothing is alive. The tail stays for now: more may come."""
        if segment.alive > 0:
            return
        if segment is self.chain.tail:
            if segment.end >= DEAD_TAIL_BYTES_MIN:
                self.commit.dead_tails.add(self)
        else:
            self.drop(segment)

    def drop(self, segment: Segment) -> None:
        if self.recent is segment:
            self.recent = None
        if self.cursor.segment is segment:  # and behind it nothing is unread there, or it would not be dead
            self.cursor.move(self.chain.following(segment), 0)
        self.chain.drop(segment)

    def drop_dead_tail(self) -> None:
        """Drop the tail if nothing in it is alive: no message has come for a while."""
        tail = self.chain.tail
        if tail is not None and tail.alive == 0:
            self.drop(tail)

    def purge(self) -> Iterator[int]:
        """The marks of segments may need very many files, so these are made in the steps."""
        for segment in self.segments:
            if segment.unread:
                segment.note_rest_done(max(segment.base, self.cursor.above + 1))
                self.purged.append((segment, segment.unread))
                segment.unread = segment.unread_bytes = 0
                segment.forget_gone()
        self.unread = self.unread_bytes = 0
        tail = self.chain.tail
        if tail is not None:
            self.cursor.skip_to_end(tail)
            tail.forget_gone()
        else:
            self.cursor.move(None, 0)
        return self.purging()

    def purging(self) -> Iterator[int]:
        while self.purged:
            self.mark_purged()
            yield 0  # the commit has charged for it

    def mark_purged(self) -> None:
        """Have the marks written of the next segment with purged messages, which are done with."""
        segment, done = self.purged.popleft()
        if not segment.marked:
            self.commit.mark(segment)
        self.settle(segment, done)

    def delete(self) -> None:
        directory = self.chain.directory
        if directory.deleted:
            return
        parts, directory.parts = directory.parts, []  # they know their directory, too
        for part in parts:
            part.delete()
        self.unread = self.unread_bytes = 0
        self.purged.clear()
        self.cursor.move(None, 0)
        self.recent = None
        self.chain.delete()
