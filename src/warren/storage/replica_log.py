"""A copy of one log, which another node leads: raw bytes in, the same files out.

    copies     what there is to be of each segment once all that was applied is done: `Copy`
    steps      what is left to do of it, in order; most steps are done at once

Each change is checked when it is applied, against the copies, so that a change that does not fit is refused
at once (`ReplicaMismatch`) and leaves everything as it was. Records go into the round of the group commit
that gathers, marks into the ack file at the end of the turn. Cutting, setting aside and replacing take
longer: first the round that gathers is waited for, so that nothing of the log is on its way to disk, and
then a thread does the work. Whatever comes for the log meanwhile waits.

A process that ends, or a power cut, in the middle of any step leaves files that `replica_recovery.py`
describes as they are: a cut marks file before the records are cut, records before their segment is named
anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from warren.storage.commit import GroupCommit
from warren.storage.diverged import Diverged
from warren.storage.files import OpenFiles
from warren.storage.format import (
    HEADER_BYTES,
    POSITIONS_MAX,
    UnknownVersion,
    bad_marks,
    segment_epoch,
    segment_name,
    walk_records,
)
from warren.storage.housekeeping import Housekeeping
from warren.storage.log_directory import LogDirectory
from warren.storage.named_offsets import NamedOffsets
from warren.storage.replica_files import (
    CopiedSegment,
    cut_segment,
    remove_leftovers,
    replace_marks,
    set_aside,
)
from warren.storage.replication import (
    AllMarks,
    Drop,
    LogChange,
    LogId,
    Marks,
    NamedOffset,
    Records,
    RemoveLog,
    SegmentState,
    SetAside,
    Truncate,
)
from warren.storage.segment import Segment
from warren.storage.segment_life import Life

RETRY_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 0.05  # until it is looked again whether something in the background is over


class ReplicaMismatch(Exception):
    """A change does not fit what is here: the log has to be compared with the leader's again."""

    def __init__(self, log: LogId, reason: str) -> None:
        super().__init__(f"queue {log.queue}{log.part and '/'}{log.part}: {reason}")
        self.log = log
        self.reason = reason


class Surroundings(Protocol):
    """What the logs of a store share."""

    commit: GroupCommit
    files: OpenFiles
    housekeeping: Housekeeping
    diverged: Diverged
    sync: bool

    def note_cut(self, path: str, epoch: int, length: int) -> None: ...
    def call_from_thread(self, callback: Callable[[], None]) -> None: ...
    def call_later(self, seconds: float, callback: Callable[[], None]) -> object: ...
    def is_stream(self, queue: int) -> bool | None: ...


@dataclass
class Copy:
    """What there is to be of one segment."""

    base: int
    epoch: int
    length: int  # bytes of its file
    last: int | None = None  # the position of its last record, if that is known
    damaged: bool = False  # some of the bytes are not what was written
    segment: CopiedSegment | None = None  # as the group commit knows it; None until its first bytes come

    @property
    def state(self) -> SegmentState:
        return SegmentState(self.base, self.epoch, self.length, self.damaged)


