"""EntryList against a plain sorted list."""

from __future__ import annotations

from bisect import insort
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from warren.broker.entry import Entry
from warren.broker.entry_list import EntryList
from warren.broker.message import Message
from warren.broker.queue import Queue

NO_QUEUE = cast("Queue", None)  # an entry's queue is for others to ask


def position(entry: Entry) -> int:
    return entry.position


class EntryListMachine(RuleBasedStateMachine):
    """Entries are appended, leave from any place, and come back where they belong."""

    def __init__(self) -> None:
        super().__init__()
        self.list = EntryList()
        self.model: list[Entry] = []
        self.out: list[Entry] = []
        self.position = 0

    @rule(size=st.integers(0, 100), count=st.integers(1, 20))
    def append(self, size: int, count: int) -> None:
        for _ in range(count):
            self.position += 1
            message = Message(b"\0", b"\0", b"\0\0", bytes(size), False)
            entry = Entry(message, NO_QUEUE, self.position)
            self.list.append(entry)
            self.model.append(entry)

    @precondition(lambda self: self.model)
    @rule(count=st.integers(1, 20))
    def pop_head(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            entry = self.list.pop_head()
            assert entry is self.model.pop(0)
            self.leave(entry)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        entry = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
        self.list.remove(entry)
        self.leave(entry)

    def leave(self, entry: Entry) -> None:
        assert entry.before is None
        assert entry.behind is None
        self.out.append(entry)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), count=st.integers(1, 20), order=st.sampled_from(["any", "first", "last"]))
    def insert(self, data: st.DataObject, count: int, order: str) -> None:
        if order != "any":
            self.out.sort(key=position, reverse=order == "last")
        for _ in range(min(count, len(self.out))):
            index = data.draw(st.integers(0, len(self.out) - 1)) if order == "any" else 0
            entry = self.out.pop(index)
            self.list.insert(entry)
            insort(self.model, entry, key=position)

    @rule(most=st.integers(0, 30))
    def drop(self, most: int) -> None:
        self.list.drop(most)
        del self.model[:most]

    @invariant()
    def forwards_and_backwards_it_is_the_model(self) -> None:
        forwards, entry = [], self.list.head
        while entry is not None:
            forwards.append(entry)
            entry = entry.behind
        backwards, entry = [], self.list.tail
        while entry is not None:
            backwards.append(entry)
            entry = entry.before
        assert [e.position for e in forwards] == [e.position for e in self.model]
        assert backwards == forwards[::-1]

    @invariant()
    def it_counts_entries_and_bytes(self) -> None:
        assert self.list.count == len(self.model)
        assert self.list.bytes == sum(entry.size for entry in self.model)


TestEntryList = EntryListMachine.TestCase
TestEntryList.settings = settings(max_examples=50, stateful_step_count=30)


def test_putting_back_what_several_had_in_turns_passes_few_others() -> None:
    """Ten consumers had every tenth entry each, and give theirs back one after the other."""
    entries = EntryList()
    count, consumers = 10_000, 10
    message = Message(b"\0", b"\0", b"\0\0", b"", False)
    steps = sum(
        entries.insert(Entry(message, NO_QUEUE, number))
        for consumer in range(consumers)
        for number in range(consumer + 1, count + 1, consumers)
    )
    assert [entry.position for entry in entries] == list(range(1, count + 1))
    assert steps <= count * consumers
    entries.drop(count)
