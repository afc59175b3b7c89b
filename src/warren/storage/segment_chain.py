"""The segments of one log, in order: what a queue's log and a stream's have in common.

    all   [ 1 ] [ 2 ] [ 3 ] [ 4 = tail ]

Records go to the tail, the only segment that is open. When it is full the log rolls: the tail is closed, and
another one begins. Any segment may be dropped; when the log is deleted, all are, with their directory.
"""

from __future__ import annotations

from warren.storage.commit import GroupCommit
from warren.storage.format import segment_name
from warren.storage.log_directory import LogDirectory
from warren.storage.log_tap import LogTap
from warren.storage.segment import Segment, index_beyond
from warren.storage.segment_life import Life


class SegmentChain:
    """What a log's segments are, and how one follows the other."""

    def __init__(
        self, directory: LogDirectory, commit: GroupCommit, segments: list[Segment], segment_bytes: int
    ) -> None:
        self.directory = directory  # where their files are
        self.commit = commit  # writes and syncs them
        self.all = segments  # in order of their positions
        self.segment_bytes = segment_bytes  # the size at which one is full
        self.tail: Segment | None = None  # the one that is appended to; None if the next record begins one
        self.epoch = 0  # of the segments that begin here; 0 of a node that is alone
        self.tap: LogTap | None = None  # of a log that other nodes copy: is told what changes
        directory.made = bool(segments)
        for segment in segments:
            segment.directory = directory
        if segments and not segments[-1].is_closed():
            self.tail = segments[-1]

    def tail_for(self, position: int) -> Segment | None:
        """The segment that takes a record with this position; None if the log has to roll first."""
        tail = self.tail
        if tail is None or tail.is_full(self.segment_bytes, position):
            return None
        return tail

    def seal(self, epoch: int, tap: LogTap) -> None:
        """From now on this node leads the log: what is appended goes to segments of this epoch, so the first
        record begins one, and the tap is told what changes.
        """
        self.epoch, self.tap, self.directory.tap = epoch, tap, tap
        for segment in self.all:
            segment.told, segment.told_count = segment.end, segment.count
        if self.tail is not None and self.tail.epoch != epoch:
            self.tail.end_here()

    def let_go(self) -> list[Segment]:
        """This log is not used any more, but its files are: whoever follows gets its segments."""
        segments = self.all[:]
        self.all.clear()
        self.tail = self.tap = self.directory.tap = None
        return segments

    def path_of(self, position: int) -> str:
        """The path of a segment that begins with this position."""
        return f"{self.directory.path}/{segment_name(position)}"

    def close_tail(self) -> Segment | None:
        """Roll, first step: nothing more is appended to the tail, which is returned if there is one."""
        closed, self.tail = self.tail, None
        if closed is not None:
            closed.enter(Life.CLOSED)
            if not closed.dirty and closed.flying is None:
                self.commit.complete(closed)
        return closed

    def begin(self, segment: Segment) -> None:
        """Roll, second step: this segment is the tail from now on."""
        self.tail = segment
        self.all.append(segment)
        if self.tap is not None:
            self.tap.began(segment)

    def following(self, segment: Segment) -> Segment | None:
        """The next one, if there is one."""
        index = index_beyond(self.all, segment.base)
        return self.all[index] if index < len(self.all) else None

    def drop(self, segment: Segment) -> None:
        """Nothing in this segment is wanted any more."""
        if segment is self.tail:
            self.tail = None
        del self.all[index_beyond(self.all, segment.base) - 1]
        if self.tap is not None:
            self.tap.dropped(segment)
        self.commit.drop(segment)

    def delete(self) -> bool:
        """The log is gone, with all segments and their directory. False if it was already."""
        if self.directory.deleted:
            return False
        self.directory.deleted = True
        if self.tap is not None:
            self.tap.removed()
        self.commit.forget(self.all[:], self.directory.path)
        self.all.clear()
        self.tail = None
        return True
