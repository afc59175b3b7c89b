"""What followers catch up with is read from files, in threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from structlog.stdlib import BoundLogger

from warren.broker.node import World
from warren.cluster.effects import ReadMarks, ReadRecords
from warren.cluster.shard import Shard
from warren.server.cluster.shard_here import ShardHere
from warren.storage.copying import (
    DamagedSegment,
    SegmentSource,
    marks_of,
    read_marks,
    read_records,
    source_of,
    unwritten,
)
from warren.storage.replication import AllMarks, LogId, Records

Tell: TypeAlias = Callable[[int, Callable[[Shard, float], None]], None]
"""Is called with the number of a shard, and with what to tell the protocol's part of it at this time."""


class CatchupReads:
    def __init__(
        self,
        here: Mapping[int, ShardHere],
        world: World,
        log: BoundLogger,
        tell: Tell,
        damaged: Callable[[int, LogId, int], None],
    ) -> None:
        self.here = here
        self.world = world
        self.log = log
        self.tell = tell
        self.damaged = damaged  # told of a segment that has not all that was written

    def read_records(self, effect: ReadRecords) -> None:
        segment = self.here[effect.shard].segment(effect.log, effect.base)
        if segment is None or segment.epoch != effect.epoch:
            self._records_are_read(effect, None)
        elif effect.offset >= segment.written:
            self._records_are_read(effect, unwritten(effect.log, segment, effect.offset, effect.end))
        else:
            self.world.in_thread(
                partial(_read, source_of(effect.log, segment, effect.end), effect.offset),
                partial(self._records_are_read, effect),
                partial(self._reading_records_failed, effect),
            )

    def _records_are_read(self, effect: ReadRecords, records: Records | None) -> None:
        self.tell(
            effect.shard, lambda shard, now: shard.records_read(effect.to, effect.session, records, now)
        )

    def _reading_records_failed(self, effect: ReadRecords, error: BaseException) -> None:
        if isinstance(error, DamagedSegment):
            self.damaged(effect.shard, effect.log, effect.base)
        else:
            self.log.warning("records for a follower cannot be read", shard=effect.shard, reason=str(error))
        self.tell(effect.shard, lambda shard, _now: shard.reading_failed(effect.to, effect.session))

    def read_marks(self, effect: ReadMarks) -> None:
        segment = self.here[effect.shard].segment(effect.log, effect.base)
        if segment is None or segment.epoch != effect.epoch:
            self._marks_are_read(effect, None)
        else:
            self.world.in_thread(
                partial(read_marks, marks_of(effect.log, segment)),
                partial(self._marks_are_read, effect),
                partial(self._reading_marks_failed, effect),
            )

    def _marks_are_read(self, effect: ReadMarks, marks: AllMarks | None) -> None:
        self.tell(effect.shard, lambda shard, now: shard.marks_read(effect, marks, now))

    def _reading_marks_failed(self, effect: ReadMarks, error: BaseException) -> None:
        if isinstance(error, DamagedSegment):
            self.damaged(effect.shard, effect.log, effect.base)
        self._marks_are_read(effect, None)


def _read(source: SegmentSource, offset: int) -> Records | None:
    """In a thread. A segment that is dropped meanwhile is not needed any more."""
    try:
        return read_records(source, offset)
    except FileNotFoundError:
        return None