class ReplicaLog:
    """A copy of one log."""

    def __init__(
        self,
        shard: int,
        log: LogId,
        directory: LogDirectory,
        around: Surroundings,
        *,
        on_mismatch: Callable[[ReplicaMismatch], None],
    ) -> None:
        self.shard = shard
        self.log = log
        self.directory = directory
        self.around = around
        self.on_mismatch = on_mismatch  # called if files turn out not to be what they were taken for
        self.copies: list[Copy] = []  # in order of their bases
        self.named: NamedOffsets | None = None  # the named offsets of a stream, once there are some
        self.highest_base = 0  # of all segments that this log ever had, while this process runs
        self.highest_epoch = 0  # of these
        self.removing: dict[int, CopiedSegment] = {}  # dropped segments whose files may still be there
        self.steps: deque[Callable[[], bool]] = (
            deque()
        )  # what is left to do; a step that is over returns True
        self.busy = False  # a step is under way
        self.removed = False  # its queue is deleted
        self.parts: list[ReplicaLog] = []  # the queue's other logs, whose directories are in this one's

    # --- what others ask ---

    def states(self) -> list[SegmentState]:
        return [copy.state for copy in self.copies]

    def segment(self, base: int) -> Segment | None:
        """For reading its records and marks; None if it is not there."""
        copy = self._copy(base)
        return None if copy is None else copy.segment

    def offsets(self) -> list[NamedOffset]:
        named = {} if self.named is None else self.named.offsets
        return [NamedOffset(self.log, name, offset) for name, offset in named.items()]

    def do(self, step: Callable[[], bool]) -> None:
        """Do something when all that was applied before is done."""
        self.steps.append(step)
        if not self.busy:
            self._go_on()

    @property
    def is_settled(self) -> bool:
        return not self.busy and not self.steps

    def _go_on(self) -> None:
        self.busy = False
        while self.steps and not self.busy:
            self.busy = not self.steps.popleft()()

    # --- applying ---

    def apply(self, change: LogChange) -> None:
        """Check a change, and carry it out, or have it carried out when those before are done."""
        if self.removed:
            raise ReplicaMismatch(self.log, "the queue was deleted")
        if isinstance(change, Records):
            self._apply_records(change)
        elif isinstance(change, Marks):
            self._apply_marks(change)
        elif isinstance(change, Drop):
            self._apply_drop(change)
        elif isinstance(change, NamedOffset):
            self.do(lambda: self._name_offset(change))
        elif isinstance(change, Truncate):
            self._apply_truncate(change)
        elif isinstance(change, SetAside):
            self._apply_set_aside(change)
        elif isinstance(change, AllMarks):
            self._apply_all_marks(change)
        else:
            self._apply_remove(change)

    def _index(self, base: int) -> int:
        return bisect_left(self.copies, base, key=lambda copy: copy.base)

    def _copy(self, base: int) -> Copy | None:
        if self.copies and self.copies[-1].base == base:
            return self.copies[-1]
        index = self._index(base)
        found = self.copies[index] if index < len(self.copies) else None
        return found if found is not None and found.base == base else None

    def _expect(self, change: Records | Marks | Truncate | AllMarks) -> Copy:
        copy = self._copy(change.base)
        if copy is None:
            raise ReplicaMismatch(self.log, f"no segment {change.base}")
        if copy.epoch != change.epoch:
            reason = f"segment {change.base} is of epoch {copy.epoch} here, and not of {change.epoch}"
            raise ReplicaMismatch(self.log, reason)
        return copy

    # --- records ---

    def _apply_records(self, records: Records) -> None:
        copy = self._begin(records) if records.offset == 0 else self._expect(records)
        if records.offset and (copy.length != records.offset or copy.damaged):
            what = "is damaged" if copy.damaged else f"has {copy.length} bytes, and not {records.offset}"
            raise ReplicaMismatch(self.log, f"segment {records.base} {what}")
        self._check(records, copy)
        if records.offset == 0:
            self.copies.insert(self._index(copy.base), copy)
        copy.length = records.offset + len(records.data)
        copy.last = records.last
        self.do(lambda: self._append(copy, records))

    def _begin(self, records: Records) -> Copy:
        if self._copy(records.base) is not None:
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
        before = self.copies[index - 1] if index else None
        if before is not None and before.last is not None and before.last >= copy.base:
            raise ReplicaMismatch(self.log, f"segment {copy.base} begins within the one before it")
        after = next((one for one in self.copies[index : index + 2] if one.base > copy.base), None)
        if (after is not None and last >= after.base) or last - copy.base >= POSITIONS_MAX:
            raise ReplicaMismatch(self.log, f"segment {copy.base} has positions up to {last}")

    def _append(self, copy: Copy, records: Records) -> bool:
        if copy.segment is None:
            if self._path_is_taken(copy.base):
                self._free_path(copy, records)
                return False
            copy.segment = self._new_segment(copy)
            self._close_before(copy)
        elif copy.segment.is_closed():
            self._reopen(copy, records)
            return False
        segment, commit = copy.segment, self.around.commit
        if not segment.dirty:
            commit.gather(segment)
        segment.append_raw(records.data, records.last, records.count)
        commit.unsafe_bytes += len(records.data)
        return True

    def path_of(self, base: int) -> str:
        return f"{self.directory.path}/{segment_name(base)}"

    def _new_segment(self, copy: Copy) -> CopiedSegment:
        """If a segment of this base and epoch was here before, the journal may have bytes of it: those are
        not to come back, so this one keeps out of the journal.
        """
        segment = CopiedSegment(self.path_of(copy.base), copy.base, self.directory, copy.epoch, self)
        if copy.base <= self.highest_base and copy.epoch <= self.highest_epoch:
            segment.unjournaled = True
            self.around.note_cut(segment.path, copy.epoch, 0)
        self.note_highest(copy.base, copy.epoch)
        return segment

    def note_highest(self, base: int, epoch: int) -> None:
        self.highest_base = max(self.highest_base, base)
        self.highest_epoch = max(self.highest_epoch, epoch)

    def _close_before(self, copy: Copy) -> None:
        """A segment begins behind all others: the one before gets no more records, as a rule."""
        if len(self.copies) < 2 or copy is not self.copies[-1]:  # noqa: PLR2004 - it, and the one before
            return
        before = self.copies[-2].segment
        if before is not None and not before.is_closed():
            before.enter(Life.CLOSED)
            if not before.dirty and before.flying is None:
                self.around.commit.complete(before)

    def _path_is_taken(self, base: int) -> bool:
        path = self.path_of(base)
        return base in self.removing or Path(path + ".seg").exists() or Path(path + ".acks").exists()

    def _free_path(self, copy: Copy, records: Records) -> None:
        """Files of an earlier segment with this base have to go first."""
        path = self.path_of(copy.base)

        def free() -> None:
            old = self.removing.pop(copy.base, None)
            if old is not None:
                old.superseded = True  # if to delete it has failed before, that is not tried again
            remove_leftovers(path, self.around.files, sync=self.around.sync)

        def freed() -> None:
            copy.segment = self._new_segment(copy)
            self._close_before(copy)
            self._append(copy, records)

        self._in_thread("cannot delete segment", path, free, freed)

    def _reopen(self, copy: Copy, records: Records) -> None:
        """A segment that seemed to be over goes on: the files that were made when it was over have to go."""
        old = copy.segment
        assert old is not None, "it was closed"

        def remove() -> None:
            for suffix in (".idx", ".due", ".chunks"):
                Path(old.path + suffix).unlink(missing_ok=True)

        def reopened() -> None:
            copy.segment = old.again(self)
            self._append(copy, records)

        self._retire(old)
        self._in_thread("cannot reopen segment", old.path, remove, reopened)

    # --- marks ---

    def _apply_marks(self, marks: Marks) -> None:
        copy = self._expect(marks)
        if bad_marks(marks.data, marks.base):
            raise ReplicaMismatch(self.log, f"marks of segment {marks.base} are damaged")
        self.do(lambda: self._mark(copy, marks.data))

    def _mark(self, copy: Copy, data: bytes) -> bool:
        segment = copy.segment
        if segment is not None and data:  # it is None if the segment was dropped meanwhile
            segment.add_marks(data)
            if not segment.marked:
                self.around.commit.mark(segment)
        return True

    def _apply_all_marks(self, marks: AllMarks) -> None:
        copy = self._expect(marks)
        if bad_marks(marks.data, marks.base):
            raise ReplicaMismatch(self.log, f"marks of segment {marks.base} are damaged")
        self.do(lambda: self._replace_marks(copy, marks.data))

    def _replace_marks(self, copy: Copy, data: bytes) -> bool:
        segment = copy.segment
        assert segment is not None, "its records came before"
        if segment.rewriting:
            return self._later(lambda: self._replace_marks(copy, data))

        def replace() -> None:
            replace_marks(segment.path, copy.base, data, self.around.files, sync=self.around.sync)

        def replaced() -> None:
            segment.marks_written = HEADER_BYTES + len(data)

        self._in_thread("cannot replace ack file", segment.path, replace, replaced, segment)
        return False

    def _later(self, again: Callable[[], bool]) -> bool:
        """A step has to wait for something in the background, such as an ack file that is written anew."""

        def look_again() -> None:
            if again():
                self._go_on()

        self.around.call_later(LOOK_AGAIN_SECONDS, look_again)
        return False

    def _name_offset(self, change: NamedOffset) -> bool:
        if self.named is None:
            self.named = NamedOffsets(
                self.directory, self.around.files, self.around.housekeeping, {}, 0, sync=self.around.sync
            )
        self.named.note(change.name, change.offset)
        self.around.commit.note_offsets(self.named)
        return True

    # --- what goes ---

    def _take_away(self, base: int, epoch: int) -> Copy | None:
        """The copy of a segment that is to go; None if it is gone already."""
        copy = self._copy(base)
        if copy is not None and copy.epoch != epoch:
            reason = f"segment {base} is of epoch {copy.epoch} here, and not of {epoch}"
            raise ReplicaMismatch(self.log, reason)
        if copy is not None:
            self.copies.remove(copy)
        return copy

    def _apply_drop(self, drop: Drop) -> None:
        copy = self._take_away(drop.base, drop.epoch)
        if copy is not None:
            self.do(lambda: self._drop(copy))

    def _drop(self, copy: Copy) -> bool:
        segment, copy.segment = copy.segment, None
        if segment is not None and not segment.is_dropped():
            self.removing[copy.base] = segment
            self.around.commit.drop(segment)
        return True

    def _apply_set_aside(self, change: SetAside) -> None:
        copy = self._take_away(change.base, change.epoch)
        if copy is not None:
            self.do(lambda: self._set_aside(copy))

    def _set_aside(self, copy: Copy) -> bool:
        segment = copy.segment
        path = self.path_of(copy.base)
        if segment is not None and segment.rewriting:
            return self._later(lambda: self._set_aside(copy))

        def work() -> None:
            set_aside(path, self.shard, self.log, copy.state, self.around.diverged, self.around.files)

        def done() -> None:
            copy.segment = None

        if segment is not None:
            self._retire(segment)
        self._in_thread("cannot set aside segment", path, work, done, segment)
        return False

    def _apply_truncate(self, change: Truncate) -> None:
        copy = self._expect(change)
        if copy.length < change.length or change.length <= HEADER_BYTES:
            raise ReplicaMismatch(
                self.log, f"segment {change.base} has {copy.length} bytes, {change.length} left"
            )
        if copy.length == change.length:
            return
        copy.length, copy.last = change.length, None
        self.do(lambda: self._truncate(copy, change.length))

    def _truncate(self, copy: Copy, length: int) -> bool:
        segment = copy.segment
        assert segment is not None, "it has more bytes than that"
        if segment.rewriting:
            return self._later(lambda: self._truncate(copy, length))
        ends: list[tuple[int, int, int] | None] = []

        def work() -> None:
            ends[:] = [
                cut_segment(segment, self.shard, self.log, length, self.around.diverged, self.around.files)
            ]

        def done() -> None:
            if ends[0] is None:
                copy.damaged = True
                reason = f"no record of segment {copy.base} ends at {length}"
                self.on_mismatch(ReplicaMismatch(self.log, reason))
                return
            last, count, marks = ends[0]
            copy.segment = segment.again(self, length=length, last=last, count=count, marks_written=marks)
            copy.segment.unjournaled = True
            copy.last = last if copy.last is None else copy.last

        self.around.note_cut(segment.path, copy.epoch, length)
        self._retire(segment)
        self._in_thread("cannot cut segment", segment.path, work, done, segment)
        return False

    def _apply_remove(self, _change: RemoveLog) -> None:
        self.removed = True
        copies, self.copies = self.copies, []
        self.do(lambda: self._remove(copies))

    def _remove(self, copies: list[Copy]) -> bool:
        """All that is on its way to disk has to be there first: then the directory goes in the background."""
        if any(not part.is_settled for part in self.parts):
            return self._later(lambda: self._remove(copies))

        def removed() -> None:
            segments = [copy.segment for copy in copies if copy.segment is not None]
            self.directory.deleted = True
            self.around.commit.forget(segments, self.directory.path)

        self._in_thread("cannot delete directory", self.directory.path, lambda: None, removed)
        return False

    # --- steps that take longer ---

    def _retire(self, segment: CopiedSegment) -> None:
        """Nothing more is appended to this object: another one, or none, takes its place. The round that
        gathers still writes what it has. An index that was to be written is not.
        """
        segment.is_retired = True

    def _in_thread(
        self,
        trouble: str,
        path: str,
        work: Callable[[], None],
        done: Callable[[], None],
        segment: CopiedSegment | None = None,
    ) -> None:
        """When nothing of this log is on its way to disk: do some work in the thread of housekeeping, and
        what follows on the event loop. If it fails it is tried again until it succeeds. Marks of a
        `segment` whose ack file is replaced, and that could not be written until then, are given up: the
        new file counts.
        """
        around = self.around

        def close_files() -> None:
            for suffix in (".seg", ".acks"):
                around.files.close(path + suffix)

        def finish() -> None:
            close_files()
            done()
            self._go_on()

        def submit() -> None:
            around.housekeeping.attempt(trouble, path, run, failed)

        def run() -> None:
            work()
            around.call_from_thread(finish)

        def try_again() -> None:
            around.call_later(RETRY_SECONDS, submit)

        def failed() -> None:
            around.call_from_thread(try_again)

        def begin(_round: int) -> None:
            around.commit.write_marks()  # and deletes what was dropped: before the work, in the same thread
            if segment is not None:
                segment.forget_marks()
            close_files()
            submit()

        around.commit.when_safe(begin)

    def write_index(self, segment: CopiedSegment) -> None:
        """In the background: write the files beside a segment that is over, if it is known what they are."""
        if segment.is_retired or segment.is_dropped():
            return
        is_stream = self.around.is_stream(self.log.queue)
        if is_stream is not None:
            segment.write_files(is_stream=is_stream)
