"""The messages of a lane that expire at a time of their own, wherever in the lane they are.

The heap says when each message expires, and where it lies. `entries` has the ready ones by position. When a
message is taken, its item stays in the heap, and is of use again if the message comes back: so the heap has
each message once. Items of messages that are gone are stale; once most items are, the heap is weeded.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.due_heap import DueHeap
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList

STALE_MAX = 10_000  # so many stale items are no reason to weed the heap
STALE_AT_A_TIME_MAX = 1_000  # stale items that are passed over before it is other queues' turn


class Expiry:
    def __init__(self) -> None:
        self.heap = DueHeap()  # all messages that expire; may also have items of messages that were taken
        self.entries: dict[int, Entry] = {}  # the ready entries among them, by position
        self.noted = 0  # the last position up to which ready entries are in the heap
        self.weeded = 0  # how many items were left when the heap was weeded last
        self.weeding = 1  # goes up each time the heap is weeded
        self.popped_ms = 0  # items that were due until then may have left the heap
        self.stale = 0  # how many stale items were passed over in this turn
        self.location = 0  # where the message lies that `pop_due` gave last; 0 if it was ready

    def next_due(self) -> int:
        """When the next message expires; -1 if none does."""
        return self.heap.next_due() if self.heap.count else -1

    def pop_due(self, now_ms: int) -> int:
        """Take the next expired message out of the heap, and return its position; 0 if there is none."""
        if self.heap.next_due() > now_ms:
            return 0
        self.popped_ms = max(self.popped_ms, self.heap.next_due())
        self.heap.pop()
        self.location = self.heap.location
        return self.heap.position

    def pass_stale(self) -> bool:
        """A stale item was popped. Return whether another may be popped in this turn."""
        self.stale += 1
        return self.stale < STALE_AT_A_TIME_MAX

    def begin_turn(self) -> None:
        self.stale = 0

    def ready_at(self, position: int) -> Entry | None:
        """The ready entry at this position, if it expires at a time of its own."""
        return self.entries.get(position)

    def weed_if_stale(self, waiting: int, next_behind: Callable[[], int]) -> None:
        """Weed the heap if most of its items are stale. `waiting` is how many messages the lane has, and
        `next_behind` finds the position of the first one that is not ready.
        """
        if self.heap.count <= STALE_MAX + 2 * self.weeded:
            return
        if self.heap.count > STALE_MAX + 2 * (len(self.entries) + waiting):
            self.weed(next_behind())

    def note_behind(self, due_ms: int, position: int, location: int) -> None:
        """Note when a message expires that waits behind the ready entries."""
        self.heap.push(due_ms, position, location)

    def note_ready(self, entry: Entry) -> None:
        """Note when a ready entry expires, which is new, or has come back."""
        message = entry.message
        due_ms = message.time_ms + message.expiration_ms
        self.entries[entry.position] = entry
        if entry.expiry_noted != self.weeding or due_ms <= self.popped_ms:
            self.push(entry)

    def push(self, entry: Entry) -> None:
        """Put the item of a ready entry into the heap: with its place in the log, for when it is given up."""
        message = entry.message
        location = entry.location if message.persistent else 0  # else it is a place in the overflow
        self.heap.push(message.time_ms + message.expiration_ms, entry.position, location)
        entry.expiry_noted = self.weeding

    def is_noted(self, entry: Entry) -> None:
        """This entry's message waited behind, so the heap has its item already."""
        entry.expiry_noted = self.weeding

    def note_new(self, ready: EntryList) -> None:
        """Note when entries expire that came in this turn and that nobody took; they are at the end."""
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
        """These entries waited behind, so that the heap has them, and are ready now."""
        if ready.tail is not None:
            self.noted = ready.tail.position
        entry = ready.head
        while entry is not None:
            if entry.message.expiration_ms >= 0:
                self.entries[entry.position] = entry
                self.is_noted(entry)
            entry = entry.behind

    def forget(self, entry: Entry) -> None:
        """The entry is not ready any more."""
        if entry.message.expiration_ms >= 0:
            self.entries.pop(entry.position, None)

    def weed(self, next_behind: int) -> None:
        """Drop the items of messages that were taken: those that are neither ready nor wait at `next_behind`
        or beyond. Entries that are out now are noted anew if they come back.
        """
        self.weeding += 1
        self.heap.keep(next_behind, self.entries)
        for entry in self.entries.values():
            self.push(entry)
        self.weeded = self.heap.count

    def clear(self) -> None:
        """All messages are dropped, except those that are out: these are noted anew if they come back."""
        self.weeding += 1
        self.weeded = 0
        self.entries = {}
        self.heap.clear()
