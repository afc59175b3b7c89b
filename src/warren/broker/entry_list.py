"""A list of entries, strictly ordered by position, such as the ready entries of a lane.

The entries are linked both ways, so that an entry can leave from any place, and return to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from warren.broker.entry import Entry
from warren.broker.message import Message


class EntryList:
    __slots__ = ("bytes", "count", "head", "passed", "recent", "tail")

    head: Entry | None
    tail: Entry | None
    recent: Entry | None  # the entry that was put back or looked for last: the next is probably beside it

    def __init__(self) -> None:
        self.head = None
        self.tail = None
        self.recent = None
        self.count = 0
        self.bytes = 0  # of all bodies together
        self.passed = 0  # how many entries `first_beyond` passed on its way, when it was called last

    def append_new(
        self, message: Message, queue: object, position: int, location: int, delivery_count: int
    ) -> None:
        """Put a new entry at the end. It is made without a call of __init__, since this is on the path of
        every message (`warren perf throughput` watches it).
        """
        entry = Entry.__new__(Entry)
        entry.message = message
        entry.queue = queue  # type: ignore[assignment]  # a Queue, which this module does not know, or None
        entry.position = position
        entry.size = len(message.body)
        entry.location = location
        entry.delivery_count = delivery_count
        self.append(entry)

    def append(self, entry: Entry) -> None:
        """Put an entry at the end; its position must be beyond all others."""
        if self.tail is None:
            self.head = entry
        else:
            self.tail.behind = entry
            entry.before = self.tail
        self.tail = entry
        self.count += 1
        self.bytes += entry.size

    def extend(self, more: EntryList) -> None:
        """Move all entries of another list to the end; their positions must be beyond all others."""
        if more.head is None:
            return
        if self.tail is None:
            self.head = more.head
        else:
            self.tail.behind = more.head
            more.head.before = self.tail
        self.tail = more.tail
        self.count += more.count
        self.bytes += more.bytes
        more.head = more.tail = more.recent = None
        more.count = more.bytes = 0

    def pop_head(self) -> Entry:
        """Take out the first entry; there must be one."""
        entry = self.head
        assert entry is not None
        self.head = entry.behind
        if self.head is None:
            self.tail = None
        else:
            self.head.before = None
            entry.behind = None
        if self.recent is entry:
            self.recent = None
        self.count -= 1
        self.bytes -= entry.size
        return entry

    def remove(self, entry: Entry) -> None:
        if self.recent is entry:
            self.recent = entry.before if entry.before is not None else entry.behind
        if entry.before is None:
            self.head = entry.behind
        else:
            entry.before.behind = entry.behind
        if entry.behind is None:
            self.tail = entry.before
        else:
            entry.behind.before = entry.before
        entry.before = None
        entry.behind = None
        self.count -= 1
        self.bytes -= entry.size

    def insert(self, entry: Entry) -> int:
        """Put an entry where its position belongs. Return how many entries were passed to find that place."""
        position = entry.position
        if self.tail is None or self.head is None or self.tail.position < position:
            self.recent = entry
            self.append(entry)
            return 0
        after = self.nearest(position)
        self.recent = entry
        steps = 0
        while after.position < position:  # ends at the tail at the latest, whose position is higher
            after = cast("Entry", after.behind)
            steps += 1
        while after.before is not None and after.before.position > position:
            after = after.before
            steps += 1
        entry.behind = after
        entry.before = after.before
        if after.before is None:
            self.head = entry
        else:
            after.before.behind = entry
        after.before = entry
        self.count += 1
        self.bytes += entry.size
        return steps

    def nearest(self, position: int) -> Entry:
        """The entry from which to look for a position that is not beyond the tail: the head, the tail, or the
        recent one.
        """
        assert self.head is not None, "the list is not empty"
        assert self.tail is not None, "the list is not empty"
        if self.head.position >= position:
            return self.head
        found, distance = self.head, position - self.head.position
        if self.tail.position - position < distance:
            found, distance = self.tail, self.tail.position - position
        if self.recent is not None:
            recent = self.recent.position
            if (recent - position if recent > position else position - recent) < distance:
                found = self.recent
        return found

    def first_beyond(self, position: int, near: Entry | None) -> Entry | None:
        """The first entry beyond a position. The search begins at `near`, an entry of this list, if given."""
        self.passed = 0
        if self.tail is None or self.tail.position <= position:
            return None
        entry = self.nearest(position) if near is None else near
        while entry.position <= position:  # ends at the tail at the latest, whose position is higher
            entry = cast("Entry", entry.behind)
            self.passed += 1
        while entry.before is not None and entry.before.position > position:
            entry = entry.before
            self.passed += 1
        self.recent = entry
        return entry

    def drop(self, most: int) -> None:
        """Take out up to `most` entries, one by one: a long chain would be freed by a deep recursion."""
        while self.head is not None and most > 0:
            self.pop_head()
            most -= 1

    def __repr__(self) -> str:
        return f"<EntryList of {self.count} entries, {self.bytes} bytes>"

    def __iter__(self) -> Iterator[Entry]:
        entry = self.head
        while entry is not None:
            yield entry
            entry = entry.behind
