"""The messages of a lane that expire at a time of their own, wherever in it they are.

The heap knows of each when and where; `entries` finds those that are ready by position. Of a message that was
taken meanwhile the heap still knows: once most of it is like that, it is weeded.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.due_heap import DueHeap
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList

STALE_MAX = 10_000


class Expiry:
    def __init__(self) -> None:
        self.heap = DueHeap()
        self.entries: dict[int, Entry] = {}
        self.noted = 0  # the last position of entries that are, or were, ready that the heap knows of
        self.weeded = 0  # how much was left in the heap when it was weeded last
        self.location = 0  # where the message lay that `pop_due` gave last; 0 if it was ready

    def next_due(self) -> int:
        """When the next message expires; -1 if none does."""
        return self.heap.next_due() if self.heap.count else -1

    def pop_due(self, now_ms: int) -> int:
        """The position of the next message whose time is over; 0 if there is none."""
        if self.heap.next_due() > now_ms:
            return 0
        self.heap.pop()
        self.location = self.heap.location
        return self.heap.position

    def ready_at(self, position: int) -> Entry | None:
        """The ready entry at this position, if it expires at a time of its own."""
        return self.entries.get(position)

    def weed_if_stale(self, waiting: int, next_behind: Callable[[], int]) -> None:
        """Forget when messages would have expired that were taken long ago, if these are most. So many
        messages are `waiting`, and `next_behind` finds the position of the first that is not ready.
        """
        if self.heap.count <= STALE_MAX + 2 * self.weeded:
            return
        if self.heap.count > STALE_MAX + 2 * (len(self.entries) + waiting):
            self.weed(next_behind())

    def note_behind(self, due_ms: int, position: int, location: int) -> None:
        self.heap.push(due_ms, position, location)

    def note_ready(self, entry: Entry) -> None:
        message = entry.message
        self.entries[entry.position] = entry
        self.heap.push(message.time_ms + message.expiration_ms, entry.position, 0)

    def note_new(self, ready: EntryList) -> None:
        """Entries that came in this turn, and that nobody took; they are at the end."""
        entry = ready.tail
        newest = 0
        while entry is not None and entry.position > self.noted:
            if not newest:
                newest = entry.position
            if entry.message.expiration_ms >= 0:
                self.note_ready(entry)
            entry = entry.before
        if newest:
            self.noted = newest

    def have_become_ready(self, ready: EntryList) -> None:
        """They waited behind, so that the heap knows of them."""
        if ready.tail is not None:
            self.noted = ready.tail.position
        entry = ready.head
        while entry is not None:
            if entry.message.expiration_ms >= 0:
                self.entries[entry.position] = entry
            entry = entry.behind

    def forget(self, entry: Entry) -> None:
        """It is not ready any more."""
        if entry.message.expiration_ms >= 0:
            self.entries.pop(entry.position, None)

    def weed(self, next_behind: int) -> None:
        """Forget what was taken: what is neither ready nor waits at this position or behind it. Each that is
        ready is noted once, however often it came back.
        """
        self.heap.keep(next_behind, self.entries)
        for entry in self.entries.values():
            self.heap.push(entry.message.time_ms + entry.message.expiration_ms, entry.position, 0)
        self.weeded = self.heap.count
