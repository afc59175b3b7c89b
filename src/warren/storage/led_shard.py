"""A shard whose logs this node leads: the logs as queues and streams use them, and what changes in them.

A node that begins to lead has copies of all logs (`Replica`), which it can hand on at once. A log is
opened, which is a recovery, when it is first needed. So each log is in one of two states, and both can be
copied from:

    not opened    a `ReplicaLog`, to which nothing is added
    opened        a `QueueLog` or a `SegmentedStream`, sealed in the epoch, with a tap

What a recovery removes, and marks as delivered, are changes like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warren.storage.commit import GroupCommit
from warren.storage.copying import (
    MarksSource,
    SegmentSource,
    marks_of,
    segment_at,
    source_of,
    states_of,
    unwritten,
)
from warren.storage.files import OpenFiles
from warren.storage.format import encode_mark
from warren.storage.housekeeping import Housekeeping
from warren.storage.log_tap import LogTap, take_all
from warren.storage.named_offsets import NamedOffsets
from warren.storage.problems import Logger, Problems
from warren.storage.queue_log import QueueLog
from warren.storage.queues_recovery import QueuesRecovery
from warren.storage.recovery import RecoveredLog
from warren.storage.replica import Replica
from warren.storage.replication import LogChange, LogId, NamedOffset, Records, RemoveLog, SegmentState
from warren.storage.segment import Segment
from warren.storage.stream_log import SegmentedStream
from warren.storage.stream_recovery import RecoveredStream

OpenLog: TypeAlias = QueueLog | SegmentedStream

READ_WORK = 3_000  # units of work that it costs to read a log back now
OPEN_WORK = 100  # to open one that was read back
LET_GO_WORK = 50  # to let go of one that is open


@dataclass(frozen=True)
class LogTools:
    """What the logs of a node share."""

    commit: GroupCommit
    files: OpenFiles
    housekeeping: Housekeeping
    problems: Problems
    log: Logger
    sync: bool
    segment_bytes: int  # at which a segment of a queue is full
    stream_segment_bytes: int  # the same, of a stream


@dataclass
class Recovered:
    """Logs that were read back, until they are opened."""

    logs: dict[tuple[int, str], RecoveredLog]  # by number and part of a queue
    streams: dict[int, RecoveredStream]  # by number
    numbers: AbstractSet[int] = frozenset()  # of all queues that were looked at


class LedShard:
    """One shard, in one epoch."""

    def __init__(self, replica: Replica, epoch: int, tools: LogTools) -> None:
        self.shard = replica.shard
        self.replica = replica  # the logs that are not opened
        self.epoch = epoch
        self.tools = tools
        self.opened: dict[LogId, OpenLog] = {}
        self.taps: dict[LogId, LogTap] = {}  # of the logs that are opened
        self.changed: list[LogTap] = []  # those of them with something to take
        self.recovered = Recovered({}, {})
        self.read_back: set[int] = set()  # queues whose logs are recovered, by their numbers
        self.touched: set[int] = set()  # queues of which a recovery may have changed files
        self.streams: set[int] = set()  # those of them that are streams
        self.readings = 0  # recoveries that are under way
        self.when_read: list[Callable[[], None]] = []  # called when none is
        self.ended: dict[LogId, list[Segment]] = {}  # the segments of the opened logs that were let go of

    # --- what changes ---

    def take(self) -> list[LogChange]:
        """What has changed in the logs of this shard since this was asked last, in order. To be asked at
        the end of each turn, behind `Store.write_marks`.
        """
        return take_all(self.changed) if self.changed else []

    def has_only_marks(self) -> bool:
        """Whether nothing that was appended is to be taken."""
        return not any(tap.has_records() for tap in self.changed)

    # --- for those who copy ---

    def inventory(self) -> dict[LogId, list[SegmentState]]:
        """What there is of each log. If a queue was deleted, its logs are not there."""
        found = {
            log: states
            for log, states in self.replica.inventory().items()
            if log not in self.opened and not self.is_deleted(log)
        }
        found |= {log: states_of(opened.segments) for log, opened in self.opened.items()}
        return {log: states for log, states in found.items() if states}

    def is_deleted(self, log: LogId) -> bool:
        """Whether the queue of a log was deleted here. Then all its logs are, also those never opened."""
        directory = self.replica.log(log).directory
        return directory.deleted or (directory.parent is not None and directory.parent.deleted)

    def source(self, log: LogId, base: int) -> SegmentSource | None:
        """For reading the records of a segment in a thread (`copying.read_records`); None if it is gone."""
        segment = self._segment(log, base)
        return None if segment is None else source_of(log, segment)

    def unwritten(self, log: LogId, base: int, offset: int, end: int) -> Records | None:
        """The records of a segment from an offset on, which is none below `SegmentSource.written`."""
        segment = self._segment(log, base)
        return None if segment is None else unwritten(log, segment, offset, end)

    def marks(self, log: LogId, base: int) -> MarksSource | None:
        """For reading all marks of a segment up to now, in a thread (`copying.read_marks`)."""
        segment = self._segment(log, base)
        return None if segment is None else marks_of(log, segment)

    def offsets(self, log: LogId) -> list[NamedOffset]:
        """All named offsets of a stream."""
        opened = self.opened.get(log)
        if isinstance(opened, SegmentedStream):
            return [NamedOffset(log, name, offset) for name, offset in opened.offsets.items()]
        copy = self.replica.logs.get(log)
        return [] if copy is None else copy.offsets()

    def _segment(self, log: LogId, base: int) -> Segment | None:
        opened = self.opened.get(log)
        if opened is not None:
            return segment_at(opened.segments, base)
        copy = self.replica.logs.get(log)
        return None if copy is None else copy.segment(base)

    # --- opening ---

    def recovery(self, numbers: AbstractSet[int], streams: AbstractSet[int]) -> Callable[[], Recovered]:
        """What reads the logs of these queues back, some of them `streams`: to be called in a thread. The
        result goes to `are_recovered`, on the event loop; None, if there is none. None of these logs may be
        opened before that.
        """
        tools = self.tools
        self.readings += 1
        self.touched |= numbers
        self.streams |= streams
        recovery = QueuesRecovery(
            self.replica.path, tools.problems, lambda _path: None, tools.log, marks_may_be_lost=True
        )

        def run() -> Recovered:
            recovery.run(numbers, streams)
            return Recovered(recovery.logs, recovery.streams, numbers)

        return run

    def _read_now(self, numbers: AbstractSet[int], streams: AbstractSet[int]) -> None:
        read, found = self.recovery(numbers, streams), None
        try:
            found = read()
        finally:
            self.are_recovered(found)

    def are_recovered(self, found: Recovered | None) -> None:
        if found is not None:
            self.recovered.logs |= found.logs
            self.recovered.streams |= found.streams
            self.read_back |= found.numbers
        self.readings -= 1
        if not self.readings:
            waiting, self.when_read = self.when_read, []
            for then in waiting:
                then()

    def after_reading(self, then: Callable[[], None]) -> None:
        """Call back when no recovery is under way."""
        if self.readings:
            self.when_read.append(then)
        else:
            then()

    def has_opened(self, queue: int) -> bool:
        """Whether some log of a queue is open."""
        return any(log.queue == queue for log in self.opened)

    def open_log(self, log: LogId) -> tuple[QueueLog, int]:
        """The log of a queue, or of a part of it, and the last position in it. If it was not read back yet,
        it is now.
        """
        if self.replica.log(log).copies.all and log.queue not in self.read_back:
            self._read_now({log.queue}, set())
        found = self.recovered.logs.pop((log.queue, log.part), None) or RecoveredLog([], 0)
        tools, directory = self.tools, self.replica.log(log).directory
        queue_log = QueueLog(
            directory, tools.commit, tools.problems, tools.segment_bytes, segments=found.segments
        )
        for segment in found.segments:
            tools.commit.rewritings.consider(segment)
        tap = self._seal(log, queue_log)
        for segment in found.segments:  # of which recovery has marked all as delivered
            tap.marked(segment, encode_mark(segment.base, 0, segment.last - segment.base + 1, 1))
        return queue_log, found.position

    def open_stream(self, queue: int) -> tuple[SegmentedStream, int]:
        """The log of a stream, and the last position in it."""
        log = LogId(queue)
        named = self.replica.log(log).named
        if (self.replica.log(log).copies.all or named is not None) and queue not in self.read_back:
            self._read_now({queue}, {queue})
        found = self.recovered.streams.pop(queue, None) or RecoveredStream([], 0, {}, 0)
        tools, directory = self.tools, self.replica.log(log).directory
        named = NamedOffsets(
            directory, tools.files, tools.housekeeping, found.offsets, found.offsets_size, sync=tools.sync
        )
        stream = SegmentedStream(
            directory,
            tools.commit,
            tools.problems,
            tools.stream_segment_bytes,
            named,
            found.segments,
            found.position,
        )
        self._seal(log, stream)
        return stream, found.position

    def _seal(self, log: LogId, opened: OpenLog) -> LogTap:
        """From now on a log is used. What it has lost by its recovery is dropped everywhere; but what only
        could not be read is not.
        """
        assert log not in self.opened, "a log is opened once"
        copy, damaged = self.replica.log(log), self.tools.problems.damaged
        tap = self.taps[log] = LogTap(log, self.changed, self.tools.files.read)
        for one in copy.copies.all:
            segment, path = segment_at(opened.segments, one.base), copy.path_of(one.base)
            if segment is not None:
                segment.epoch = one.epoch
                segment.damaged = segment.damaged or segment.end != one.length or path in damaged
                segment.unjournaled = one.segment is not None and one.segment.unjournaled
                if segment.damaged:
                    self.tools.problems.tell_damage(path)
            elif path not in damaged and not Path(path + ".seg").exists():
                tap.is_gone(one.base, one.epoch)
            damaged.discard(path)
            if one.segment is not None:
                one.segment.is_retired = True
        opened.seal(self.epoch, tap)
        self.opened[log] = opened
        return tap

    # --- queues that are not there any more ---

    def unopened(self) -> set[int]:
        """The numbers of queues that have logs here, of which none is opened."""
        opened = {log.queue for log in self.opened}
        found = {log.queue for log, copy in self.replica.logs.items() if not copy.removed}
        return found - opened

    def remove(self, queue: int) -> None:
        """The logs of a queue, of which none is opened, go, here and wherever they are copied to."""
        log = LogId(queue)
        LogTap(log, self.changed, self.tools.files.read).removed()
        self.replica.apply((RemoveLog(log),), lambda: None)

    # --- the end ---

    def _opening_the_rest(self) -> Iterator[int]:
        """A recovery may have changed the files of logs that nobody has opened. What they are now is known
        of logs that are open.
        """
        for log, copy in list(self.replica.logs.items()):
            if log.queue not in self.touched or log in self.opened or copy.removed or self.is_deleted(log):
                continue
            cost = OPEN_WORK if log.queue in self.read_back else READ_WORK
            try:
                if log.queue not in self.streams:
                    self.open_log(log)
                elif not log.part:
                    self.open_stream(log.queue)
            except Exception as error:  # noqa: BLE001 - the shard has to be let go of, whatever one log is like
                self.tools.log.warning("a log cannot be opened", log=str(log), error=repr(error))
                for one in copy.copies.all:
                    one.damaged = True
                    self.tools.problems.tell_damage(copy.path_of(one.base))
            yield cost

    def letting_go(self) -> Iterator[int]:
        """This node does not lead any more, and nobody uses the opened logs: they end, and `ended` has their
        segments. There may be very many, so each step tells what it has cost. No recovery may be under way.
        """
        assert not self.readings, "the files would change"
        yield from self._opening_the_rest()
        for log, opened in self.opened.items():
            parent = self.replica.log(log).directory.parent
            if parent is not None and opened in parent.parts:
                parent.parts.remove(opened)
            self.ended[log] = opened.let_go()
            yield LET_GO_WORK
        self.changed.clear()
