"""The disk of a simulated node: what is in memory, what is synced, and what a power cut leaves.

A record is eight bytes, its number in the run; a segment's header is the eight bytes of its epoch. A mark is
the eight bytes of a position. So lengths and offsets are as real ones, and files can be compared.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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

WORD = 8
HEADER = WORD
RECORDS_A_SEGMENT = 4


class Violation(Exception):
    """Something that must never be."""


@dataclass(frozen=True, slots=True)
class DiskRules:
    """Rules that the storage keeps, and not the protocol; each can be switched off."""

    seal: bool = True  # a leader's first append to a log in its epoch begins a segment
    marks_go: bool = True  # marks go with the records that are cut off, set aside or dropped
    new_identity: bool = True  # a wiped disk is another store
    committed_only: bool = True  # a leader delivers what is committed
    compare: bool = True  # the record is written only at the revision that was read


def pack(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


def unpack(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // WORD}Q", data)


class Segment:
    __slots__ = ("base", "damaged", "epoch", "ids", "marks")

    def __init__(self, base: int, epoch: int) -> None:
        self.base = base
        self.epoch = epoch
        self.ids: list[int] = []
        self.marks: set[int] = set()
        self.damaged = False

    @property
    def length(self) -> int:
        return HEADER + WORD * len(self.ids)

    @property
    def end(self) -> int:
        return self.base + len(self.ids)

    def copy(self) -> Segment:
        other = Segment(self.base, self.epoch)
        other.ids = self.ids[:]
        other.marks = set(self.marks)
        other.damaged = self.damaged
        return other

    def contents(self) -> tuple[int, int, tuple[int, ...], frozenset[int]]:
        return self.base, self.epoch, tuple(self.ids), frozenset(self.marks)


Log: TypeAlias = dict[int, Segment]  # by base
Logs: TypeAlias = dict[LogId, Log]


class State:
    """All logs of a store, as memory or as the platters have them."""

    __slots__ = ("epochs", "leftover", "marks_go", "shards", "whole")

    def __init__(self, shards: int, *, marks_go: bool) -> None:
        self.shards: list[Logs] = [{} for _ in range(shards)]
        self.epochs = [0] * shards
        self.whole = [True] * shards
        self.marks_go = marks_go
        self.leftover: dict[tuple[int, LogId, int], set[int]] = {}  # marks, if they do not go

    def copy(self) -> State:
        other = State(len(self.shards), marks_go=self.marks_go)
        other.shards = [
            {log: {base: s.copy() for base, s in segments.items()} for log, segments in logs.items()}
            for logs in self.shards
        ]
        other.epochs = self.epochs[:]
        other.whole = self.whole[:]
        return other

    def keep(self, shard: int, what: int | bool) -> None:
        """An epoch, or whether the store is whole."""
        if isinstance(what, bool):
            self.whole[shard] = what
        else:
            self.epochs[shard] = what

    def change(self, shard: int, change: LogChange) -> bool:
        """Carry out a change. Whether it can have taken something away."""
        return CHANGES[type(change)](self, self.shards[shard], change)

    def _records(self, logs: Logs, change: Records) -> bool:
        log = logs.setdefault(change.log, {})
        segment = log.get(change.base)
        replaced = False
        data = change.data
        if change.offset == 0:
            replaced = segment is not None
            segment = log[change.base] = Segment(change.base, change.epoch)
            segment.marks = self.leftover.pop((id(logs), change.log, change.base), set())
            if unpack(data[:HEADER])[0] != change.epoch:
                raise Violation(f"a header of another epoch: {change}")
            data = data[HEADER:]
        elif segment is None or segment.epoch != change.epoch or segment.length != change.offset:
            raise Violation(f"a gap: {change} goes to {segment and segment.contents()}")
        segment.ids.extend(unpack(data))
        return replaced

    def _marks(self, logs: Logs, change: Marks) -> bool:
        segment = logs.get(change.log, {}).get(change.base)
        if segment is not None and segment.epoch == change.epoch:
            segment.marks.update(unpack(change.data))
        return False

    def _all_marks(self, logs: Logs, change: AllMarks) -> bool:
        segment = logs.get(change.log, {}).get(change.base)
        if segment is None or segment.epoch != change.epoch:
            raise Violation(f"marks of a segment that is not there: {change}")
        segment.marks = set(unpack(change.data))
        return False

    def _drop(self, logs: Logs, change: Drop | SetAside) -> bool:
        log = logs.get(change.log)
        segment = None if log is None else log.get(change.base)
        if log is None or segment is None or segment.epoch != change.epoch:
            return False
        del log[change.base]
        if not self.marks_go:
            self.leftover[id(logs), change.log, change.base] = segment.marks
        return True

    def _truncate(self, logs: Logs, change: Truncate) -> bool:
        segment = logs[change.log][change.base]
        if segment.epoch != change.epoch:
            raise Violation(f"a cut of another segment: {change}")
        del segment.ids[(change.length - HEADER) // WORD :]
        if self.marks_go:
            segment.marks = {position for position in segment.marks if position < segment.end}
        return True

    def _remove(self, logs: Logs, change: RemoveLog) -> bool:
        return logs.pop(change.log, None) is not None

    def _offset(self, logs: Logs, change: NamedOffset) -> bool:
        return False


CHANGES: dict[type, Callable[[State, Logs, LogChange], bool]] = {
    Records: State._records,  # type: ignore[dict-item] # each is called with its own kind of change
    Marks: State._marks,  # type: ignore[dict-item]
    AllMarks: State._all_marks,  # type: ignore[dict-item]
    Drop: State._drop,  # type: ignore[dict-item]
    SetAside: State._drop,  # type: ignore[dict-item]
    Truncate: State._truncate,  # type: ignore[dict-item]
    RemoveLog: State._remove,  # type: ignore[dict-item]
    NamedOffset: State._offset,  # type: ignore[dict-item]
}


class ShardLogs:
    """A shard's logs in memory, as the protocol asks for them (`LedLogs`)."""

    __slots__ = ("disk", "shard")

    def __init__(self, disk: Disk, shard: int) -> None:
        self.disk = disk
        self.shard = shard

    def logs(self) -> Iterable[LogId]:
        return self.disk.memory.shards[self.shard]

    def has(self, log: LogId) -> bool:
        return log in self.disk.memory.shards[self.shard]

    def has_news(self) -> bool:
        return False  # each change is appended as it is made

    def segments(self, log: LogId) -> list[SegmentState]:
        return states(self.disk.memory.shards[self.shard].get(log, {}))

    def offsets(self, log: LogId) -> Sequence[NamedOffset]:
        return ()


