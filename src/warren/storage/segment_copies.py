"""What there is to be of each segment of a copied log, once all that was applied is done.

Every change is checked against this before anything is done, so that a change that does not fit is refused at
once (`ReplicaMismatch`), and leaves everything as it was.
"""

from __future__ import annotations

from bisect import bisect_left

from warren.storage.format import HEADER_BYTES, POSITIONS_MAX, UnknownVersion, segment_epoch, walk_records
from warren.storage.replica_files import CopiedSegment
from warren.storage.replication import AllMarks, LogId, Marks, Records, SegmentState, Truncate


class ReplicaMismatch(Exception):
    """A change does not fit what is here: the log has to be compared with the leader's again."""

    def __init__(self, log: LogId, reason: str) -> None:
        super().__init__(f"queue {log.queue}{log.part and '/'}{log.part}: {reason}")
        self.log = log
        self.reason = reason


class Copy:
    """What there is to be of one segment."""

    def __init__(
        self,
        base: int,
        epoch: int,
        length: int,
        last: int | None = None,
        segment: CopiedSegment | None = None,
        *,
        damaged: bool = False,
    ) -> None:
        self.base = base
        self.epoch = epoch
        self.length = length  # bytes of its file
        self.last = last  # the position of its last record, if that is known
        self.damaged = damaged  # some of the bytes are not what was written
        self.segment = segment  # as the group commit knows it; None until its first bytes come

    @property
    def state(self) -> SegmentState:
        return SegmentState(self.base, self.epoch, self.length, self.damaged)


class SegmentCopies:
    """The segments of one log."""

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.all: list[Copy] = []  # in order of their bases

    def at(self, base: int) -> Copy | None:
        if self.all and self.all[-1].base == base:
            return self.all[-1]
        index = self._index(base)
        found = self.all[index] if index < len(self.all) else None
        return found if found is not None and found.base == base else None

    def _index(self, base: int) -> int:
        return bisect_left(self.all, base, key=lambda copy: copy.base)

    def expect(self, change: Records | Marks | Truncate | AllMarks) -> Copy:
        """The segment that a change is about."""
        copy = self.at(change.base)
        if copy is None:
            raise ReplicaMismatch(self.log, f"no segment {change.base}")
        self._check_epoch(copy, change.epoch)
        return copy

    def _check_epoch(self, copy: Copy, epoch: int) -> None:
        if copy.epoch != epoch:
            reason = f"segment {copy.base} is of epoch {copy.epoch} here, and not of {epoch}"
            raise ReplicaMismatch(self.log, reason)

    def before_last(self, copy: Copy) -> Copy | None:
        """The segment before this one, if this one is the last."""
        return self.all[-2] if copy in self.all[-1:] and copy is not self.all[0] else None

    # --- changes ---

    def accept(self, records: Records) -> Copy:
        """The segment that has these records from now on."""
        copy = self._begin(records) if records.offset == 0 else self.expect(records)
        if records.offset and (copy.length != records.offset or copy.damaged):
            what = "is damaged" if copy.damaged else f"has {copy.length} bytes, and not {records.offset}"
            raise ReplicaMismatch(self.log, f"segment {records.base} {what}")
        self._check(records, copy)
        if records.offset == 0:
            self.all.insert(self._index(copy.base), copy)
        copy.length = records.offset + len(records.data)
        copy.last = records.last
        return copy

    def _begin(self, records: Records) -> Copy:
        if self.at(records.base) is not None:
            raise ReplicaMismatch(self.log, f"segment {records.base} is there already")
        try:
            epoch = segment_epoch(records.data, records.base)
        except (ValueError, UnknownVersion) as error:
            raise ReplicaMismatch(self.log, f"segment {records.base}: {error}") from error
        if epoch != records.epoch:
            reason = f"segment {records.base} says that it is of epoch {epoch}, and not of {records.epoch}"
            raise ReplicaMismatch(self.log, reason)
        return Copy(records.base, records.epoch, 0)

    def _check(self, records: Records, copy: Copy) -> None:
        """All bytes are records that follow each other, and what the leader says of them is so."""
        at = HEADER_BYTES if records.offset == 0 else 0
        above = copy.base - 1 if copy.last is None else copy.last
        end, count, last, _ = walk_records(records.data, at, above)
        if (end, count, last) != (len(records.data), records.count, records.last) or not count:
            raise ReplicaMismatch(self.log, f"records of segment {records.base} are damaged")
        index = self._index(copy.base)
        before = self.all[index - 1] if index else None
        if before is not None and before.last is not None and before.last >= copy.base:
            raise ReplicaMismatch(self.log, f"segment {copy.base} begins within the one before it")
        after = next((one for one in self.all[index : index + 2] if one.base > copy.base), None)
        if (after is not None and last >= after.base) or last - copy.base >= POSITIONS_MAX:
            raise ReplicaMismatch(self.log, f"segment {copy.base} has positions up to {last}")

    def cut(self, change: Truncate) -> Copy | None:
        """The segment that is shorter from now on; None if it is as short already."""
        copy = self.expect(change)
        if copy.length < change.length or change.length <= HEADER_BYTES:
            reason = f"segment {change.base} has {copy.length} bytes, which cannot be cut to {change.length}"
            raise ReplicaMismatch(self.log, reason)
        if copy.length == change.length:
            return None
        copy.length, copy.last = change.length, None
        return copy

    def take_away(self, base: int, epoch: int) -> Copy | None:
        """The segment that is not there any more; None if it was not before."""
        copy = self.at(base)
        if copy is not None:
            self._check_epoch(copy, epoch)
            self.all.remove(copy)
        return copy
