"""A queue's ready entries, strictly ordered by position.

They are linked both ways, so that one can leave from, or return to, any place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from warren.broker.entry import Entry
from warren.broker.message import Message


class EntryList:
    __slots__ = ("bytes", "count", "head", "recent", "tail")

    head: Entry | None
    tail: Entry | None
    recent: Entry | None  # the last one put back: the next one's place is probably beside it

    def __init__(self) -> None:
        self.head = None
        self.tail = None
        self.recent = None
        self.count = 0
        self.bytes = 0

    def append_new(self, message: Message, queue: object, position: int, delivery_count: int) -> None:
        """Put a new entry of this queue, or of none, at the end. It is made without a call of __init__, since
        this is on the path of every message.
        """
        entry = Entry.__new__(Entry)
        entry.message = message
        entry.queue = queue  # type: ignore[assignment]  # a Queue, which this module does not know, or None
        entry.position = position
        entry.size = len(message.body)
        entry.delivery_count = delivery_count
        self.append(entry)

    def append(self, entry: Entry) -> None:
        """Put at the end an entry whose position is beyond all others."""
        if self.tail is None:
            self.head = entry
        else:
            self.tail.behind = entry
            entry.before = self.tail
        self.tail = entry
        self.count += 1
        self.bytes += entry.size

    def extend(self, more: EntryList) -> None:
        """Put at the end all entries of another list, whose positions are beyond all others. It is empty
        then.
        """
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
        if self.recent is entry:
            self.recent = None
        self.count -= 1
        self.bytes -= entry.size

    def insert(self, entry: Entry) -> int:
        """Put an entry back where its position belongs; how many others were passed on the way."""
        position = entry.position
        if self.tail is None or self.head is None or self.tail.position < position:
            self.recent = entry
            self.append(entry)
            return 0
        after = self.nearest(position)
        self.recent = entry
        steps = 0
        while after.position < position:  # the tail is not, so that there is another one behind it
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
        """The head, the tail, or the last one that was put back: where to begin to look for a place that is
        not behind the tail.
        """
        assert self.head is not None, "there is a tail"
        assert self.tail is not None, "there is a head"
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
        """The first entry behind a position; `near` is one of the list that may be close to it."""
        if self.tail is None or self.tail.position <= position:
            return None
        entry = self.nearest(position) if near is None else near
        while entry.position <= position:  # the tail is not, so that there is another one behind it
            entry = cast("Entry", entry.behind)
        while entry.before is not None and entry.before.position > position:
            entry = entry.before
        return entry

    def drop(self, most: int) -> None:
        """Take out the first ones, one by one, lest a chain of a million entries be freed by recursion."""
        while self.head is not None and most > 0:
            self.pop_head()
            most -= 1

    def __iter__(self) -> Iterator[Entry]:
        entry = self.head
        while entry is not None:
            yield entry
            entry = entry.behind
