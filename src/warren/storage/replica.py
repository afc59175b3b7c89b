"""The copies of all logs of a shard that another node leads.

What its leader sends comes in batches (`apply`). A batch is safe, and may be acked, when all its changes
are done and a round of the group commit has synced them, and so are those of the batches before it. Then
`then` is called.

    applied      checked, in the order in which they come; what does not fit is refused (`ReplicaMismatch`)
    done         gathered for a round, or carried out in a thread
    safe         synced

`inventory` says what there is once all that was applied is done. If the process ends before that, the next
start looks at the files, and its inventory says what these have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from warren.storage.log_directory import LogDirectory, is_part
from warren.storage.log_steps import CopyTools
from warren.storage.named_offsets import NamedOffsets
from warren.storage.replica_files import CopiedSegment
from warren.storage.replica_log import ReplicaLog
from warren.storage.replica_recovery import FoundLog, FoundSegment
from warren.storage.replication import LogChange, LogId, RemoveLog, SegmentState
from warren.storage.segment_copies import Copy, ReplicaMismatch
from warren.storage.segment_life import Life


class Batch:
    """Changes that came together."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then  # called when all of it is safe
        self.left = 0  # logs that have not carried out their changes yet


class Replica:
    """The copies of one shard's logs."""

    def __init__(
        self,
        shard: int,
        path: str,
        tools: CopyTools,
        found: Iterable[FoundLog] = (),
        *,
        on_mismatch: Callable[[ReplicaMismatch], None],
    ) -> None:
        self.shard = shard
        self.path = path  # the directory of the shard
        self.tools = tools
        self.on_mismatch = on_mismatch  # called if a log turns out to be another than it was taken for, later
        self.logs: dict[LogId, ReplicaLog] = {}
        self.before: dict[LogId, tuple[int, int]] = {}  # highest base and epoch of logs that were cleared
        self.removed: set[LogId] = set()  # logs that were deleted while this process runs
        self.batches: deque[Batch] = deque()  # that are not done yet, or behind one that is not
        self.done: deque[tuple[int, Batch]] = deque()  # those that are, with the round that makes them safe
        for log in found:
            self._take_over(log)

    def inventory(self) -> dict[LogId, list[SegmentState]]:
        """What there is of each log."""
        return {log: states for log, copy in self.logs.items() if (states := copy.states())}

    def apply(self, changes: Sequence[LogChange], then: Callable[[], None]) -> None:
        """Carry out changes, and call `then` when they are safe. If one of them fails, as one does that does
        not fit (`ReplicaMismatch`), those before it are carried out all the same, and `then` is never called.
        """
        touched: dict[LogId, ReplicaLog] = {}
        try:
            for change in changes:
                self._apply(change, touched)
        except Exception:
            self._add_batch(touched, lambda: None)
            raise
        self._add_batch(touched, then)

    def _add_batch(self, touched: dict[LogId, ReplicaLog], then: Callable[[], None]) -> None:
        """Wait for the logs that were touched. The others are waited for by the batches before."""
        batch = Batch(then)
        for log in touched.values():
            if not log.is_settled:
                batch.left += 1
                log.steps.do(lambda: self._is_done(batch))
        self.batches.append(batch)
        self._go_on()

    def when_settled(self, then: Callable[[], None]) -> None:
        """Call `then` when all that was applied is done and safe."""
        self.apply((), then)

    def _apply(self, change: LogChange, touched: dict[LogId, ReplicaLog]) -> None:
        """Note in `touched` which logs have something to do now."""
        if isinstance(change, RemoveLog):
            touched |= self._remove(change.log)
            return
        if change.log in self.removed:
            raise ReplicaMismatch(change.log, "the queue was deleted")
        log = self.log(change.log)
        log.apply(change)
        touched[change.log] = log

    def _is_done(self, batch: Batch) -> bool:
        batch.left -= 1
        self._go_on()
        return True

    def _go_on(self) -> None:
        commit = self.tools.commit
        while self.batches and not self.batches[0].left:
            if not self.done or self.done[-1][0] != commit.gathering:
                commit.when_safe(self._is_over)
            self.done.append((commit.gathering, self.batches.popleft()))

    def _is_over(self, round_number: int) -> None:
        """Batches that were done by this round are safe."""
        while self.done and self.done[0][0] <= round_number:
            _, batch = self.done.popleft()
            batch.then()

    # --- logs ---

    def log(self, log: LogId) -> ReplicaLog:
        """The copy of a log, which may be empty until now."""
        found = self.logs.get(log)
        if found is None:
            if log.part and not is_part(log.part):
                raise ReplicaMismatch(log, "there is no such part of a queue")
            directory = self.directory_of(log)
            found = ReplicaLog(self.shard, log, directory, self.tools, on_mismatch=self.on_mismatch)
            found.note_highest(*self.before.get(log, (0, 0)))
            self.logs[log] = found
            if log.part:
                self.log(LogId(log.queue)).parts.append(found)
        return found

    def directory_of(self, log: LogId) -> LogDirectory:
        if not log.part:
            return LogDirectory(f"{self.path}/{log.queue}", self.tools.files)
        parent = self.log(LogId(log.queue)).directory
        return LogDirectory(f"{parent.path}/{log.part}", self.tools.files, parent=parent)

    def _remove(self, log: LogId) -> dict[LogId, ReplicaLog]:
        """The queue of a log is deleted: with it go its parts."""
        going = {
            other: copy
            for other, copy in self.logs.items()
            if other == log or (not log.part and other.queue == log.queue)
        }
        self.removed |= {log, *going}
        for other, copy in going.items():
            if not copy.removed:
                copy.apply(RemoveLog(other))
                copy.steps.do(partial(self._forget, other))
        return going

    def _forget(self, log: LogId) -> bool:
        self.logs.pop(log, None)
        return True

    def _take_over(self, found: FoundLog) -> None:
        log = self.log(found.log)
        log.directory.made = True
        for segment in found.segments:
            log.copies.all.append(_copy_of(segment, log))
            log.note_highest(segment.state.base, segment.state.epoch)
        if found.offsets or found.offsets_bytes:
            log.named = NamedOffsets(
                log.directory,
                self.tools.files,
                self.tools.housekeeping,
                found.offsets,
                found.offsets_bytes,
                sync=self.tools.sync,
            )


def _copy_of(found: FoundSegment, log: ReplicaLog) -> Copy:
    base, epoch, length, damaged = found.state
    segment = CopiedSegment(log.path_of(base), base, log.directory, epoch, log).found(
        length=length,
        last=base - 1 if found.last is None else found.last,
        count=found.count,
        marks_written=found.marks_bytes,
    )
    if found.is_complete:
        segment.enter(Life.CLOSED)
        segment.enter(Life.COMPLETE)
    return Copy(base, epoch, length, found.last, segment, damaged=damaged)
