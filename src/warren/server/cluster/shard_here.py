"""One shard at this node: what its disk has of it, as a copy, or as the one that leads.

A change of the role takes time: what was written before has to be safe. So whatever the protocol wants done
with the shard's files is a step, and steps are taken one after the other. A step that fails is over, and the
next one is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from warren.cluster.safety import ShardSafety
from warren.storage.copying import states_of
from warren.storage.led_shard import LedShard
from warren.storage.replica import Replica
from warren.storage.replica_log import ReplicaLog
from warren.storage.replication import LogId, NamedOffset, SegmentState
from warren.storage.segment import Segment

Finish: TypeAlias = Callable[[Callable[[], None]], None]  # is called with the last part of a step
Step: TypeAlias = Callable[[Finish], None]  # is called with what to call once nothing is waited for any more


class ShardHere:
    """Is what the protocol knows as the `LedLogs` of the shard."""

    def __init__(
        self,
        number: int,
        copies: Replica,
        has_queue: Callable[[int], bool],
        failed: Callable[[Exception], None],
    ) -> None:
        self.number = number
        self.copies = copies  # all logs of the shard; those that are opened are in `led`
        self.led: LedShard | None = None  # while this node leads
        self.safety: ShardSafety | None = None  # of that term
        self.indexes: dict[int, int] = {}  # the last batch of each round of the disk that is not over
        self.has_queue = has_queue  # whether there is a queue of this number
        self.failed = failed  # told what a step has failed with
        self.steps: deque[Step] = deque()  # that wait for the one that is being taken
        self.taken = 0  # steps, with the one that is being taken
        self.is_stepping = False

    # --- steps ---

    def then(self, step: Step) -> None:
        """Take a step when all steps before it are done."""
        self.steps.append(step)
        self._go_on()

    def then_at_once(self, work: Callable[[], None]) -> None:
        """The same for a step that takes no time."""
        if self.is_stepping or self.steps:
            self.then(lambda finish: finish(work))
            return
        self.is_stepping = True
        self.attempt(work)
        self.is_stepping = False
        self._go_on()

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do some work of this shard, and say whether it has not failed."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, other shards must not suffer from it
            self.failed(error)
            return False
        return True

    def _go_on(self) -> None:
        while self.steps and not self.is_stepping:
            self.is_stepping = True
            self.taken += 1
            finish = partial(self._finish, self.taken)
            if not self.attempt(partial(self.steps.popleft(), finish)):
                finish(_nothing)

    def _finish(self, number: int, rest: Callable[[], None]) -> None:
        """The last part of a step, unless the step has failed before it."""
        if self.is_stepping and number == self.taken:
            self.attempt(rest)
            self.is_stepping = False
            self._go_on()

    # --- leading ---

    def has_batch(self) -> bool:
        """Whether a batch should be made in this turn. Marks, for which nobody waits, go with the next
        message, or when no batch is under way.
        """
        led, safety = self.led, self.safety
        assert led is not None
        assert safety is not None
        if safety.wanted == safety.gathering:
            return True
        return bool(led.changed) and not (safety.is_under_way and led.has_only_marks())

    # --- what there is ---

    def logs(self) -> Iterable[LogId]:
        return [log for log, copy in self.copies.logs.items() if not _is_gone(copy)]

    def has(self, log: LogId) -> bool:
        """Whether the log is there, though perhaps without a segment, and its queue is not deleted."""
        copy = self.copies.logs.get(log)
        return self.has_queue(log.queue) if copy is None else not _is_gone(copy)

    def has_news(self) -> bool:
        return self.safety is not None and self.led is not None and bool(self.led.changed)

    def segments(self, log: LogId) -> Sequence[SegmentState]:
        if self.led is not None and log in self.led.opened:
            return states_of(self.led.opened[log].segments)
        copy = self.copies.logs.get(log)
        return [] if copy is None else copy.states()

    def segment(self, log: LogId, base: int) -> Segment | None:
        if self.led is not None and log in self.led.opened:
            segments = self.led.opened[log].segments
            return next((segment for segment in segments if segment.base == base), None)
        copy = self.copies.logs.get(log)
        return None if copy is None else copy.segment(base)

    def note_damage(self, log: LogId, base: int) -> None:
        """Some bytes of a segment are not what was written: an inventory says so from now on."""
        segment, copy = self.segment(log, base), self.copies.logs.get(log)
        if segment is not None:
            segment.damaged = True
        for one in [] if copy is None else copy.copies.all:
            if one.base == base:
                one.damaged = True

    def offsets(self, log: LogId) -> Sequence[NamedOffset]:
        if self.led is not None:
            return self.led.offsets(log)
        copy = self.copies.logs.get(log)
        return [] if copy is None else copy.offsets()


def _is_gone(copy: ReplicaLog) -> bool:
    """Whether a log's queue is deleted: as one that is led, or as a copy."""
    return copy.removed or copy.directory.deleted


def _nothing() -> None:
    """A step has no last part."""
