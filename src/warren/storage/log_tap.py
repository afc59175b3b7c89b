"""What has changed in a log that this node leads, for those who copy it.

A log that is copied notes here what happens to it. At the end of each turn whoever sends that to the copies
takes it, with `take`, as `LogChange` values: first the bytes that were appended, then marks as they were
written to the ack file, then segments that were dropped and offsets that were named. This order is not always
that in which they happened, but comes to the same: marks are of records that were appended before, nothing
follows in a segment that is dropped, and its base is not used again in this epoch.

What is taken does not depend on the disk: the bytes of a segment are those in memory, as long as no round has
written them. Logs without copies have no tap.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.storage.replication import Drop, LogChange, LogId, Marks, NamedOffset, Records, RemoveLog
from warren.storage.segment import Segment


class LogTap:
    """The tap of one log."""

    def __init__(self, log: LogId, changed: list[LogTap], read: Callable[[str, int, int], bytes]) -> None:
        self.log = log
        self.changed = changed  # all taps of the shard that have something to take
        self.noted = False  # this one is among them
        self.read = read  # reads so many bytes of a file, from an offset on
        self.growing: list[Segment] = []  # segments of this epoch that may have bytes to take, in order
        self.highest = 0  # the base of the last segment that began
        self.marks: list[tuple[Segment, bytes]] = []  # that were written to ack files
        self.others: list[LogChange] = []  # segments that were dropped, offsets that were named

    def note(self) -> None:
        """Something has changed; also called for every record that is appended."""
        if not self.noted:
            self.noted = True
            self.changed.append(self)

    def began(self, segment: Segment) -> None:
        """The log has rolled: records go to this segment from now on."""
        self.growing.append(segment)
        self.highest = segment.base

    def marked(self, segment: Segment, marks: bytes) -> None:
        if segment.is_dropped() or not marks:
            return
        last, before = self.marks[-1] if self.marks else (None, b"")
        if last is segment:
            self.marks[-1] = segment, before + marks
        else:
            self.marks.append((segment, marks))
        self.note()

    def dropped(self, segment: Segment) -> None:
        self.is_gone(segment.base, segment.epoch)

    def is_gone(self, base: int, epoch: int) -> None:
        """A segment is not there any more."""
        self.others.append(Drop(self.log, base, epoch))
        self.note()

    def named(self, name: str, offset: int | None) -> None:
        self.others.append(NamedOffset(self.log, name, offset))
        self.note()

    def removed(self) -> None:
        """The queue is deleted: nothing else counts any more."""
        self.growing.clear()
        self.marks.clear()
        self.others[:] = [RemoveLog(self.log)]
        self.note()

    def has_records(self) -> bool:
        """Whether something was appended since this was asked last."""
        for segment in self.growing:  # noqa: SIM110 - asked in every turn
            if segment.end > segment.told and not segment.is_dropped():
                return True
        return False

    def take(self, changes: list[LogChange]) -> None:
        """Add what has changed since this was asked last."""
        self.noted = False
        for segment in self.growing:
            if segment.end > segment.told and not segment.is_dropped():
                changes.append(self._records(segment))  # noqa: PERF401 - asked in every turn: no list of its own
        if len(self.growing) > 1:
            del self.growing[:-1]
        if self.marks:
            changes += [
                Marks(self.log, segment.base, segment.epoch, marks)
                for segment, marks in self.marks
                if not segment.is_dropped()
            ]
            self.marks.clear()
        if self.others:
            changes += self.others
            self.others.clear()

    def _records(self, segment: Segment) -> Records:
        offset, count = segment.told, segment.count - segment.told_count
        data = segment.unwritten_from(max(offset, segment.written))
        if offset < segment.written:  # a round that began and ended in this turn has them
            data = self.read(segment.path + ".seg", segment.written - offset, offset) + data
        segment.told, segment.told_count = segment.end, segment.count
        return Records(self.log, segment.base, segment.epoch, offset, segment.last, count, data)


def take_all(changed: list[LogTap]) -> list[LogChange]:
    """What has changed in all logs of a shard, since this was asked last."""
    changes: list[LogChange] = []
    for tap in changed:
        tap.take(changes)
    changed.clear()
    return changes
