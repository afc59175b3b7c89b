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

from collections.abc import Callable
from pathlib import Path

from warren.storage.format import bad_marks, segment_name
from warren.storage.log_directory import LogDirectory
from warren.storage.log_steps import CopyTools, LogSteps
from warren.storage.named_offsets import NamedOffsets
from warren.storage.replica_files import (
    CopiedSegment,
    compare_marks,
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
from warren.storage.segment_copies import Copy, ReplicaMismatch, SegmentCopies
from warren.storage.segment_life import Life


class ReplicaLog:
    """A copy of one log."""

    def __init__(
        self,
        shard: int,
        log: LogId,
        directory: LogDirectory,
        tools: CopyTools,
        *,
        on_mismatch: Callable[[ReplicaMismatch], None],
    ) -> None:
        self.shard = shard
        self.log = log
        self.directory = directory
        self.tools = tools
        self.on_mismatch = on_mismatch  # called if files turn out not to be what they were taken for
        self.copies = SegmentCopies(log)  # what there is to be of each segment
        self.named: NamedOffsets | None = None  # the named offsets of a stream, once there are some
        self.highest_base = 0  # of all segments that this log ever had, while this process runs
        self.highest_epoch = 0  # of these
        self.removing: dict[int, CopiedSegment] = {}  # dropped segments whose files may still be there
        self.steps = LogSteps(tools)  # what is left to do
        self.removed = False  # its queue is deleted
        self.parts: list[ReplicaLog] = []  # the queue's other logs, whose directories are in this one's

    # --- what others ask ---

    def states(self) -> list[SegmentState]:
        return [copy.state for copy in self.copies.all]

    def segment(self, base: int) -> Segment | None:
        """For reading its records and marks; None if it is not there."""
        copy = self.copies.at(base)
        return None if copy is None else copy.segment

    def offsets(self) -> list[NamedOffset]:
        named = {} if self.named is None else self.named.offsets
        return [NamedOffset(self.log, name, offset) for name, offset in named.items()]

    @property
    def is_settled(self) -> bool:
        """Whether all that was applied is done."""
        return self.steps.are_over

    # --- applying ---

    def apply(self, change: LogChange) -> None:
        """Check a change, and carry it out, or have it carried out when those before are done."""
        if self.removed:
            raise ReplicaMismatch(self.log, "the queue was deleted")
        if isinstance(change, Records):
            copy = self.copies.accept(change)
            self.steps.do(lambda: self._append(copy, change))
        elif isinstance(change, Marks):
            self._apply_marks(change)
        elif isinstance(change, Drop):
            self._apply_drop(change)
        elif isinstance(change, NamedOffset):
            self.steps.do(lambda: self._name_offset(change))
        elif isinstance(change, Truncate):
            self._apply_truncate(change)
        elif isinstance(change, SetAside):
            self._apply_set_aside(change)
        elif isinstance(change, AllMarks):
            self._apply_all_marks(change)
        else:
            self._apply_remove(change)

    # --- records ---

    def _append(self, copy: Copy, records: Records) -> bool:
        if copy.segment is None:
            if self._path_is_taken(copy.base):
                return self._free_path(copy, records)
            copy.segment = self._new_segment(copy)
            self._close_before(copy)
        elif copy.segment.is_closed():
            return self._reopen(copy, records)
        segment, commit = copy.segment, self.tools.commit
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
            self.tools.note_cut(segment.path, copy.epoch, 0)
        self.note_highest(copy.base, copy.epoch)
        return segment

    def note_highest(self, base: int, epoch: int) -> None:
        self.highest_base = max(self.highest_base, base)
        self.highest_epoch = max(self.highest_epoch, epoch)

    def _close_before(self, copy: Copy) -> None:
        """A segment begins behind all others: the one before gets no more records, as a rule."""
        found = self.copies.before_last(copy)
        before = None if found is None else found.segment
        if before is not None and not before.is_closed():
            before.enter(Life.CLOSED)
            if not before.dirty and before.flying is None:
                self.tools.commit.complete(before)

    def _path_is_taken(self, base: int) -> bool:
        path = self.path_of(base)
        return base in self.removing or Path(path + ".seg").exists() or Path(path + ".acks").exists()

    def _free_path(self, copy: Copy, records: Records) -> bool:
        """Files of an earlier segment with this base have to go first."""
        path = self.path_of(copy.base)

        def free() -> None:
            old = self.removing.pop(copy.base, None)
            if old is not None:
                old.superseded = True  # if to delete it has failed before, that is not tried again
            remove_leftovers(path, self.tools.files, sync=self.tools.sync)

        def freed() -> None:
            copy.segment = self._new_segment(copy)
            self._close_before(copy)
            self._append(copy, records)

        return self.steps.in_thread("cannot delete segment", path, free, freed)

    def _reopen(self, copy: Copy, records: Records) -> bool:
        """A segment that seemed to be over goes on: the files that were made when it was over have to go."""
        old = copy.segment
        assert old is not None, "it was closed"
        if old.rewriting:
            return self.steps.later(lambda: self._reopen(copy, records))

        def remove() -> None:
            for suffix in (".idx", ".due", ".chunks"):
                Path(old.path + suffix).unlink(missing_ok=True)

        def reopened() -> None:
            copy.segment = old.again(self)
            self._append(copy, records)

        self._retire(old)
        return self.steps.in_thread("cannot reopen segment", old.path, remove, reopened, old)

    # --- marks ---

    def _apply_marks(self, marks: Marks) -> None:
        copy = self.copies.expect(marks)
        if bad_marks(marks.data, marks.base):
            raise ReplicaMismatch(self.log, f"marks of segment {marks.base} are damaged")
        self.steps.do(lambda: self._mark(copy, marks.data))

    def _mark(self, copy: Copy, data: bytes) -> bool:
        segment = copy.segment
        if segment is not None and data:  # it is None if the segment was dropped meanwhile
            segment.add_marks(data)
            if not segment.marked:
                self.tools.commit.mark(segment)
        return True

    def _apply_all_marks(self, marks: AllMarks) -> None:
        copy = self.copies.expect(marks)
        if bad_marks(marks.data, marks.base):
            raise ReplicaMismatch(self.log, f"marks of segment {marks.base} are damaged")
        self.steps.do(lambda: self._replace_marks(copy, marks.data))

    def _replace_marks(self, copy: Copy, data: bytes) -> bool:
        segment = copy.segment
        assert segment is not None, "its records came before"
        if segment.rewriting:
            return self.steps.later(lambda: self._replace_marks(copy, data))
        if not data and not segment.marks_written:
            segment.forget_marks()
            return True
        found: list[tuple[int, bytes]] = []

        def replace() -> None:
            path, files, sync = segment.path, self.tools.files, self.tools.sync
            known = compare_marks(path, copy.base, data)
            found.append(known or (replace_marks(path, copy.base, data, files, sync=sync), b""))

        def replaced() -> None:
            segment.marks_written, added = found[-1]
            self._mark(copy, added)

        return self.steps.in_thread("cannot replace ack file", segment.path, replace, replaced, segment)

    def _name_offset(self, change: NamedOffset) -> bool:
        if self.named is None:
            self.named = NamedOffsets(
                self.directory, self.tools.files, self.tools.housekeeping, {}, 0, sync=self.tools.sync
            )
        self.named.note(change.name, change.offset)
        self.tools.commit.note_offsets(self.named)
        return True

    # --- what goes ---

    def _apply_drop(self, drop: Drop) -> None:
        copy = self.copies.take_away(drop.base, drop.epoch)
        if copy is not None:
            self.steps.do(lambda: self._drop(copy))

    def _drop(self, copy: Copy) -> bool:
        segment, copy.segment = copy.segment, None
        if segment is not None and not segment.is_dropped():
            self.removing[copy.base] = segment
            self.tools.commit.drop(segment)
        return True

    def _apply_set_aside(self, change: SetAside) -> None:
        copy = self.copies.take_away(change.base, change.epoch)
        if copy is not None:
            self.steps.do(lambda: self._set_aside(copy))

    def _set_aside(self, copy: Copy) -> bool:
        segment = copy.segment
        path = self.path_of(copy.base)
        if segment is not None and segment.rewriting:
            return self.steps.later(lambda: self._set_aside(copy))

        def work() -> None:
            set_aside(path, self.shard, self.log, copy.state, self.tools.diverged, self.tools.files)

        def done() -> None:
            copy.segment = None

        if segment is not None:
            self._retire(segment)
        return self.steps.in_thread("cannot set aside segment", path, work, done, segment)

    def _apply_truncate(self, change: Truncate) -> None:
        copy = self.copies.cut(change)
        if copy is not None:
            self.steps.do(lambda: self._truncate(copy, change.length))

    def _truncate(self, copy: Copy, length: int) -> bool:
        segment = copy.segment
        assert segment is not None, "it has more bytes than that"
        if segment.rewriting:
            return self.steps.later(lambda: self._truncate(copy, length))
        ends: list[tuple[int, int, int] | None] = []

        def work() -> None:
            ends[:] = [
                cut_segment(segment, self.shard, self.log, length, self.tools.diverged, self.tools.files)
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

        self.tools.note_cut(segment.path, copy.epoch, length)
        self._retire(segment)
        return self.steps.in_thread("cannot cut segment", segment.path, work, done, segment)

    def _apply_remove(self, _change: RemoveLog) -> None:
        self.removed = True
        copies, self.copies = self.copies.all, SegmentCopies(self.log)
        self.steps.do(lambda: self._remove(copies))

    def _remove(self, copies: list[Copy]) -> bool:
        """All that is on its way to disk has to be there first: then the directory goes in the background."""
        if any(not part.is_settled for part in self.parts):
            return self.steps.later(lambda: self._remove(copies))

        def removed() -> None:
            segments = [copy.segment for copy in copies if copy.segment is not None]
            self.directory.deleted = True
            self.tools.commit.forget(segments, self.directory.path)

        return self.steps.in_thread("cannot delete directory", self.directory.path, lambda: None, removed)

    # --- steps that take longer ---

    def _retire(self, segment: CopiedSegment) -> None:
        """Nothing more is appended to this object: another one, or none, takes its place. The round that
        gathers still writes what it has. An index that was to be written is not.
        """
        segment.is_retired = True

    def write_index(self, segment: CopiedSegment) -> None:
        """In the background: write the files beside a segment that is over, if it is known what they are."""
        if segment.is_retired or segment.is_dropped():
            return
        is_stream = self.tools.is_stream(self.log.queue)
        if is_stream is not None:
            segment.write_files(is_stream=is_stream)