def states(log: Log) -> list[SegmentState]:
    return [SegmentState(base, log[base].epoch, log[base].length, log[base].damaged) for base in sorted(log)]


class Token:
    """In the line of changes: when it is reached by a sync, somebody is told."""

    __slots__ = ("cleared", "epoch", "index", "shard", "token")

    def __init__(
        self, shard: int, token: int, *, epoch: int = 0, index: int = -1, cleared: bool = False
    ) -> None:
        self.shard = shard
        self.token = token
        self.epoch = epoch
        self.index = index  # of the leader's own batch; -1: it answers an `Apply`
        self.cleared = cleared  # it answers a `RemoveCopies`


class Disk:
    """One store's disk."""

    __slots__ = ("durable", "memory", "pending", "store")

    def __init__(self, store: str, shards: int, *, marks_go: bool) -> None:
        self.store = store
        self.memory = State(shards, marks_go=marks_go)
        self.durable = State(shards, marks_go=marks_go)
        self.pending: list[tuple[int, LogChange | int | bool | Token]] = []
        # by shard; an int is an epoch, a bool says whether the store is whole

    def keep(self, shard: int, what: int | bool) -> None:
        self.memory.keep(shard, what)
        self.pending.append((shard, what))

    def power_cut(self, chance: random.Random) -> None:
        """What was not synced may be there or not, for each log up to another point, even within a change."""
        left: dict[tuple[int, LogId], int] = {}
        for shard, change in self.pending:
            if isinstance(change, Token):
                continue
            if isinstance(change, int):
                if chance.random() < 0.5:
                    self.durable.keep(shard, change)
                continue
            key = (shard, change.log)
            if key not in left:
                left[key] = chance.randrange(5)
            if left[key] <= 0:
                continue
            left[key] -= 1
            if left[key] == 0 and isinstance(change, Records):
                whole = chance.randrange(change.count + 1)
                if whole == 0:
                    continue
                begin = HEADER if change.offset == 0 else 0
                change = change._replace(data=change.data[: begin + WORD * whole], count=whole)  # noqa: PLW2901
            self.durable.change(shard, change)
        self.pending = []
        self.memory = self.durable.copy()

    def read_marks(self, shard: int, log: LogId, base: int, epoch: int) -> AllMarks | None:
        """All marks of a segment, as they are now."""
        segment = self.memory.shards[shard].get(log, {}).get(base)
        if segment is None or segment.epoch != epoch:
            return None
        return AllMarks(log, base, epoch, pack(sorted(segment.marks)))

    def read(self, shard: int, log: LogId, base: int, epoch: int, offset: int, length: int) -> Records | None:
        """Whole records of a segment."""
        segment = self.memory.shards[shard].get(log, {}).get(base)
        if segment is None or segment.epoch != epoch or segment.length <= offset:
            return None
        first = 0 if offset == 0 else (offset - HEADER) // WORD
        count = max(1, (length - (HEADER if offset == 0 else 0)) // WORD)
        ids = segment.ids[first : first + count]
        data = pack(([epoch] if offset == 0 else []) + ids)
        return Records(log, base, epoch, offset, base + first + len(ids) - 1, len(ids), data)
