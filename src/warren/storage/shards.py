"""What a store keeps of the shards of a cluster: as a copy, or as the one that leads.

    find(shard)              in a thread: what there is of it
    follow(shard, found)     a `Replica`, which takes what the leader sends
    lead(replica, …)         a `LedShard`, when all that was taken is safe
    follow_again(led, …)     a `Replica` once more
    clear(replica, …)        an empty `Replica`: the store does not keep the shard any more

    data directory/shards/12/129/    the logs of queue 129 of shard 12, as `log_directory.py` draws them
    data directory/shards.log        see shards_file.py
    data directory/diverged/         see diverged.py

A start neither adopts nor deletes anything in `shards`, whether the broker is in a cluster or not: only what
the leader of a shard says, or whoever knows the definitions of the cluster, removes a log there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warren.broker.timers import Timer, Timers
from warren.storage.commit import GroupCommit
from warren.storage.diverged import Diverged
from warren.storage.files import OpenFiles, names_in
from warren.storage.housekeeping import Housekeeping
from warren.storage.journal import CLUSTER_ROUND_BYTES_MAX
from warren.storage.led_shard import LedShard, LogTools, OpenLog
from warren.storage.log_directory import DELETED, OFFSETS
from warren.storage.log_steps import LOOK_AGAIN_SECONDS, RETRY_SECONDS
from warren.storage.named_offsets import NamedOffsets, read_offsets
from warren.storage.problems import Logger, Problems
from warren.storage.replica import Replica
from warren.storage.replica_files import CopiedSegment
from warren.storage.replica_log import ReplicaLog
from warren.storage.replica_recovery import FoundLog, find_logs
from warren.storage.replication import LogId, RemoveLog
from warren.storage.segment import Segment
from warren.storage.segment_copies import Copy, ReplicaMismatch
from warren.storage.segment_life import Life
from warren.storage.shards_file import ShardNotes, open_shards_file
from warren.storage.stream_log import SegmentedStream

SHARDS = "shards"
CLOSE_WORK = 100  # units of work that it costs to make a log that was led a copy

Spread: TypeAlias = Callable[[Iterator[int], Callable[[], None]], None]
"""Does work in steps that tell what they have cost, over as many turns as that takes; then it calls back."""


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """What the shards need of the store's settings, and of how it ended."""

    sync: bool
    machine_went_down: bool  # since the store was open last, and it was not closed well
    segment_bytes: int
    stream_segment_bytes: int


