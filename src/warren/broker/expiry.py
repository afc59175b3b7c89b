"""The messages of a lane that expire at a time of their own, wherever in it they are.

The heap knows of each when and where; `entries` finds those that are ready by position. Of a message that was
taken meanwhile the heap still knows: once most of it is like that, it is weeded.
"""

from __future__ import annotations

from warren.broker.due_heap import DueHeap
from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList

STALE_MAX = 10_000


class Expiry:
    """`noted` is the last position of those that are, or were, ready that the heap knows of; `weeded` how
    much was left when it was weeded last.
    """

    def __init__(self) -> None:
        self.heap = DueHeap()
        self.entries: dict[int, Entry] = {}
        self.noted = 0
        self.weeded = 0

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
