"""What was counted lately: samples of an object's numbers, in a bounded memory.

A sample is taken at each tick, every `TICK_SECONDS`. Numbers are of two kinds: counters, which only go up,
and gauges. Each number that was ever more than 0 has a column of slots, on three scales of time:

    minute   13 slots of 5 s       | hour   61 slots of a minute       | day   49 slots of 30 minutes

A slot has what a counter went up by in its time, or what a gauge was at its end. An object whose numbers stay
the same is not touched by a tick: it catches up when one changes, or when somebody asks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

TICK_SECONDS = 5
TICKS_CACHED_MAX = 1_000  # all histories ask for the same few
SMALL, LARGE = "I", "Q"  # how a column is stored: with 32 or 64 bits for a slot


@dataclass(frozen=True)
class Scale:
    ticks: int  # in the time of one slot
    slots: int
    first: int  # where its slots begin in a column

    @property
    def slot_seconds(self) -> int:
        return self.ticks * TICK_SECONDS

    @property
    def seconds(self) -> int:
        """How far back it goes."""
        return (self.slots - 1) * self.slot_seconds

    def slot(self, tick: int, ago: int = 0) -> int:
        """Where the slot of a tick is, or the one so many slots before it."""
        return self.first + (tick // self.ticks - ago) % self.slots


MINUTE = Scale(ticks=1, slots=13, first=0)
HOUR = Scale(ticks=12, slots=61, first=13)
DAY = Scale(ticks=360, slots=49, first=74)
SCALES = (MINUTE, HOUR, DAY)
SLOTS = DAY.first + DAY.slots


def scale_for(seconds: int) -> Scale:
    """The finest one that goes back so far."""
    return next((scale for scale in SCALES if scale.seconds >= seconds), DAY)


@dataclass
class Timeline:
    """When the last tick was. All histories of a node share it."""

    tick: int = 0
    time_ms: int = 0  # of the last tick, by the time of day
    seconds: float = TICK_SECONDS  # from the tick before to the last one; a busy loop is late now and then

    def time_of(self, tick: int) -> int:
        return self.time_ms - (self.tick - tick) * TICK_SECONDS * 1000


class History:
    """The samples of one object. `values` has the counters first, then the gauges."""

    __slots__ = ("changed", "columns", "counters", "stored_as", "tick", "value_max", "values")

    def __init__(self, counters: int, gauges: int, tick: int, stored_as: str = SMALL) -> None:
        self.counters = counters  # how many of the values are counters
        self.values = (0,) * (counters + gauges)  # at the last sample
        self.tick = tick  # up to which the columns are right
        self.changed = tick  # the last one at which a number was not the same as before
        self.columns: list[array[int] | None] = [None] * (counters + gauges)  # None: no change is known
        self.stored_as = stored_as
        self.value_max = 2**32 - 1 if stored_as == SMALL else 2**64 - 1

    def note(self, values: tuple[int, ...], tick: int) -> None:
        """Take a sample."""
        if values == self.values:
            return
        self.catch_up(tick)
        for index, (value, before) in enumerate(zip(values, self.values, strict=True)):
            if value != before:
                self._put(index, value, before, tick)
        self.values = values
        self.changed = tick

    def _put(self, index: int, value: int, before: int, tick: int) -> None:
        column = self.columns[index]
        if column is None:
            column = self.columns[index] = array(self.stored_as, [0]) * SLOTS
        more = value - before if index < self.counters else 0
        for slot in _slots_of(tick):
            column[slot] = min(column[slot] + more if more else value, self.value_max)

    def catch_up(self, tick: int) -> None:
        """Fill the slots since the last change: nothing was counted, and gauges stayed as they were."""
        if tick <= self.tick:
            return
        slots = _slots_between(self.tick, tick)
        for index, column in enumerate(self.columns):
            if column is not None:
                value = 0 if index < self.counters else min(self.values[index], self.value_max)
                for slot in slots:
                    column[slot] = value
        self.tick = tick

    def forget(self) -> None:
        """Forget the past: as if no counter had gone up, and all gauges had always been what they are."""
        for index, column in enumerate(self.columns):
            if column is not None and index < self.counters:
                self.columns[index] = None
            elif column is not None:
                value = min(self.values[index], self.value_max)
                self.columns[index] = array(self.stored_as, [value]) * SLOTS

    def change(self, index: int) -> int:
        """By how much a number changed in the last tick."""
        column = self.columns[index]
        if column is None:
            return 0
        now = column[MINUTE.slot(self.tick)]
        return now if index < self.counters else now - column[MINUTE.slot(self.tick, 1)]

    def samples(self, index: int, scale: Scale, step: int, count: int) -> list[int]:
        """What a number was, the newest first: so many samples, each `step` slots before the last."""
        column = self.columns[index]
        if column is None:
            return [self.values[index]] * count
        ago = range(min(1 + step * (count - 1), scale.slots))
        found = [column[scale.slot(self.tick, slots)] for slots in ago]
        if index < self.counters:
            found = list(_totals(self.values[index], found))
        return found[::step]


@lru_cache(TICKS_CACHED_MAX)
def _slots_of(tick: int) -> tuple[int, ...]:
    """The slots of a tick, one on each scale. They are used round and round."""
    return tuple(scale.slot(tick) for scale in SCALES)


@lru_cache(TICKS_CACHED_MAX)
def _slots_between(before: int, tick: int) -> tuple[int, ...]:
    """The slots behind those of an earlier tick, up to those of this one; each once."""
    slots: list[int] = []
    for scale in SCALES:
        now = tick // scale.ticks
        first = max(before // scale.ticks, now - scale.slots) + 1
        slots += [scale.first + number % scale.slots for number in range(first, now + 1)]
    return tuple(slots)


def _totals(total: int, increments: list[int]) -> Iterator[int]:
    """A counter's values, from the last one and what it went up by, both the newest first."""
    for increment in increments:
        yield total
        total = max(0, total - increment)