class Shards:
    """All shards of a store. It is also what their logs share (`CopyTools`)."""

    def __init__(
        self,
        root: Path,
        commit: GroupCommit,
        files: OpenFiles,
        housekeeping: Housekeeping,
        problems: Problems,
        log: Logger,
        *,
        settings: ShardSettings,
        timers: Timers,
        call_from_thread: Callable[[Callable[[], None]], None],
        is_stream: Callable[[int], bool | None],
        spread: Spread,
    ) -> None:
        self.root = root
        self.path = root / SHARDS
        self.commit = commit
        self.files = files
        self.housekeeping = housekeeping
        self.problems = problems
        self.log = log
        self.settings = settings
        self.timers = timers
        self.call_from_thread = call_from_thread  # has the event loop call something, from any thread
        self.is_stream = is_stream  # whether a queue is a stream, by its number; None if nobody knows
        self.spread = spread
        self.sync = settings.sync
        self.diverged = Diverged(root, files, log, sync=settings.sync)
        self.file = open_shards_file(
            root, files, log, sync=settings.sync, machine_went_down=settings.machine_went_down
        )
        self.notes: ShardNotes = self.file.lines  # type: ignore[assignment]  # it was opened with these
        commit.journal.cuts = self.notes.cuts
        commit.journal.round_bytes_max = CLUSTER_ROUND_BYTES_MAX
        commit.add_lines(self.file)

    # --- what is known of shards ---

    @property
    def store_id(self) -> str:
        """Chance bytes, made once: they stand for all that this store has ever acked."""
        return self.notes.store_id

    def epoch_of(self, shard: int) -> int:
        """The highest epoch of a shard that is known here; 0 if none is."""
        return self.notes.epochs.get(shard, 0)

    def note_epoch(self, shard: int, epoch: int) -> None:
        """Remember an epoch. It is safe with the round of the group commit that gathers now: whoever must not
        go on before waits for `commit.when_safe`. A batch that is applied afterwards is not safe before it.
        """
        self.notes.note_epoch(shard, epoch)
        if self.file.has_news():
            self.commit.schedule()

    def is_whole(self, shard: int) -> bool:
        """Whether all that this store should have of a shard is there, as far as the store has noted."""
        return shard not in self.notes.broken

    def note_whole(self, shard: int, *, is_whole: bool) -> None:
        """Remember whether something of a shard is missing, as `note_epoch` remembers an epoch."""
        self.notes.note_whole(shard, is_whole=is_whole)
        if self.file.has_news():
            self.commit.schedule()

    def there(self) -> list[int]:
        """The shards of which there is a directory."""
        names = names_in(str(self.path)) if self.path.exists() else []
        return sorted(int(name) for name in names if name.isdecimal())

    # --- roles ---

    def find(self, shard: int) -> list[FoundLog]:
        """In a thread: what there is of a shard. Its directory is made if it is not there."""
        path = self.path / str(shard)
        if not path.exists():
            self.files.make_directory(str(path))
            for directory in (self.path, self.root) if self.sync else ():
                self.files.sync(str(directory))
        down = self.settings.machine_went_down
        return find_logs(str(path), self.problems, machine_went_down=down)

    def follow(
        self, shard: int, found: Iterable[FoundLog], *, on_mismatch: Callable[[ReplicaMismatch], None]
    ) -> Replica:
        """The copies of a shard, which were found just before. `on_mismatch` is called if one of them turns
        out to be another than it was taken for.
        """
        return Replica(shard, str(self.path / str(shard)), self, found, on_mismatch=on_mismatch)

    def lead(self, replica: Replica, epoch: int, then: Callable[[LedShard], None]) -> None:
        """Lead a shard in an epoch: `then` is called when all that was applied to its copies is safe. Nothing
        may be applied to them any more.
        """
        tools = LogTools(
            self.commit,
            self.files,
            self.housekeeping,
            self.problems,
            self.log,
            self.sync,
            self.settings.segment_bytes,
            self.settings.stream_segment_bytes,
        )

        def is_settled() -> None:
            copied = [copy.segment for log in replica.logs.values() for copy in log.copies.all]
            segments = [segment for segment in copied if segment is not None]
            self._when_quiet(segments, lambda: is_quiet(segments))

        def is_quiet(segments: list[CopiedSegment]) -> None:
            self._close_files(segments)
            then(LedShard(replica, epoch, tools))

        self.note_epoch(replica.shard, epoch)
        replica.when_settled(is_settled)

    def follow_again(self, led: LedShard, then: Callable[[Replica], None]) -> None:
        """Another node leads now: `then` is called when all that was appended here is safe. Nobody may use
        the logs of this shard any more.
        """
        led.after_reading(lambda: self._let_go(led, then))

    def _let_go(self, led: LedShard, then: Callable[[Replica], None]) -> None:
        def has_let_go() -> None:
            self.commit.when_safe(is_safe)

        def is_safe(_round: int) -> None:
            every = [segment for some in led.ended.values() for segment in some]
            self._when_quiet(every, is_quiet)

        def is_quiet() -> None:
            self.spread(self._closing_logs(led), lambda: then(led.replica))

        self.spread(led.letting_go(), has_let_go)

    def _closing_logs(self, led: LedShard) -> Iterator[int]:
        """All logs that were led become copies, but for those of deleted queues."""
        for log, segments in led.ended.items():
            if not led.is_deleted(log):
                self._close_log(led, log, segments)
                yield CLOSE_WORK
        for log in [log for log in led.replica.logs if led.is_deleted(log)]:
            del led.replica.logs[log]
            led.replica.removed.add(log)

    def clear(self, replica: Replica, then: Callable[[Replica], None]) -> None:
        """Delete all copies of a shard: `then` is called with what takes their place when all files are gone,
        and nothing in the background deletes any more.
        """
        highest = {log: (copy.highest_base, copy.highest_epoch) for log, copy in replica.logs.items()}
        paths = [copy.directory.path for log, copy in replica.logs.items() if not log.part]

        def is_over() -> None:
            cleared = Replica(replica.shard, replica.path, self, on_mismatch=replica.on_mismatch)
            cleared.before = {**replica.before, **highest}
            then(cleared)

        def look_at_disk() -> None:  # in the thread that deletes them, perhaps not all at once
            are_there = any(Path(path).exists() or Path(path + DELETED).exists() for path in paths)
            self.call_from_thread(look_again if are_there else is_over)

        def look_again() -> None:
            self.timers.call_later(LOOK_AGAIN_SECONDS, look)

        def look() -> None:
            self.housekeeping.attempt(
                "cannot look at copies",
                replica.path,
                look_at_disk,
                lambda: self.call_from_thread(look_again),
            )

        removals = [RemoveLog(log) for log in replica.logs if not log.part]
        replica.apply(removals, look)

    def _when_quiet(self, segments: list[Segment] | list[CopiedSegment], then: Callable[[], None]) -> None:
        """Call back when nothing in the background has to do with these segments any more: marks are written,
        no ack file is being written anew, and what was dropped is deleted.
        """

        def look() -> None:
            self.commit.write_marks()
            if any(segment.rewriting or segment.marked for segment in segments):
                self.timers.call_later(LOOK_AGAIN_SECONDS, look)
            else:
                self.housekeeping.attempt(
                    "cannot go on",
                    str(self.path),
                    lambda: self.call_from_thread(then),
                    lambda: self.call_from_thread(try_again),
                )

        def try_again() -> None:
            self.timers.call_later(RETRY_SECONDS, look)

        look()

    def _close_files(self, segments: list[CopiedSegment]) -> None:
        """A recovery may delete some of them. If another one gets the same path later, it must not be written
        into an open file that has no name any more.
        """
        for segment in segments:
            for suffix in (".seg", ".acks"):
                self.files.close(segment.path + suffix)

    def _close_log(self, led: LedShard, log: LogId, segments: list[Segment]) -> None:
        """A log that was led becomes a copy."""
        replica, opened = led.replica, led.opened[log]
        old = replica.logs.pop(log)
        copy = ReplicaLog(led.shard, log, old.directory, self, on_mismatch=replica.on_mismatch)
        copy.parts = old.parts
        copy.note_highest(max(old.highest_base, led.taps[log].highest), max(old.highest_epoch, led.epoch))
        copy.copies.all = [_copy_of(segment, copy) for segment in segments if segment.end]
        copy.named = self._named_offsets(copy, opened)
        if log.part:
            parts = replica.log(LogId(log.queue)).parts
            parts[:] = [copy if part is old else part for part in parts]
        replica.logs[log] = copy

    def _named_offsets(self, copy: ReplicaLog, opened: OpenLog) -> NamedOffsets | None:
        if not isinstance(opened, SegmentedStream):
            return None
        path = Path(copy.directory.path, OFFSETS)
        self.files.close(str(path))
        _, size = read_offsets(path)
        return NamedOffsets(
            copy.directory, self.files, self.housekeeping, dict(opened.offsets), size, sync=self.sync
        )

    # --- what the logs share ---

    def note_cut(self, path: str, epoch: int, length: int) -> None:
        """Bytes of a segment behind this length are not to come back from the journal."""
        self.notes.note_cut(f"{Path(path).relative_to(self.root)}@{epoch}", length)
        self.commit.schedule()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.timers.call_later(seconds, callback)

    def close(self) -> None:
        """When nothing is written any more. Without syncs, whatever was acked is synced now."""
        if not self.sync:
            self.files.sync_all(str(self.root))
        self.file.close()


def _copy_of(segment: Segment, log: ReplicaLog) -> Copy:
    """The same segment, as a copy of which nothing is on its way to disk."""
    copied = CopiedSegment(segment.path, segment.base, log.directory, segment.epoch, log).found(
        length=segment.end, last=segment.last, count=segment.count, marks_written=segment.marks_written
    )
    copied.unjournaled = segment.unjournaled
    if segment.is_closed():
        copied.enter(Life.CLOSED)
        copied.enter(Life.COMPLETE)
    return Copy(segment.base, segment.epoch, segment.end, segment.last, copied, damaged=segment.damaged)
