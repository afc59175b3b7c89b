"""Retry with backoff: a message that a client gives back returns after a delay, which doubles each time.

During the delay the message is neither ready nor unacked. A broker that starts knows from disk how often a
message was delivered, but not when it was given back: such a message's delay begins with the start.
"""

from __future__ import annotations

import heapq

from warren.broker.clock import Clock
from warren.broker.entry import Entry

OFF = -1
DOUBLINGS_MAX = 32  # so that numbers stay small


class Retry:
    """The delayed messages of one queue."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.min_ms = OFF  # the first delay
        self.max_ms = 0  # the longest delay
        self.started_ms = 0  # when the queue was restored
        self.waiting: list[tuple[int, int, Entry]] = []  # a heap of due time, number and entry
        self.number = 0  # counts delayed entries: those that are due together return in this order

    def set_limits(self, min_ms: int, max_ms: int) -> None:
        self.min_ms = min_ms
        self.max_ms = max_ms

    def restored(self) -> None:
        """The queue has messages from an earlier run: their delays begin now."""
        self.started_ms = self.clock.time_ms

    @property
    def is_on(self) -> bool:
        return self.min_ms >= 0

    def delay_of(self, entry: Entry) -> int:
        """An entry's delay in milliseconds. Policies may make the maximum lower than the minimum."""
        doublings = min(max(entry.delivery_count, 1) - 1, DOUBLINGS_MAX)
        return min(self.min_ms << doublings, max(self.max_ms, self.min_ms))

    def was_waiting(self, entry: Entry) -> bool:
        """Whether an entry from an earlier run, which was delivered then, still has to wait."""
        if not self.is_on or entry.delivery_count == 0 or entry.returned:
            return False
        return self.started_ms + self.delay_of(entry) > self.clock.time_ms

    def delay(self, entry: Entry) -> int:
        """Have an entry wait; return its delay in milliseconds."""
        delay_ms = self.delay_of(entry)
        since_ms = self.clock.time_ms if entry.returned else self.started_ms
        self.number += 1
        heapq.heappush(self.waiting, (since_ms + delay_ms, self.number, entry))
        return delay_ms

    def next_due(self) -> int:
        """When the first entry returns; -1 if none waits."""
        return self.waiting[0][0] if self.waiting else -1

    def take_due(self, now_ms: int) -> Entry | None:
        """Take out the next entry whose delay is over; None if there is none."""
        if self.waiting and self.waiting[0][0] <= now_ms:
            return heapq.heappop(self.waiting)[2]
        return None

    def take_all(self) -> list[Entry]:
        waiting, self.waiting = self.waiting, []
        return [entry for _, _, entry in waiting]
